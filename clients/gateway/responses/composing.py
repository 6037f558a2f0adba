"""The output and the events of a response, made from the events of its turn. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_jsonable_python

from perdure import errors
from perdure.clients.gateway.responses.reading import APPROVAL
from perdure.clients.gateway.responses.values import (
    ApprovalRequest,
    ConversationRef,
    ErrorCode,
    Event,
    IncompleteDetails,
    InputDetails,
    Item,
    OutputMessage,
    OutputText,
    ResponseError,
    ResponseObject,
    ResponseUsage,
    Status,
    ToolCallItem,
    ToolError,
)
from perdure.clients.reading import events as turn_events
from perdure.clients.turns.status import pending
from perdure.errors import PerdureError
from perdure.turn import ending
from perdure.turn.facts import Decided, ModelAnswered, TurnContinued, TurnEnded
from perdure.turn.state import TurnState
from perdure.values.messages import ToolResult
from perdure.values.options import NO_OPTIONS
from perdure.values.reports import Outcome, Usage

NamedEvents = Iterator[tuple[str, dict[str, Any]]]
"""Events of the response: the type and the fields of each."""

_START = datetime.min.replace(tzinfo=UTC)
_ID_DIGITS = 16


class Composer:
    """Follows the events of a turn from the first, and makes the response that they describe.

    The same events make the same events of the response, with the same sequence numbers, in any
    process: a client goes on after any of them.

    Attributes:
        state: The state of the turn after the events so far.
    """

    def __init__(self, turn_id: str, run_id: str, *, background: bool = True) -> None:
        """Begin before the first event. `background` is what the response says about itself."""
        self.state = TurnState()
        self._background = background
        self._turn_id, self._run_id = turn_id, run_id
        self._key = hashlib.sha256(f"{turn_id}\n{run_id}".encode()).hexdigest()[:_ID_DIGITS]
        self._began, self._at = _START, _START
        self._items: list[Item] = []
        self._open: dict[str, int] = {}
        self._asked: set[str] = set()
        self._unsaid = 0
        self._number = 0

    @property
    def is_over(self) -> bool:
        """Whether the turn is over."""
        return self.state.ended is not None

    @property
    def needs_person(self) -> bool:
        """Whether the turn, or one below it, waits for a person who has not decided yet."""
        waiting = self.state.waiting
        is_decided = waiting is not None and bool(waiting.pending) and not self.state.asked.calls
        return self.state.needs_person and not is_decided

    @property
    def response(self) -> ResponseObject:
        """The response after the events so far."""
        return ResponseObject(
            id=self._turn_id,
            created_at=int(self._began.timestamp()),
            output=tuple(self._items),
            usage=_usage(self.state.accounts.usage) if self.is_over else None,
            background=self._background,
            **self._beginning(),
            **self._end(),
        )

    def _beginning(self) -> dict[str, Any]:
        """Return what the turn was started with, as soon as it is known."""
        request = self.state.request
        if request is None:
            return {"model": ""}
        options = request.options or NO_OPTIONS
        fields: dict[str, Any] = {
            "model": request.agent,
            "metadata": request.labels,
            "max_output_tokens": options.max_output_tokens,
            "tool_choice": "none" if options.tool_choice == "none" else "auto",
        }
        if options.temperature is not None:
            fields["temperature"] = options.temperature
        if request.budget is not None:
            fields["max_tool_calls"] = request.budget.tool_calls
        if request.forked_from is not None:
            fields["previous_response_id"] = request.forked_from.turn_id
        if request.session is not None:
            fields["conversation"] = ConversationRef(id=request.session)
        return fields

    def _end(self) -> dict[str, Any]:
        """Return how the turn ended, or that it did not."""
        state = self.state
        if state.ended is None:
            return {"status": "queued" if state.agent is None else "in_progress"}
        error = ending.error_of(state.ended, state.cancel_reason)
        status = _status(state.ended.outcome, error)
        return {
            "status": status,
            "completed_at": int(self._at.timestamp()) if error is None else None,
            "error": _error(error) if error is not None and status == "failed" else None,
            "incomplete_details": IncompleteDetails() if status == "incomplete" else None,
        }

    def see(self, event: turn_events.Event) -> tuple[tuple[int, Event], ...]:
        """Take in the next event of the turn.

        Returns:
            The events of the response that it makes, each with its sequence number, from 0.
        """
        numbered = tuple(
            (number, to_jsonable_python({"type": kind, "sequence_number": number, **fields}))
            for number, (kind, fields) in enumerate(self._see(event), self._number)
        )
        self._number += len(numbered)
        return numbered

    def _see(self, event: turn_events.Event) -> NamedEvents:
        is_first, was_queued = self._began is _START, self.state.agent is None
        self._at = event.at
        if is_first:
            self._began = _beginning(event)
        self.state = event.onto(self.state)
        if is_first:
            yield "response.created", {"response": self.response}
        if was_queued and self.state.agent is not None:
            yield "response.in_progress", {"response": self.response}
        match event.fact:
            case ModelAnswered(key):
                yield from self._answered(event, key.step)
            case Decided(decision) if decision.arguments is not None:
                self._edit(decision.call_id, decision.arguments)
            case TurnEnded():
                yield from self._ended(event)
                return
        yield from self._asks()
        yield from self._results()

    def _answered(self, event: turn_events.Event, step: int) -> NamedEvents:
        """Yield the text of an answer and its calls.

        The text of an agent whose answers have a type waits for the end: it may be asked again.
        """
        agent = self.state.agent
        is_text = agent is not None and self.state.output_schema(agent) is None
        self._unsaid = 0 if event.text and is_text else step
        if event.text and is_text:
            yield from self._message(step, event.text, is_last=not event.calls)
        for call in event.calls:
            item = ToolCallItem(
                id=f"mcp_{self._key}_{call.id}", name=call.name, arguments=call.arguments
            )
            self._open[call.id] = len(self._items)
            at = {"item_id": item.id, "output_index": len(self._items)}
            yield self._added(item)
            yield "response.mcp_call_arguments.done", {**at, "arguments": call.arguments}
            yield "response.mcp_call.in_progress", at

    def _message(self, step: int, text: str, *, is_last: bool) -> NamedEvents:
        item = OutputMessage(
            id=f"msg_{self._key}_{step}",
            status="in_progress",
            phase="final_answer" if is_last else "commentary",
        )
        index = len(self._items)
        part = {"item_id": item.id, "output_index": index, "content_index": 0}
        text_part = OutputText(text=text)
        yield self._added(item)
        yield "response.content_part.added", {**part, "part": OutputText(text="")}
        yield "response.output_text.delta", {**part, "delta": text, "logprobs": []}
        yield "response.output_text.done", {**part, "text": text, "logprobs": []}
        yield "response.content_part.done", {**part, "part": text_part}
        done = item.model_copy(update={"status": "completed", "content": (text_part,)})
        yield self._done(index, done)

    def _asks(self) -> NamedEvents:
        """Yield the calls that have begun to wait for a person."""
        for approval in pending(self.state, self._run_id, _START):
            request_id = f"{APPROVAL}{approval.call_id}:{approval.token}"
            if request_id in self._asked:
                continue
            self._asked.add(request_id)
            if approval.call_id in self._open:
                self._change(approval.call_id, approval_request_id=request_id)
            item = ApprovalRequest(
                id=request_id,
                name=approval.tool,
                arguments=approval.arguments,
                is_unknown=approval.is_unknown,
                reason=approval.reason if approval.is_unknown else "",
                question=approval.question,
            )
            index = len(self._items)
            yield self._added(item)
            yield self._done(index, item)

    def _results(self) -> NamedEvents:
        """Yield the calls that have a result since the last event."""
        if not self._open:
            return
        step = self.state.steps[-1].results if self.state.steps else ()
        for result in (*step, *self.state.open_step.results):
            if result.call_id in self._open:
                yield from self._result(result)

    def _result(self, result: ToolResult) -> NamedEvents:
        if result.is_error:
            item = self._change(
                result.call_id, status="failed", error=ToolError(content=result.content)
            )
        else:
            item = self._change(result.call_id, status="completed", output=result.content)
        index = self._open.pop(result.call_id)
        yield f"response.mcp_call.{item.status}", {"item_id": item.id, "output_index": index}
        yield self._done(index, item)

    def _ended(self, event: turn_events.Event) -> NamedEvents:
        """Yield the end, after the results and the text that came with it."""
        yield from self._results()
        for call_id, index in list(self._open.items()):
            yield self._done(index, self._change(call_id, status="incomplete"))
        self._open.clear()
        response = self.response
        if self._unsaid and event.text and response.status in ("completed", "incomplete"):
            yield from self._message(self._unsaid, event.text, is_last=True)
            response = self.response
        known = response.status in ("completed", "failed")
        yield f"response.{response.status if known else 'incomplete'}", {"response": response}

    def _edit(self, call_id: str, arguments: str) -> None:
        """Note the arguments that a person gave a call."""
        if call_id in self._open:
            self._change(call_id, arguments=arguments)

    def _change(self, call_id: str, **changes: Any) -> ToolCallItem:
        index = self._open[call_id]
        item = self._items[index]
        assert isinstance(item, ToolCallItem)
        self._items[index] = changed = item.model_copy(update=changes)
        return changed

    def _added(self, item: Item) -> tuple[str, dict[str, Any]]:
        self._items.append(item)
        index = len(self._items) - 1
        return "response.output_item.added", {"output_index": index, "item": item}

    def _done(self, index: int, item: Item) -> tuple[str, dict[str, Any]]:
        self._items[index] = item
        return "response.output_item.done", {"output_index": index, "item": item}


def _beginning(first: turn_events.Event) -> datetime:
    """Return the time when a turn began, from its first known event."""
    for fact in first.before:
        if isinstance(fact, TurnContinued):
            return fact.continuation.began
    return first.at


def _status(outcome: Outcome, error: PerdureError | None) -> Status:
    if outcome is Outcome.COMPLETED:
        return "completed"
    if error is None:
        return "incomplete"
    return "cancelled" if outcome is Outcome.CANCELLED else "failed"


def _error(error: PerdureError) -> ResponseError:
    """Return an error with one of the codes of OpenAI; the message has Perdure's own."""
    code: ErrorCode = "server_error"
    if isinstance(error, errors.LLMRateLimitError):
        code = "rate_limit_exceeded"
    elif isinstance(error, errors.InvalidRequestError | errors.LLMInvalidRequestError):
        code = "invalid_prompt"
    return ResponseError(code=code, message=f"{error.code}: {error.message}")


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        input_tokens_details=InputDetails(
            cached_tokens=usage.cache_read_tokens, cache_write_tokens=usage.cache_write_tokens
        ),
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
    )
