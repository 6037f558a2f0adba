"""The text of the subagents of a run, as messages that name them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ag_ui.core import (
    AssistantMessage,
    BaseEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)

from perdure.clients.gateway.agui import snapshots
from perdure.clients.reading.live_text import TextBegins, TextVoid
from perdure.clients.reading.tree_text import TurnText


class SubagentTexts:
    """The texts of subagents so far.

    Attributes:
        messages: The messages that count, also those that are open.
    """

    def __init__(self) -> None:
        self.messages: list[AssistantMessage] = []
        self._open: dict[str, AssistantMessage] = {}

    def hear(self, text: TurnText, subagent_id: str) -> Iterator[BaseEvent]:
        """Yield the events of another piece or mark. Text that is void is no message any more.

        Args:
            text: The piece or the mark, with the turn that it is of.
            subagent_id: The subagent that the turn is, or that it works for.
        """
        message = self._open.get(text.turn_id)
        match text.piece:
            case TextBegins(step, attempt):
                yield from self._end(text.turn_id)
                yield self._begun(text, subagent_id, step, attempt)
            case TextVoid():
                yield from self._end(text.turn_id)
                self.messages = [each for each in self.messages if each is not message]
            case str(delta) if message is not None:
                message.content = f"{message.content}{delta}"
                yield TextMessageContentEvent(
                    message_id=message.id, delta=delta, subagent_run_id=subagent_id
                )

    def end(self, subagent_id: str | None = None) -> Iterator[BaseEvent]:
        """Yield the ends of the texts of a subagent; of all subagents without its id."""
        for turn_id, message in tuple(self._open.items()):
            if subagent_id is None or message.subagent_run_id == subagent_id:
                yield from self._end(turn_id)

    def _begun(
        self, text: TurnText, subagent_id: str, step: int, attempt: int
    ) -> TextMessageStartEvent:
        suffix = f".{attempt}" if attempt > 1 else ""
        message = AssistantMessage(
            id=f"{snapshots.answer_id(text.turn_id, step)}{suffix}",
            name=text.agent,
            content="",
            subagent_run_id=subagent_id,
        )
        self.messages.append(message)
        self._open[text.turn_id] = message
        return TextMessageStartEvent(
            message_id=message.id,
            role="assistant",
            name=text.agent,
            subagent_run_id=subagent_id,
        )

    def _end(self, turn_id: str) -> Iterator[BaseEvent]:
        message = self._open.pop(turn_id, None)
        if message is not None:
            yield TextMessageEndEvent(
                message_id=message.id, subagent_run_id=message.subagent_run_id
            )
