"""Judges what runs: what fails again and again, what waits for nobody, what grows too long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from perdure.text import counted, in_units, one_line
from perdure.turn.waiting import CLIENT, PROVIDER
from perdure.values.moments import period_in_words
from perdure.worker.doctor.open_workflows import OpenWorkflow
from perdure.worker.setup_checks import Finding, State

_LOST_TASKS = 3
"""A single lost task is that of a lost worker, and another worker gets it."""
_FAILING_CALLS = 3
_LONG_EVENTS, _TOO_LONG_EVENTS = 20_480, 40_960
"""The server ends a workflow after 51,200 events. A turn goes on in a new run far earlier."""
_LONG_BYTES, _TOO_LONG_BYTES = 20 * 2**20, 40 * 2**20
"""The server ends a workflow after 50 MiB."""
_NAMED = 3
_REASON_CHARACTERS = 200

_WAITS: Mapping[str, str] = {
    "approval": "`perdure approvals` lists the calls that people decide about",
    "budget": "`perdure add-budget` lets it go on, `perdure cancel` ends it",
    "iterations": "`perdure add-budget --iterations` lets it go on, `perdure cancel` ends it",
    "resume": "`perdure resume` lets it go on, `perdure cancel` ends it",
    PROVIDER: "look at the provider of its model; `perdure resume` has it tried at once",
    CLIENT: "the client that started it has to send the result of its call, or cancel it",
}
"""What to do, by what a turn waits for. Timers, events and jobs may take as long as is said."""


def findings(
    workflows: Sequence[OpenWorkflow], now: datetime, longest_wait: timedelta
) -> Iterator[Finding]:
    """Yield what is wrong with these workflows, and one finding if nothing is.

    Args:
        workflows: What runs.
        now: The server's time.
        longest_wait: How long a turn may wait for a person, a provider, budget or an operator.
    """
    found = [
        *_failing_tasks(workflows),
        *_failing_calls(workflows),
        *_long_waits(workflows, now, longest_wait),
        *_long_histories(workflows),
        *_undecodable(workflows),
    ]
    yield from found
    if not found:
        yield Finding("open workflows", "ok", f"none of {len(workflows)} is stuck")


def _failing_tasks(workflows: Sequence[OpenWorkflow]) -> Iterator[Finding]:
    failing = [
        one
        for one in workflows
        if one.task_attempt >= _LOST_TASKS or (one.task_attempt > 1 and one.task_failure)
    ]
    yield from _several(
        "workflow tasks",
        "failed",
        failing,
        lambda one: (
            f"attempt {one.task_attempt}, {_short(one.task_failure) or 'no worker answered'}"
        ),
        "failing again and again",
        "the worker's log has the trace; deploy the code that its history was made with, or"
        " `perdure cancel`",
    )


def _failing_calls(workflows: Sequence[OpenWorkflow]) -> Iterator[Finding]:
    failing = [
        (one, call)
        for one in workflows
        for call in one.calls
        if call.attempt >= _FAILING_CALLS and call.failure
    ]
    reasons = {
        one.name: f"{call.name}, attempt {call.attempt}: {_short(call.failure)}"
        for one, call in failing
    }
    yield from _several(
        "calls",
        "warning",
        list(dict.fromkeys(one for one, _ in failing)),
        lambda one: reasons[one.name],
        "with a call that fails again and again",
        "mend what the message names; the call is tried again by itself",
    )


def _long_waits(
    workflows: Sequence[OpenWorkflow], now: datetime, longest: timedelta
) -> Iterator[Finding]:
    def waited(one: OpenWorkflow) -> timedelta:
        return now - (one.quiet_since or now)

    for kind, remedy in _WAITS.items():
        yield from _several(
            f"waits for {kind}",
            "warning",
            [one for one in workflows if one.waits_for == kind and waited(one) > longest],
            lambda one: period_in_words(waited(one)),
            f"waiting for longer than {period_in_words(longest)}",
            remedy,
        )


def _long_histories(workflows: Sequence[OpenWorkflow]) -> Iterator[Finding]:
    def is_over(one: OpenWorkflow, events: int, size: int) -> bool:
        return one.events > events or one.history_bytes > size

    too_long = [one for one in workflows if is_over(one, _TOO_LONG_EVENTS, _TOO_LONG_BYTES)]
    long_ = [one for one in workflows if is_over(one, _LONG_EVENTS, _LONG_BYTES)]
    yield from _several(
        "histories",
        "failed" if too_long else "warning",
        too_long or long_,
        lambda one: f"{counted(one.events, 'event')}, {in_units(one.history_bytes)}",
        "with a history near the server's limit of 51,200 events and 50 MiB",
        "what is in flight holds up its next run: `perdure show` tells what it waits for",
    )


def _undecodable(workflows: Sequence[OpenWorkflow]) -> Iterator[Finding]:
    yield from _several(
        "payloads",
        "failed",
        [one for one in workflows if one.undecodable and not one.is_erased],
        lambda one: _short(one.undecodable),
        "that cannot be decoded here",
        "set the data converter and the keys that its client and its worker have",
    )
    yield from _several(
        "erased subjects",
        "failed",
        [one for one in workflows if one.is_erased],
        lambda one: _short(one.undecodable),
        "that no process can decode any more",
        "`perdure erase` with their subject again ends them",
    )


def _several(
    subject: str,
    state: State,
    workflows: Sequence[OpenWorkflow],
    reason: Callable[[OpenWorkflow], str],
    trouble: str,
    remedy: str,
) -> Iterator[Finding]:
    """Yield one finding for all workflows with the same trouble; nothing if there are none."""
    if not workflows:
        return
    named = "; ".join(f"{one.name} ({reason(one)})" for one in workflows[:_NAMED])
    more = f"; {len(workflows) - _NAMED} more" if len(workflows) > _NAMED else ""
    yield Finding(
        subject, state, f"{counted(len(workflows), 'workflow')} {trouble}: {named}{more}", remedy
    )


def _short(text: str) -> str:
    return one_line(text, _REASON_CHARACTERS)
