"""Calls that wait for a time or for an event: when they begin, what ends them, and their results.

The workflow performs them itself and decides when they end, because the fold has no clock. History
records each decision, so a reader has the same results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from perdure import limits, validation
from perdure.agents.definitions import AgentDefinition
from perdure.agents.waits import PinnedWait
from perdure.base import replace
from perdure.errors import InvalidRequestError, TooLargeError
from perdure.text import clean, clip, head, one_line, size
from perdure.turn import event_keys, jobs, steps
from perdure.turn.keys import ToolKey, parse_key
from perdure.turn.open_step import OpenCall
from perdure.turn.state import TurnState
from perdure.turn.wait_values import CallWait, TurnEvent, Woken
from perdure.turn.waiting import EVENT, JOB, TIMER, Waiting
from perdure.values.budgets import Spending
from perdure.values.messages import ToolCall, ToolOutcome
from perdure.values.moments import in_words, period_in_words

_ONE_CALL = Spending(tool_calls=1)
_NOTHING_IN_IT = "It holds nothing."


@dataclass(frozen=True, slots=True)
class Beginning:
    """What becomes of calls that are to wait now: some wait, and some have ended already."""

    waits: tuple[CallWait, ...] = ()
    woken: tuple[Woken, ...] = ()

    def refused(self, reasons: Mapping[tuple[str, str], str]) -> Beginning:
        """Return it without the waits for events by these names and keys, which are refused."""
        ends: list[Woken] = []
        waits: list[CallWait] = []
        for wait in self.waits:
            reason = reasons.get((wait.event, wait.event_key))
            if reason is None:
                waits.append(wait)
            else:
                ends.append(Woken(key=wait.key, by="refused", reason=clip(reason, 500)))
        return Beginning(tuple(waits), (*self.woken, *ends))


def pinned_wait(agent: AgentDefinition | None, call: ToolCall) -> PinnedWait | None:
    """Return what the turn does for a call that waits; None for any other call."""
    tool = agent.tool(call.name) if agent else None
    return tool.wait if tool else None


def waits_for_events(agent: AgentDefinition) -> bool:
    """Return whether an agent has a tool that waits for an event."""
    return any(tool.wait is not None and tool.wait.action == "wait_for" for tool in agent.tools)


def open_waits(state: TurnState) -> tuple[CallWait, ...]:
    """Return the waits of the open step that are not over, in the order of their calls."""
    return tuple(
        open_call.wait for _, open_call in state.open_step.unfinished if open_call.wait is not None
    )


PollPlace = tuple[ToolKey, int]
"""A call that waits for a job, and the number of questions that its server has asked."""


def waiting_jobs(state: TurnState) -> dict[PollPlace, CallWait]:
    """Return the calls that wait for the result of a job, with their waits.

    Those during which people are asked something are left out.
    """
    calls = ((key, state.open_step.at(key.call)) for key in jobs.open_keys(state))
    return {
        (key, open_call.inquiry.number if open_call.inquiry else 0): open_call.wait
        for key, open_call in calls
        if open_call.wait is not None and not open_call.is_asked
    }


def shown(waits: Sequence[CallWait]) -> Waiting | None:
    """Return the wait that people see: the first to end, which names the others."""
    if not waits:
        return None
    first = min(waits, key=lambda wait: wait.until)
    others = f" (and {len(waits) - 1} more)" if len(waits) > 1 else ""
    kind = JOB if first.is_job else EVENT if first.event else TIMER
    note = one_line(first.note, limits.NOTE_CHARACTERS) + others
    event = f"{first.event} of {first.event_key}" if first.event_key else first.event
    reason = f"{one_line(event, limits.NOTE_CHARACTERS)}: {note}" if first.event else note
    return Waiting(kind, reason, since=first.since, until=first.until)


def began(state: TurnState, waits: Sequence[CallWait]) -> TurnState:
    """Return the state after calls began to wait.

    Each is charged once, as a tool call; one that has a job was charged when it ran.
    """
    for wait in waits:
        key = _key_of(wait.key)
        if key is None or not steps.is_open(state, key):
            continue
        open_call = state.open_step.at(key.call)
        state = state if open_call.is_begun else _charged(state)
        step = state.open_step.with_call(key.call, replace(open_call, wait=wait))
        state = replace(state, open_step=step)
    return replace(state, waiting=shown(open_waits(state)))


def woken(state: TurnState, ends: Sequence[Woken]) -> TurnState:
    """Return the state after waits have ended, each with the result of its call."""
    for end in ends:
        key = _key_of(end.key)
        if key is not None and steps.is_open(state, key):
            state = _ended(state, key, end)
    state = event_keys.without(state, ends)
    return replace(state, waiting=shown(open_waits(state)))


def _ended(state: TurnState, key: ToolKey, end: Woken) -> TurnState:
    open_call = state.open_step.at(key.call)
    if open_call.job is not None:
        return jobs.ended(state, key, end)
    content = _result(open_call, end, event_keys.event_of(state, end))
    if end.by == "refused":
        return steps.give(state, key, content, ToolOutcome.NOT_RUN)
    state = state if open_call.wait else _charged(state)
    return steps.give(state, key, content, ToolOutcome.DONE)


def _charged(state: TurnState) -> TurnState:
    ledger = state.accounts.ledger
    return state.with_ledger(replace(ledger, spent=ledger.spent + _ONE_CALL))


def _key_of(text: str) -> ToolKey | None:
    key = parse_key(text)
    return key if isinstance(key, ToolKey) else None


def _result(open_call: OpenCall, end: Woken, event: TurnEvent | None) -> str:
    """Return what the model reads of a wait that is over."""
    name, wait = open_call.call.name, open_call.wait
    waited = period_in_words(timedelta(seconds=end.waited_s))
    planned = period_in_words(wait.until - wait.since) if wait else ""
    match end.by:
        case "refused":
            return clip(f"{name}: nothing was waited for: {end.reason}.", limits.TOOL_RESULT_BYTES)
        case "message":
            of = f" of {planned}" if planned else ""
            return f"Waited {waited}{of}: the user has sent a message, which follows."
        case "event":
            when = f"came after {waited}" if end.waited_s else "was there already"
            if event and event.at and (wait is None or event.at < wait.since):
                when = f"was there already, since {in_words(event.at)}"
            text = f"The event {_event(event.name, event.key) if event else repr('')} {when}. "
            return clip(text + _body(event), limits.TOOL_RESULT_BYTES)
        case "time":
            if wait is not None and wait.event:
                event_name = _event(wait.event, wait.event_key)
                return f"The event {event_name} did not come within {planned}."
            return f"Waited {waited}" + (f", until {in_words(wait.until)}." if wait else ".")
        case "result":
            raise AssertionError("the result of a job is not that of a wait")


def _event(name: str, key: str) -> str:
    """Return an event by its name and key, as a model reads it."""
    return f"{head(name, 400)!r} of {head(key, 400)!r}" if key else f"{head(name, 400)!r}"


def _body(event: TurnEvent | None) -> str:
    return f"It holds:\n{event.body}" if event and event.body else _NOTHING_IN_IT


def beginning(
    state: TurnState,
    agent: AgentDefinition,
    keys: Sequence[ToolKey],
    now: datetime,
    time_left: timedelta | None,
) -> Beginning:
    """Return what becomes of calls that are to wait now.

    `time_left` is the time that the turn has for its calls; None without a limit.
    """
    waits: list[CallWait] = []
    ended: list[Woken] = []
    for key in keys:
        try:
            wait = _wait_of(state, agent, key, now, time_left)
        except ValueError as error:
            ended.append(Woken(key=str(key), by="refused", reason=clip(str(error), 500)))
            continue
        taken = {end.event_id for end in ended}
        end = cause(state, wait, now, is_over=False, taken=taken)
        waits += [] if end else [wait]
        ended += [end] if end else []
    return Beginning(tuple(waits), tuple(ended))


def _wait_of(
    state: TurnState,
    agent: AgentDefinition,
    key: ToolKey,
    now: datetime,
    time_left: timedelta | None,
) -> CallWait:
    """Return the wait that begins now.

    Raises:
        ValueError: The arguments of the call are not valid, or it asks for too long a wait.
    """
    open_call = state.open_step.at(key.call)
    job = jobs.pinned_job(state, open_call)
    if job is not None:
        return jobs.wait_of(open_call, job, key, now)
    pinned = pinned_wait(agent, open_call.edited)
    assert pinned is not None
    return _planned(pinned, key, open_call.edited, now, time_left)


def cause(
    state: TurnState,
    wait: CallWait,
    now: datetime,
    *,
    is_over: bool,
    taken: frozenset[str] | set[str] = frozenset(),
) -> Woken | None:
    """Return the end of a wait; None if nothing ends it.

    Args:
        state: The state of the turn.
        wait: The wait.
        now: The current time.
        is_over: Whether its time is over.
        taken: The ids of events that end other waits.
    """
    waited_s = round((now - wait.since).total_seconds(), 3)
    key = _key_of(wait.key)
    open_call = state.open_step.find(key.call) if key else None
    if open_call is not None and open_call.job is not None:
        return jobs.cause(open_call.job, wait, waited_s, is_over=is_over)
    event = event_keys.event_for(state, wait, taken) if wait.event else None
    if event is not None:
        return Woken(
            key=wait.key,
            by="refused" if event.refusal else "event",
            waited_s=waited_s,
            event_id=event.id,
            event=event.name if event.key else "",
            event_key=event.key,
            reason=event.refusal,
        )
    if is_over:
        return Woken(key=wait.key, by="time", waited_s=waited_s)
    if state.inbox.unread:
        return Woken(key=wait.key, by="message", waited_s=waited_s)
    return None


def ends_with(state: TurnState, end: Woken, now: datetime) -> tuple[Woken, ...]:
    """Return the end of a wait, with the ends of the others that the same event by key ends."""
    if not end.event_key:
        return (end,)
    others = (wait for wait in open_waits(state) if wait.key != end.key)
    ends = (cause(state, wait, now, is_over=False) for wait in others)
    same = (end.event_id, end.event, end.event_key)
    return (
        end,
        *(each for each in ends if each and (each.event_id, each.event, each.event_key) == same),
    )


def _planned(
    pinned: PinnedWait, key: ToolKey, call: ToolCall, now: datetime, time_left: timedelta | None
) -> CallWait:
    """Return the wait that a call asks for.

    Raises:
        ValueError: Its arguments are not valid, or it is too long.
    """
    arguments = _arguments(call)
    note = _line(arguments, "note")
    event = _line(arguments, "event") if pinned.action == "wait_for" else ""
    event_key = event_keys.key_in(arguments) if pinned.has_keys else ""
    longest = timedelta(seconds=pinned.longest_s)
    period = (
        _timeout(arguments, longest, time_left)
        if pinned.action == "wait_for"
        else _period(arguments, longest, now)
    )
    if time_left is not None and period > time_left:
        raise ValueError(
            f"{period_in_words(period)} is longer than the {period_in_words(time_left)} that are"
            " left of the time of the turn; wait for less, or finish with what you have"
        )
    return CallWait(
        key=str(key),
        note=note,
        since=now,
        until=now + period,
        event=event,
        event_key=event_key,
    )


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = from_json(call.arguments or "{}")
    except ValueError:
        raise ValueError("its arguments are no JSON") from None
    if not isinstance(arguments, dict):
        raise ValueError("its arguments are no object")
    return arguments


def _line(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} is missing, or no text")
    if len(value) > limits.NOTE_CHARACTERS:
        raise ValueError(f"{name} has more than {limits.NOTE_CHARACTERS} characters")
    return clean(value)


def _timeout(
    arguments: dict[str, Any], longest: timedelta, time_left: timedelta | None
) -> timedelta:
    if arguments.get("timeout") is not None:
        return _seconds(arguments, "timeout", longest)
    return longest if time_left is None else min(longest, time_left)


def _period(arguments: dict[str, Any], longest: timedelta, now: datetime) -> timedelta:
    has_seconds, has_until = (arguments.get(name) is not None for name in ("seconds", "until"))
    if has_seconds == has_until:
        raise ValueError("give either seconds or until")
    if has_seconds:
        return _seconds(arguments, "seconds", longest)
    period = _moment(arguments["until"]) - now
    if period <= timedelta():
        raise ValueError(f"until is in the past: it is {in_words(now)}")
    return _within(period.total_seconds(), longest)


def _moment(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
        if moment.utcoffset() is not None:
            return moment.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError("until is no date with a time zone, such as 2030-12-01T18:00:00Z")


def _seconds(arguments: dict[str, Any], name: str, longest: timedelta) -> timedelta:
    value = arguments[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError(f"{name} is no number")
    if value <= 0:
        raise ValueError(f"{name} is not more than 0")
    return _within(value, longest)


def _within(seconds: float, longest: timedelta) -> timedelta:
    if seconds > longest.total_seconds():
        raise ValueError(f"the longest wait is {period_in_words(longest)}; wait more than once")
    return timedelta(milliseconds=math.ceil(seconds * 1000))


def check_event(state: TurnState, event: TurnEvent, by: str | None) -> None:
    """Refuse an event that is not valid, does not fit, or that the turn cannot wait for.

    Raises:
        InvalidRequestError: Its id, its name or its sender is not valid, or the agent has no tool
            that waits for an event.
        TooLargeError: It is too large, or too many events are kept, or are too large together.
    """
    values = {"id": event.id, "name": event.name, "by": by}
    types = {
        "id": validation.MessageId,
        "name": validation.EventName,
        "by": validation.By | None,
    }
    validation.check("the event", values, types, InvalidRequestError)
    check_body(event.body)
    if state.agent is not None and not waits_for_events(state.agent):
        raise InvalidRequestError(
            f"agent {state.agent.name} has no tool that waits for an event; give it"
            " toolboxes=[perdure.toolboxes.waiting()]"
        )
    kept = [kept for kept in state.events if kept.id != event.id and not kept.key]
    if len(kept) >= limits.KEPT_EVENTS:
        raise TooLargeError(
            f"{len(kept)} events to the turn wait to be waited for, which is the most; send this"
            " one again later",
            context={"events": len(kept), "limit": limits.KEPT_EVENTS},
        )
    bytes_ = sum(size(kept.body) for kept in kept) + size(event.body)
    if bytes_ > limits.KEPT_EVENTS_BYTES:
        raise TooLargeError(
            f"the events that the turn keeps would be {bytes_} bytes, more than"
            f" {limits.KEPT_EVENTS_BYTES}; send this one again later",
            context={"bytes": bytes_, "limit": limits.KEPT_EVENTS_BYTES},
        )


def json_body(body: JsonValue) -> str:
    """Return the body of an event as JSON text; empty for None.

    Raises:
        InvalidRequestError: It is no JSON value.
        TooLargeError: It is too large.
    """
    if body is None:
        return ""
    try:
        text = to_json(body, inf_nan_mode="constants").decode()
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body of the event is no JSON value: {error}") from None
    check_body(text)
    return text


def check_body(body: str) -> None:
    """Refuse the body of an event that is too large.

    Raises:
        TooLargeError: It is.
    """
    if (bytes_ := size(body)) > limits.EVENT_BYTES:
        raise TooLargeError(
            f"the body of the event is {bytes_} bytes of JSON, more than {limits.EVENT_BYTES}; send"
            " less, or give the agent a tool that reads the rest",
            context={"bytes": bytes_, "limit": limits.EVENT_BYTES},
        )


def emitted(state: TurnState, event: TurnEvent) -> TurnState:
    """Return the state with another event, unless it has an event of that id."""
    if event.key:
        return event_keys.emitted(state, event)
    if any(kept.id == event.id and not kept.key for kept in state.events):
        return state
    return replace(state, events=(*state.events, event))
