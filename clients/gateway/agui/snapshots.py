"""The messages of a thread, in the form of AG-UI. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ag_ui.core import (
    AssistantMessage,
    FunctionCall,
    Message,
    ReasoningMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)

from perdure.clients.gateway.agui.page_block import without_block
from perdure.clients.sessions.readable import Conversation
from perdure.turn import withheld
from perdure.turn.state import TurnState
from perdure.values import messages
from perdure.values.messages import Thinking


def answer_id(turn_id: str, step: int) -> str:
    """Return the id of the answer of a step."""
    return f"{turn_id}#{step}"


def reasoning_id(turn_id: str, step: int) -> str:
    """Return the id of the reasoning of a step."""
    return f"{turn_id}#{step}.reasoning"


def result_id(turn_id: str, call_id: str) -> str:
    """Return the id of the result of a call."""
    return f"{turn_id}#{call_id}"


def before(thread: Conversation, session_id: str, number: int) -> Iterator[Message]:
    """Yield the messages of the turns before the turn with this number."""
    known = {turn.number: turn for turn in thread.turns}
    for part in thread.parts:
        if part.number < number:
            turn = known.get(part.number)
            turn_id = turn.turn_id if turn else f"{session_id}/{part.number}"
            yield from of_turn(turn_id, turn.messages if turn else (), part.messages)


def so_far(turn_id: str, ids: Sequence[str], state: TurnState) -> Iterator[Message]:
    """Yield the messages of a running turn, with those that its model has not read yet."""
    yield from of_turn(turn_id, ids, (*_own(state), *state.inbox.unread))


def _own(state: TurnState) -> Sequence[messages.Message]:
    """Return the messages of a turn, without the session's messages that it has taken over."""
    known, request = withheld.shown(state).all_messages, state.request
    origin = request.origin if request else None
    if request is None or origin is None or len(known) <= origin.steps:
        return known
    first = known[origin.steps]
    is_task = isinstance(first, messages.UserMessage) and first.text.endswith(request.task.text)
    return known[origin.steps :] if is_task else known


def of_turn(
    turn_id: str, ids: Sequence[str], turn_messages: Iterable[messages.Message]
) -> Iterator[Message]:
    """Yield the messages of a turn.

    Args:
        turn_id: The turn's id, from which the ids of its messages are made.
        ids: The ids of the messages of the user that it was given, the task first.
        turn_messages: Its messages. Those of the user without an id, besides the task, are
            Perdure's own and left out.
    """
    step, task_id = 0, ids[0] if ids else answer_id(turn_id, 0)
    for index, message in enumerate(turn_messages):
        match message:
            case messages.UserMessage():
                message_id = message.id or (task_id if index == 0 else None)
                if message_id is not None:
                    yield UserMessage(id=message_id, content=without_block(message.brief))
            case messages.AssistantMessage():
                step += 1
                yield from _of_answer(turn_id, step, message)
            case messages.ToolMessage(results=results):
                for result in results:
                    yield ToolMessage(
                        id=result_id(turn_id, result.call_id),
                        content=result.content,
                        tool_call_id=result.call_id,
                        error=result.content if result.is_error else None,
                    )


def _of_answer(turn_id: str, step: int, answer: messages.AssistantMessage) -> Iterator[Message]:
    if thoughts := shown_thinking(answer):
        yield ReasoningMessage(id=reasoning_id(turn_id, step), content=thoughts)
    calls = [
        ToolCall(id=call.id, function=FunctionCall(name=call.name, arguments=call.arguments))
        for call in answer.calls
    ]
    yield AssistantMessage(
        id=answer_id(turn_id, step), content=answer.text or None, tool_calls=calls or None
    )


def shown_thinking(answer: messages.AssistantMessage) -> str:
    """Return the reasoning that the model shows; empty without any."""
    return "".join(part.text for part in answer.parts if isinstance(part, Thinking))
