"""The output and the events of a response, made from the events of its turn. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from perdure.clients.gateway import subjects
from perdure.clients.gateway.responses.fields import (
    OpenText,
    begun_at,
    choice_of,
    error_of,
    function_of,
    schema_format,
    status_of,
    tool_of,
    usage_of,
)
from perdure.clients.gateway.responses.functions import part_id
from perdure.clients.gateway.responses.reading import APPROVAL
from perdure.clients.gateway.responses.values import (
    ApprovalRequest,
    ConversationRef,
    Event,
    IncompleteDetails,
    Item,
    OutputMessage,
    OutputText,
    ResponseObject,
    TextOptions,
    ToolCallItem,
    ToolError,
)
from perdure.clients.reading import events as turn_events
from perdure.clients.reading.live_text import Piece, TextBegins, TextVoid
from perdure.clients.reading.tree_text import TurnText
from perdure.clients.turns.status import pending
from perdure.turn import client_calls, ending, withheld
from perdure.turn.at_once import is_of_client
from perdure.turn.facts import Decided, ModelAnswered, Scheduled, TurnEnded, WaitBegan
from perdure.turn.keys import ModelKey
from perdure.turn.state import TurnState
from perdure.turn.waiting import CLIENT
from perdure.values.client_tools import ClientCall
from perdure.values.messages import ToolResult
from perdure.values.options import NO_OPTIONS
from perdure.values.reports import Usage

NamedEvents = Iterator[tuple[str, dict[str, Any]]]
"""Events of the response: the type and the fields of each."""

DELTA: Final = "response.output_text.delta"
"""The type of an event with a piece of text."""
OF_DELEGATE: Final = "perdure:delegate_text"
"""The type of an event with a piece of the text of a turn below, or a mark of it."""
VOID: Final = "TEXT_VOID"
"""The code of the error that ends a stream whose text does not count any more."""
WITHOUT_EFFECT: Final = "perdure.without_effect"
"""The name in the metadata with the parameters of a request that were taken without an effect."""

_START = datetime.min.replace(tzinfo=UTC)
_ID_DIGITS = 16
_NUMBERS = 1_000_000
"""The numbers that are reserved for each call of a model: more than a text has characters."""
_IS_VOID = (
    "the model call was lost or given up, so the text of this message does not count; the response"
    " goes on: retrieve it, or stream it again after this number"
)


class Composer:
    """Follows the events of a turn from the first, and makes the response that they describe.

    The same events make the same events of the response, with the same sequence numbers, in any
    process: a client goes on after any of them. A text counts one number for each character, and
    each call of a model has numbers of its own. So a text has the same numbers in pieces while it
    is generated and as a whole when it is recorded, and text that did not count has none of another
    text.

    Attributes:
        state: The state of the turn after the events so far.
        calls: The tokens of calls for the client, each with the number of the response that has it.
        is_broken: Whether text that was yielded does not count. The last event says so, and there
            are no others.
    """

    def __init__(
        self,
        turn_id: str,
        run_id: str,
        *,
        part: int = 1,
        background: bool = True,
        without_effect: Sequence[str] = (),
    ) -> None:
        """Begin before the first event.

        `part` is the number of the response among those of the turn: each that waits for the client
        begins another. `background` and `without_effect` are what it says about its request.
        """
        self.state = TurnState()
        self.is_broken = False
        self._background = background
        self._without_effect = ", ".join(without_effect)
        self._turn_id, self._run_id = turn_id, run_id
        self._key = hashlib.sha256(f"{turn_id}\n{run_id}".encode()).hexdigest()[:_ID_DIGITS]
        self._began, self._at = _START, _START
        self._items: list[Item] = []
        self._open: dict[str, int] = {}
        self._asked: set[str] = set()
        self._unsaid: ModelKey | None = None
        self._number = 0
        self._open_text: OpenText | None = None
        self._is_void = False
        self.calls: dict[str, int] = {}
        self._part, self._current = part, 1
        self._is_paused = False
        self._used = Usage()
        self._given: ResponseObject | None = None

    @property
    def is_over(self) -> bool:
        """Whether the response is over: with its turn, or with calls for the client."""
        return self._given is not None or self.state.ended is not None

    @property
    def is_there(self) -> bool:
        """Whether the turn has come as far as the response."""
        return self._current >= self._part

    @property
    def _is_shown(self) -> bool:
        """Whether the events that come now are those of the response."""
        return self._current == self._part and self._given is None

    @property
    def needs_person(self) -> bool:
        """Whether the turn, or one below it, waits for a person who has not decided yet."""
        waiting = self.state.waiting
        is_decided = waiting is not None and bool(waiting.pending) and not self.state.asked.calls
        return self.state.needs_person and not is_decided

    @property
    def response(self) -> ResponseObject:
        """The response after the events so far."""
        return self._given or self._composed()

    def _composed(self, *, is_given: bool = False) -> ResponseObject:
        """Return the response; with `is_given`, it ends with calls for the client."""
        end = self._end()
        if is_given:
            end = {"status": "completed", "completed_at": int(self._at.timestamp())}
        is_over = is_given or self.state.ended is not None
        usage = usage_of(self.state.accounts.usage, self._used) if is_over else None
        return ResponseObject(
            id=part_id(self._turn_id, self._part),
            created_at=int(self._began.timestamp()),
            output=tuple(self._items) if self._is_shown else (),
            usage=usage,
            background=self._background,
            **self._beginning(),
            **end,
        )

    def _beginning(self) -> dict[str, Any]:
        """Return what the turn was started with, as soon as it is known."""
        request = self.state.request
        if request is None:
            return {"model": ""}
        options = request.options or NO_OPTIONS
        fields: dict[str, Any] = {
            "model": request.agent,
            "metadata": self._metadata(subjects.shown(request.labels, request.subject)),
            "instructions": request.instructions,
            "max_output_tokens": options.max_output_tokens,
            "tool_choice": choice_of(options.tool_choice),
            "tools": tuple(map(tool_of, request.client_tools)),
        }
        if options.temperature is not None:
            fields["temperature"] = options.temperature
        if "top_p" in options.extra:
            fields["top_p"] = options.extra["top_p"]
        if request.output_schema is not None:
            fields["text"] = TextOptions(format=schema_format(request.output_schema))
        if request.budget is not None:
            fields["max_tool_calls"] = request.budget.tool_calls
        if self._part > 1:
            fields["previous_response_id"] = part_id(self._turn_id, self._part - 1)
        elif request.forked_from is not None:
            fields["previous_response_id"] = request.forked_from.turn_id
        if request.session is not None:
            fields["conversation"] = ConversationRef(id=request.session)
        return fields

    def _metadata(self, labels: Mapping[str, str]) -> dict[str, str]:
        named = {WITHOUT_EFFECT: self._without_effect} if self._without_effect else {}
        return {**labels, **named}

    def _end(self) -> dict[str, Any]:
        """Return how the turn ended, or that it did not."""
        state = self.state
        if state.ended is None:
            return {"status": "queued" if state.agent is None else "in_progress"}
        error = ending.error_of(state.ended, state.cancel_reason)
        status = status_of(state.ended.outcome, error)
        return {
            "status": status,
            "completed_at": int(self._at.timestamp()) if error is None else None,
            "error": error_of(error) if error is not None and status == "failed" else None,
            "incomplete_details": IncompleteDetails() if status == "incomplete" else None,
        }

    def see(self, event: turn_events.Event) -> tuple[tuple[int, Event], ...]:
        """Take in the next event of the turn.

        Returns:
            The events of the response that it makes, each with its sequence number, from 0.
        """
        fact = event.fact
        is_call = isinstance(fact, Scheduled) and isinstance(fact.key, ModelKey)
        if self._is_void and (is_call or isinstance(fact, ModelAnswered)):
            return (self._broken(),)
        given_up = self._given_up() if isinstance(fact, TurnEnded) else ()
        if isinstance(fact, TurnEnded):
            self._reserve()
        made = []
        for kind, fields in self._see(event):
            numbered = self._numbered(kind, fields)
            made += [numbered] if self._is_shown else []
        if self._is_paused and self._current == self._part and self._given is None:
            self._given = self._composed(is_given=True)
            made.append(self._numbered("response.completed", {"response": self._given}))
        if is_call:
            self._reserve()
        return (*given_up, *made)

    def hear(self, piece: Piece) -> tuple[tuple[int, Event], ...]:
        """Take in text that the model generates, or a mark of it.

        Returns:
            The events that it makes; none for an agent whose answers are checked or have a type,
            because their text is not told before it counts.
        """
        if not self._is_shown:
            return ()
        match piece:
            case TextBegins(step, attempt) if withheld.may_stream(self.state):
                begun = self._begun(ModelKey(step, attempt))
                return tuple(self._numbered(kind, fields) for kind, fields in begun)
            case TextVoid() if self._open_text is not None:
                self._is_void = True
            case str() if self._open_text is not None:
                return (self._numbered(*self._said(piece)),)
        return ()

    def hear_below(self, text: TurnText) -> tuple[tuple[int, Event], ...]:
        """Take in text of a turn below.

        Returns:
            Its event with the number of the event before it: it is not in a response that is read
            again. None where the response's own text is not told before it counts.
        """
        if not self._is_shown or not withheld.may_stream(self.state):
            return ()
        number = self._number - 1
        event = {**text.to_json(), "type": OF_DELEGATE, "sequence_number": number}
        return ((number, event),)

    def _reserve(self) -> None:
        """Leave all numbers out that the last call of a model may have used."""
        self._number = (self._number // _NUMBERS + 1) * _NUMBERS

    def _numbered(self, kind: str, fields: dict[str, Any]) -> tuple[int, Event]:
        """Return an event with its number; that of a piece of text counts its characters."""
        self._number += len(fields["delta"]) if kind == DELTA else 1
        number = self._number - 1
        return number, to_jsonable_python({"type": kind, "sequence_number": number, **fields})

    def _broken(self) -> tuple[int, Event]:
        """Return the error that ends the stream, with the number before the text."""
        assert self._open_text is not None
        self.is_broken = True
        number = self._open_text.before
        error: dict[str, JsonValue] = {"code": VOID, "message": _IS_VOID, "param": None}
        typed = {**error, "type": "server_error"}
        return number, {**error, "type": "error", "sequence_number": number, "error": typed}

    def _see(self, event: turn_events.Event) -> NamedEvents:
        is_first, was_queued = self._began is _START, self.state.agent is None
        self._at = event.at
        if is_first:
            self._began = begun_at(event)
        self.state = event.onto(self.state)
        if is_first:
            yield "response.created", {"response": self.response}
        if self._is_paused and not self._awaited():
            yield from self._next_part()
        if was_queued and self.state.agent is not None:
            yield "response.in_progress", {"response": self.response}
        match event.fact:
            case ModelAnswered(key):
                yield from self._answered(event, key)
            case Decided(decision) if decision.arguments is not None:
                self._edit(decision.call_id, decision.arguments)
            case WaitBegan():
                yield from self._for_client()
            case TurnEnded():
                yield from self._ended(event)
                return
        yield from self._asks()
        yield from self._results()

    def _awaited(self) -> Sequence[ClientCall]:
        return tuple(client_calls.awaited(self.state, self._turn_id))

    def _for_client(self) -> NamedEvents:
        """Yield the calls that have begun to wait for the client, and note if nothing else runs."""
        for call in self._awaited():
            if call.token in self.calls:
                continue
            self.calls[call.token] = self._current
            item = function_of(self._key, call)
            at = {"item_id": item.id, "output_index": len(self._items)}
            yield self._added(item.model_copy(update={"arguments": "", "status": "in_progress"}))
            kind = "response.function_call_arguments"
            yield f"{kind}.delta", {**at, "delta": item.arguments}
            yield f"{kind}.done", {**at, "name": item.name, "arguments": item.arguments}
            yield self._done(len(self._items) - 1, item)
        waiting = self.state.waiting
        self._is_paused = self._is_paused or (waiting is not None and waiting.kind == CLIENT)

    def _next_part(self) -> NamedEvents:
        """Yield the beginning of the response that goes on after the client has run its calls."""
        going_on = [(call_id, self._items[index]) for call_id, index in self._open.items()]
        self._current += 1
        self._is_paused = False
        self._used = self.state.accounts.usage
        self._began = self._at
        self._items.clear()
        self._open.clear()
        self._asked.clear()
        self._number = 0
        for kind in ("response.created", "response.in_progress"):
            yield kind, {"response": self.response}
        for call_id, item in going_on:
            self._open[call_id] = len(self._items)
            yield self._added(item)

    def _answered(self, event: turn_events.Event, key: ModelKey) -> NamedEvents:
        """Yield the text of an answer and its calls.

        The text of an agent whose answers have a type waits for the end: it may be asked again.
        """
        agent = self.state.agent
        is_text = agent is not None and self.state.output_schema(agent) is None
        self._unsaid = None if event.text and is_text else key
        if event.text and is_text:
            yield from self._message(key, event.text, is_last=not event.calls)
        for call in event.calls:
            if agent is not None and is_of_client(agent.tool(call.name)):
                continue
            item = ToolCallItem(
                id=f"mcp_{self._key}_{call.id}", name=call.name, arguments=call.arguments
            )
            self._open[call.id] = len(self._items)
            at = {"item_id": item.id, "output_index": len(self._items)}
            yield self._added(item)
            yield "response.mcp_call_arguments.done", {**at, "arguments": call.arguments}
            yield "response.mcp_call.in_progress", at

    def _begun(self, key: ModelKey) -> NamedEvents:
        """Yield the beginning of a text."""
        attempt = f"_{key.attempt}" if key.attempt > 1 else ""
        item = OutputMessage(id=f"msg_{self._key}_{key.step}{attempt}", status="in_progress")
        self._open_text = OpenText(item, len(self._items), before=self._number - 1)
        yield self._added(item)
        part = self._open_text.part
        yield "response.content_part.added", {**part, "part": OutputText(text="")}

    def _said(self, text: str) -> tuple[str, dict[str, Any]]:
        """Return the next piece of the text."""
        assert self._open_text is not None
        self._open_text.text += text
        return DELTA, {**self._open_text.part, "delta": text, "logprobs": []}

    def _message(self, key: ModelKey, text: str, *, is_last: bool) -> NamedEvents:
        """Yield a text to its end, as far as it was not yielded before."""
        if self._open_text is None:
            yield from self._begun(key)
        message = self._open_text
        assert message is not None
        if rest := text.removeprefix(message.text):
            yield self._said(rest)
        text_part, part = OutputText(text=text), message.part
        yield "response.output_text.done", {**part, "text": text, "logprobs": []}
        yield "response.content_part.done", {**part, "part": text_part}
        done = {
            "status": "completed",
            "content": (text_part,),
            "phase": "final_answer" if is_last else "commentary",
        }
        self._open_text = None
        yield self._done(message.index, message.item.model_copy(update=done))

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

    def _given_up(self) -> tuple[tuple[int, Event], ...]:
        """Return the end of a text that the end of the turn has cut; it is not in the response."""
        if self._open_text is None:
            return ()
        message, self._open_text = self._open_text, None
        item = message.item.model_copy(update={"status": "incomplete"})
        done = self._numbered(*self._done(message.index, item))
        del self._items[message.index]
        return (done,)

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
