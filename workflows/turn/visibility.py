"""The memo and the search attributes of a turn, set when it begins, waits, continues and ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from temporalio import workflow

from perdure import limits
from perdure.temporal import search_attributes, start_request
from perdure.temporal.names import MEMO, MEMO_WAIT
from perdure.text import clip
from perdure.turn.facts import WaitBegan, WaitEnded
from perdure.turn.state import TurnState
from perdure.turn.waiting import PROVIDER
from perdure.turn.wire import Summary
from perdure.values.approvals import PendingApproval
from perdure.values.states import State
from perdure.values.tasks import headline

_FOUND_EARLY = "search-attributes-without-an-agent"
"""Turns that ended before their agent was known did not set search attributes until 2026-11."""


def begin(state: TurnState) -> None:
    """Set what search attributes lack once the agent is known.

    These are the version of the agent, and all of them for a turn that was started without them,
    such as one started by Temporal's own command line.
    """
    if state.agent is None or not state.agent.indexed or state.request is None:
        return
    updates = search_attributes.made_up_for(
        workflow.info().typed_search_attributes,
        state.request.agent,
        state.request.labels,
        state.request.subject,
    )
    version = state.agent.version.started
    if version:
        updates = [item for item in updates if item.key != search_attributes.LABELS]
        request = state.request
        updates += search_attributes.of_version(version, request.labels, request.subject)
    if updates:
        workflow.upsert_search_attributes(updates)


def begin_wait(state: TurnState, waits: WaitBegan) -> WaitBegan:
    """Record a wait in the memo and the search attributes.

    The memo is in history, so long arguments are clipped; an approval is bound to their digest.
    Returns the wait as recorded.
    """
    shown = replace(
        waits,
        reason=clip(waits.reason, limits.MEMO_BYTES // 4),
        pending=tuple(map(_told, waits.pending)),
    )
    pending = (
        {
            "pending": [
                approval.model_dump(mode="json", exclude=_left_out(approval))
                for approval in shown.pending
            ]
        }
        if shown.pending
        else {}
    )
    moments = {
        name: moment.isoformat()
        for name, moment in (("since", shown.since), ("until", shown.until))
        if moment
    }
    more: dict[str, Any] = {
        "attempt": shown.attempt,
        "limit": shown.limit,
        "calls": [wait.model_dump(mode="json", exclude_defaults=True) for wait in shown.calls],
    }
    more = {name: value for name, value in more.items() if value}
    workflow.upsert_memo(
        {MEMO_WAIT: {"kind": shown.kind, "reason": shown.reason, **pending, **moments, **more}}
    )
    is_known = state.waiting is not None and state.waiting.kind == shown.kind == PROVIDER
    goes_on = is_known or (bool(shown.calls) and _shows_calls(state))
    if _has_attributes(state) and not goes_on:
        workflow.upsert_search_attributes(
            search_attributes.in_state(search_attributes.state_of(shown.kind))
        )
    return shown


def end_wait(state: TurnState, ended: WaitEnded) -> None:
    """Record the end of a wait."""
    workflow.upsert_memo({MEMO_WAIT: {"expired": list(ended.expired)} if ended.expired else None})
    if _has_attributes(state):
        workflow.upsert_search_attributes(search_attributes.in_state(State.RUNNING))


def end_call_waits(before: TurnState, after: TurnState, ended: WaitEnded) -> None:
    """Record that waits of calls are over, with the next of those that go on."""
    waiting = after.waiting
    goes_on: dict[str, Any] = {}
    if waiting is not None and waiting.until is not None and waiting.since is not None:
        moments = {"since": waiting.since.isoformat(), "until": waiting.until.isoformat()}
        goes_on = {"kind": waiting.kind, "reason": waiting.reason, **moments}
    woken = [end.model_dump(mode="json", exclude_defaults=True) for end in ended.woken]
    workflow.upsert_memo({MEMO_WAIT: {**goes_on, "woken": woken}})
    if waiting is None and _shows_calls(before) and _has_attributes(after):
        workflow.upsert_search_attributes(search_attributes.in_state(State.RUNNING))


def _shows_calls(state: TurnState) -> bool:
    """Return whether the attributes show that calls of the turn wait."""
    return state.waiting is not None and state.waiting.is_of_calls


def _told(pending: PendingApproval) -> PendingApproval:
    clipped = {
        "arguments": clip(pending.arguments, limits.MEMO_BYTES // 2),
        "reason": clip(pending.reason, limits.MEMO_BYTES // 4),
    }
    return pending.model_copy(update=clipped)


def _left_out(pending: PendingApproval) -> set[str]:
    return {"token"} if pending.reason else {"token", "reason"}


def end(state: TurnState, summary: Summary, reason: str = "") -> None:
    """Record the end of a turn for listings, in under 2 KB."""
    memo: dict[str, Any] = {
        "outcome": summary.outcome.value,
        "agent": summary.agent,
        "last_agent": summary.last_agent,
        "task": headline(state.request.task) if state.request else "",
        "output": clip(state.output if summary.output else "", limits.MEMO_BYTES // 4),
        "error": summary.error.code if summary.error else "",
        "reason": clip(reason, limits.MEMO_BYTES // 8),
        "steps": summary.steps,
        "tokens": summary.usage.input_tokens + summary.usage.output_tokens,
        "cost": f"${summary.spent.usd:f}" if summary.is_priced else "",
        "digest": summary.digest,
        "unsettled": summary.unsettled,
        "version": state.agent.version.started if state.agent else "",
        "began": workflow.memo_value(MEMO, {}).get("began", ""),
        **start_request.forked_from(state.request),
    }
    waits = {MEMO_WAIT: None} if state.waiting is not None and state.waiting.is_told else {}
    workflow.upsert_memo({MEMO: {name: value for name, value in memo.items() if value}, **waits})
    if _is_indexed(state):
        spent = summary.spent.usd if summary.is_priced else None
        workflow.upsert_search_attributes(
            search_attributes.at_end(summary.outcome, steps=summary.steps, spent=spent)
        )


def _is_indexed(state: TurnState) -> bool:
    """Return whether the end of a turn is recorded in search attributes."""
    if state.agent is not None:
        return state.agent.indexed
    return _has_attributes(state) and workflow.patched(_FOUND_EARLY)


def _has_attributes(state: TurnState) -> bool:
    """Return whether the namespace has the search attributes.

    Before the agent is known, attributes set at the start prove it.
    """
    if state.agent is not None:
        return state.agent.indexed
    return workflow.info().typed_search_attributes.get(search_attributes.AGENT) is not None
