"""Translates the events of a turn into those of an AG-UI run. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ag_ui.core import (
    PROTOCOL_VERSION,
    BaseEvent,
    CustomEvent,
    Interrupt,
    Message,
    MessagesSnapshotEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentFinishedSuspendedOutcome,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
)

from perdure import errors
from perdure.clients.gateway.agui import run_input, snapshots
from perdure.clients.gateway.agui.state_patch import patch_of
from perdure.clients.gateway.agui.subagent_text import SubagentTexts
from perdure.clients.reading.events import CaughtUp, Event
from perdure.clients.reading.live_text import TextBegins, TextVoid
from perdure.clients.reading.tool_progress import ToolProgress
from perdure.clients.reading.tree_text import TurnText
from perdure.clients.turns.status import Wait
from perdure.errors import PerdureError
from perdure.text import one_line
from perdure.turn import ending
from perdure.turn.child import Child
from perdure.turn.facts import ChildEnded, Fact, ModelAnswered, Said, Scheduled, TurnEnded
from perdure.turn.keys import ChildKey, Key, ModelKey
from perdure.turn.state import TurnState
from perdure.turn.waiting import CLIENT
from perdure.values.approvals import PendingApproval
from perdure.values.messages import OPEN_CALL, AssistantMessage
from perdure.values.reports import Usage
from perdure.values.shared_state import SharedState

TurnItem = Event | str | TextBegins | TextVoid | TurnText | ToolProgress | CaughtUp
Events = Iterator[BaseEvent]

_STOPPED = "the run was stopped"
_NAMED = 20
"""So many messages that are not used are named."""


@dataclass(frozen=True, slots=True)
class Names:
    """What a run is called, and what its turn follows.

    Attributes:
        thread_id: The id of the thread, as the client gave it.
        run_id: The id of the run, as the client gave it.
        parent_run_id: The run that the client names as the one that spawned it.
        turn_id: The turn's id.
        message_ids: The ids of the messages of the user that the turn was given, the task first.
        before: The messages of the thread before the turn.
    """

    thread_id: str
    run_id: str
    parent_run_id: str | None
    turn_id: str
    message_ids: tuple[str, ...]
    before: tuple[Message, ...]


@dataclass(slots=True)
class _OpenText:
    """The text that is open: the id of its message, and what was said of it."""

    id: str
    text: str = ""


@dataclass(slots=True)
class Translation:
    """The events of a run, made of the events of its turn.

    It sees everything that the turn has recorded. The events that it yields for what precedes the
    run are dropped by its caller: `opening` yields what they amount to.

    Attributes:
        names: What the run is called.
        state: The state of the turn.
        has_caught_up: Whether it has seen all events that history had when watching began.
        given: The ids of calls of the user interface that this run has given their results.
    """

    names: Names
    state: TurnState = field(default_factory=TurnState)
    has_caught_up: bool = False
    given: set[str] = field(default_factory=set)
    _step: int | None = None
    _text: _OpenText | None = None
    _unanswered: list[str] = field(default_factory=list)
    _children: dict[str, bool] = field(default_factory=dict)
    _below: SubagentTexts = field(default_factory=SubagentTexts)
    _usage: dict[tuple[str, str], Usage] = field(default_factory=lambda: defaultdict(Usage))
    _tokens_below: int = 0
    _shown: SharedState = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether the turn is over, or waits for the user interface to run its tools."""
        if self.state.ended is not None:
            return True
        waiting = self.state.waiting
        if not self.has_caught_up or waiting is None or waiting.kind != CLIENT:
            return False
        unfinished = {each.call.id for _, each in self.state.open_step.unfinished}
        return bool(unfinished) and not unfinished & self.given

    def unknown_of(self, messages: Sequence[Message]) -> list[str]:
        """Return the messages of a client that the thread does not have, in words."""
        known = {message.id for message in self._snapshot().messages} | {*self.names.message_ids}
        unknown = [
            message.id
            for message in messages
            if message.id not in known
            and getattr(message, "subagent_run_id", None) is None  # they are of another run alone
            and not (isinstance(message, ToolMessage) and self._has_result(message.tool_call_id))
        ]
        if not unknown:
            return []
        shown = ", ".join(one_line(message_id, 100) for message_id in unknown[:_NAMED])
        return [f"messages that the thread does not have: {shown}"]

    def _has_result(self, call_id: str) -> bool:
        messages = self._snapshot().messages
        of_tools = (message for message in messages if isinstance(message, ToolMessage))
        return call_id in self.given or any(each.tool_call_id == call_id for each in of_tools)

    def opening(self, ignored: Sequence[str], *, has_state: bool = False) -> Events:
        """Yield the beginning of the run: the messages so far, and what is in progress.

        `has_state` is whether the client has sent a state, which is not that of the turn any more.
        """
        self._usage.clear()
        self._tokens_below = 0
        yield RunStartedEvent(
            thread_id=self.names.thread_id,
            run_id=self.names.run_id,
            parent_run_id=self.names.parent_run_id,
            protocol_version=PROTOCOL_VERSION,
        )
        if ignored:
            yield CustomEvent(name="perdure.ignored", value=list(ignored))
        yield self._snapshot()
        if has_state or self._shown:
            yield StateSnapshotEvent(snapshot=self._shown)
        if self._step is not None:
            yield StepStartedEvent(step_name=_name(self._step))
        for child in self.state.children:
            if self._children.get(child.turn_id):
                yield self._started(child)
        if self._text is not None:
            yield TextMessageStartEvent(message_id=self._text.id, role="assistant")
            yield TextMessageContentEvent(message_id=self._text.id, delta=self._text.text)

    def see(self, item: TurnItem) -> Events:
        """Yield the events that follow from an event of the turn, or from its live text."""
        match item:
            case Event():
                models = self.state.in_flight
                self.state = item.onto(self.state)
                yield from self._of_fact(item.fact, models)
                if isinstance(item.fact, ModelAnswered):
                    yield from self._asked(item)
                yield from self._of_children()
                yield from self._results()
                yield from self._state_changes()
            case TextBegins(step):
                self._text = _OpenText(snapshots.answer_id(self.names.turn_id, step))
                yield TextMessageStartEvent(message_id=self._text.id, role="assistant")
            case TextVoid():
                yield from self._end_of_text()
                yield self._snapshot()
            case TurnText():
                yield from self._hear_below(item)
            case CaughtUp():
                self.has_caught_up = True
            case str() if self._text is not None:
                self._text.text += item
                yield TextMessageContentEvent(message_id=self._text.id, delta=item)

    def _hear_below(self, text: TurnText) -> Events:
        """Yield the text of a subagent, or of a turn that works for it."""
        subagent_id = self._subagent_of(text.turn_id)
        if subagent_id is None or not self._children[subagent_id]:
            return
        yield from self._below.hear(text, subagent_id)
        if isinstance(text.piece, TextVoid):
            yield self._snapshot()

    def _subagent_of(self, turn_id: str) -> str | None:
        """Return the id of the subagent that a turn is, or works for."""
        ids = (child_id for child_id in self._children if f"{turn_id}/".startswith(f"{child_id}/"))
        return next(ids, None)

    def _of_fact(self, fact: Fact, models: Mapping[Key, str]) -> Events:
        match fact:
            case Scheduled(ModelKey(step=step)) if step != self._step:
                yield from self._end_of_step()
                self._step = step
                yield StepStartedEvent(step_name=_name(step))
            case ModelAnswered(key, answer):
                provider, _, model = models.get(key, "").partition(":")
                self._usage[provider, answer.model or model] += answer.usage
                yield from self._end_of_text()
                yield from self._reasoning(key.step, answer.message)
            case ChildEnded(_, summary) if summary is not None:
                self._tokens_below += summary.spent.tokens
            case TurnEnded():
                yield from self._closed()
            case Said(message_id, text):
                yield TextMessageStartEvent(message_id=message_id, role="user")
                yield TextMessageContentEvent(message_id=message_id, delta=text)
                yield TextMessageEndEvent(message_id=message_id)

    def _reasoning(self, step: int, answer: AssistantMessage) -> Events:
        if not (thoughts := snapshots.shown_thinking(answer)):
            return
        message_id = snapshots.reasoning_id(self.names.turn_id, step)
        yield ReasoningStartEvent(message_id=message_id)
        yield ReasoningMessageStartEvent(message_id=message_id)
        yield ReasoningMessageContentEvent(message_id=message_id, delta=thoughts)
        yield ReasoningMessageEndEvent(message_id=message_id)
        yield ReasoningEndEvent(message_id=message_id)

    def _asked(self, event: Event) -> Events:
        """Yield the calls of an answer, each with its complete arguments."""
        parent = snapshots.answer_id(self.names.turn_id, event.step or 0)
        for call in event.calls:
            self._unanswered.append(call.id)
            yield ToolCallStartEvent(
                tool_call_id=call.id, tool_call_name=call.name, parent_message_id=parent
            )
            yield ToolCallArgsEvent(tool_call_id=call.id, delta=call.arguments)
            yield ToolCallEndEvent(tool_call_id=call.id)

    def _results(self) -> Events:
        """Yield the results that have come since, whatever they are from."""
        closed = self.state.steps[-1].results if self.state.steps else ()
        results = {result.call_id: result for result in (*closed, *self.state.open_step.results)}
        for call_id in [call_id for call_id in self._unanswered if call_id in results]:
            yield self._result(call_id, results[call_id].content)

    def _state_changes(self) -> Events:
        """Yield what has changed of the shared state since."""
        delta = list(patch_of(self._shown, self.state.shared))
        self._shown = self.state.shared
        if delta:
            yield StateDeltaEvent.model_validate({"delta": delta})

    def _result(self, call_id: str, content: str) -> ToolCallResultEvent:
        self._unanswered.remove(call_id)
        return ToolCallResultEvent(
            message_id=snapshots.result_id(self.names.turn_id, call_id),
            tool_call_id=call_id,
            content=content,
            role="tool",
        )

    def _of_children(self) -> Events:
        """Yield the delegates that have begun or ended since."""
        for child in self.state.children:
            if child.turn_id not in self._children:
                self._children[child.turn_id] = True
                yield self._started(child)
            if child.ended and self._children[child.turn_id]:
                self._children[child.turn_id] = False
                yield from self._below.end(child.turn_id)
                yield _ended(child)

    def _started(self, child: Child) -> SubagentStartedEvent:
        return SubagentStartedEvent(
            subagent_run_id=child.turn_id,
            name=child.request.agent,
            parent_tool_call_id=self._call_of(child.key),
        )

    def _call_of(self, key: ChildKey) -> str | None:
        """Return the id of the call that started a delegate, if its step is still open."""
        calls = self.state.open_step.calls
        return calls[key.call - 1].call.id if 0 < key.call <= len(calls) else None

    def _snapshot(self) -> MessagesSnapshotEvent:
        names = self.names
        messages = snapshots.so_far(names.turn_id, names.message_ids, self.state)
        return MessagesSnapshotEvent(messages=[*names.before, *messages, *self._below.messages])

    # --- the end of the run

    def finished(self) -> Events:
        """Yield the end of a run whose turn is over, or waits for the user interface."""
        if self.state.ended is None:
            yield from self._end_of_text()
            yield from self._below.end()
            yield from self._end_of_step()
            yield self._over(RunFinishedSuccessOutcome())
            return
        try:
            output = self._output()
        except errors.TurnCancelledError:
            yield self._over(RunFinishedCancelledOutcome())
        except PerdureError as error:
            yield self.failed(error.code, error.message)
        else:
            yield self._over(RunFinishedSuccessOutcome(), output)

    def _output(self) -> object:
        """Return the answer of the turn.

        Raises:
            PerdureError: It has none.
        """
        state = self.state
        assert state.ended is not None
        if error := ending.error_of(state.ended, state.cancel_reason):
            raise error
        report = ending.report(self.names.turn_id, state, state.ended.outcome)
        schema = state.output_schema(state.agent) if state.agent else None
        return ending.typed(report, None, schema).output

    def interrupted(self, waits: Sequence[Wait]) -> Events:
        """Yield the end of a run whose turn waits for people."""
        interrupts = [self._interrupt(wait) for wait in waits]
        yield from self._end_of_text()
        yield from self._below.end()
        yield from self._end_of_step()
        for turn_id in self._active():
            raised = [
                interrupt.id for interrupt in interrupts if interrupt.subagent_run_id == turn_id
            ]
            outcome = SubagentFinishedSuspendedOutcome(interrupt_ids=raised or None)
            yield SubagentFinishedEvent(subagent_run_id=turn_id, outcome=outcome)
        yield self._over(RunFinishedInterruptOutcome(interrupts=interrupts))

    def _interrupt(self, wait: Wait) -> Interrupt:
        is_own = wait.turn_id == self.names.turn_id
        child = None if is_own else self._subagent_of(wait.turn_id)
        if wait.call is None:
            return Interrupt(
                id=f"{wait.turn_id}#{wait.kind}",
                reason=f"perdure:{wait.kind}",
                message=wait.reason,
                subagent_run_id=child,
                metadata={"perdure": {"turn": wait.turn_id}},
            )
        call = wait.call
        return Interrupt(
            id=str(run_input.CallName(wait.turn_id, call.call_id, call.token)),
            reason="tool_call" if is_own else "confirmation",
            message=_question(call),
            tool_call_id=call.call_id if is_own else None,
            response_schema=_response_schema(call),
            expires_at=call.expires_at.isoformat(),
            subagent_run_id=child,
            metadata={
                "perdure": {"turn": wait.turn_id, "tool": call.tool, "arguments": call.arguments}
            },
        )

    def failed(self, code: str, message: str) -> RunErrorEvent:
        """Return the end of a run that failed."""
        return RunErrorEvent(message=message, code=code, usage=self._used())

    def _closed(self) -> Events:
        """Yield the ends of everything that is open."""
        yield from self._end_of_text()
        yield from self._below.end()
        for call_id in tuple(self._unanswered):
            yield self._result(call_id, OPEN_CALL)
        for turn_id in self._active():
            yield SubagentErrorEvent(subagent_run_id=turn_id, message=_STOPPED)
        yield from self._end_of_step()

    def _active(self) -> list[str]:
        return [turn_id for turn_id, is_active in self._children.items() if is_active]

    def _end_of_text(self) -> Events:
        if self._text is not None:
            yield TextMessageEndEvent(message_id=self._text.id)
            self._text = None

    def _end_of_step(self) -> Events:
        if self._step is not None:
            yield StepFinishedEvent(step_name=_name(self._step))
            self._step = None

    def _over(
        self,
        outcome: RunFinishedSuccessOutcome
        | RunFinishedInterruptOutcome
        | RunFinishedCancelledOutcome,
        result: object = None,
    ) -> RunFinishedEvent:
        return RunFinishedEvent(
            thread_id=self.names.thread_id,
            run_id=self.names.run_id,
            result=result,
            outcome=outcome,
            usage=self._used(),
        )

    def _used(self) -> list[TokenUsage] | None:
        """Return the tokens of the run, by model, and the tokens of its delegates as a sum."""
        used = [_tokens(*named, usage) for named, usage in self._usage.items()]
        if self._tokens_below:
            used.append(TokenUsage(total_tokens=self._tokens_below))
        return used or None


def _name(step: int) -> str:
    return f"step {step}"


def _response_schema(call: PendingApproval) -> dict[str, Any]:
    if call.question is not None:
        return run_input.answer_to(call.question)
    return run_input.SETTLEMENT if call.is_unknown else run_input.RESPONSE


def _question(call: PendingApproval) -> str:
    if call.question is not None and call.question.server:
        return call.question.text  # it says who asks
    if call.question is not None:
        return f"The model asks, by {call.tool}: {call.question.text}"
    if call.is_unknown:
        return f"The call of {call.tool} was made, and its outcome is unknown: {call.reason}"
    return call.reason or f"The call of {call.tool} needs approval."


def _ended(child: Child) -> SubagentFinishedEvent | SubagentErrorEvent:
    summary = child.summary
    if summary is None:
        return SubagentErrorEvent(
            subagent_run_id=child.turn_id, message=child.reason or "it returned nothing"
        )
    if summary.error is not None:
        error = summary.error
        return SubagentErrorEvent(
            subagent_run_id=child.turn_id, message=error.message, code=error.code
        )
    return SubagentFinishedEvent(subagent_run_id=child.turn_id, result=summary.output)


def _tokens(provider: str, model: str, usage: Usage) -> TokenUsage:
    return TokenUsage(
        provider=provider or None,
        model=model or None,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        cached_input_tokens=usage.cache_read_tokens or None,
        cache_write_input_tokens=usage.cache_write_tokens or None,
    )
