"""The waits of a turn: for its beginning, for people and for providers.

They are durable, and visible to readers of the turn. Those for people, for the beginning and for a
provider's limit do not count towards its time.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow

from perdure import limits
from perdure.text import one_line
from perdure.turn import outages, questions
from perdure.turn.approvals import Asked
from perdure.turn.facts import WaitBegan, WaitEnded
from perdure.turn.fallback import Choice
from perdure.turn.keys import ModelKey
from perdure.turn.waiting import DELAY, PROVIDER
from perdure.turn.wire import Summary
from perdure.values.approvals import PendingApproval
from perdure.workflows import ancestors
from perdure.workflows.turn import log_events, visibility, webhooks
from perdure.workflows.turn.turn_context import Board

_REASON_CHARACTERS = 200
_VERBS = {
    ("approval",): "approve or deny",
    ("outcome",): "say what became of",
    ("question", "form"): "answer",
}


class RunIsFull(Exception):  # noqa: N818 - not an error
    """The turn has to go on in a new run while it waits."""


async def for_delay(board: Board, until: datetime) -> None:
    """Wait until the turn begins, which is not in its time."""
    delay = until - workflow.now()
    if delay <= timedelta():
        return
    began = WaitBegan(DELAY, "the turn was started with a delay", until=until)
    async with _waiting(board, began, []):
        await workflow.sleep(delay, summary="the turn begins")


async def for_budget(board: Board, reason: str) -> None:
    """Wait for an addition to the budget."""
    budget = board.state.accounts.ledger.budget
    async with _waiting(board, WaitBegan("budget", reason), []):
        await _until(board, lambda: board.state.accounts.ledger.budget != budget)


async def for_iterations(board: Board, reason: str) -> None:
    """Wait until a person allows more iterations."""
    more = board.state.accounts.more_iterations
    async with _waiting(board, WaitBegan("iterations", reason), []):
        await _until(
            board,
            lambda: board.state.accounts.more_iterations != more or board.state.inbox.grants,
        )


async def for_resume(board: Board, reason: str) -> None:
    """Wait until a person resumes the turn or adds to the budget."""
    pardoned, budget = board.state.attempts.pardoned, board.state.accounts.ledger.budget
    async with _waiting(board, WaitBegan("resume", reason), []):
        await _until(
            board,
            lambda: (
                board.state.attempts.pardoned != pardoned
                or board.state.accounts.ledger.budget != budget
            ),
        )


async def for_provider(board: Board, choice: Choice, key: ModelKey) -> bool:
    """Wait before a provider is asked again; whether it still has to be.

    The wait counts towards the turn's time.
    """
    pardoned = board.state.attempts.pardoned
    if outages.is_told(choice.number, choice.delay):
        until = workflow.now() + choice.delay
        reason = board.state.attempts.failures[-1].error.message
        began = WaitBegan(PROVIDER, reason, (), board.failing_since, until, key.attempt)
        is_first = board.state.waiting is None or board.state.waiting.kind != PROVIDER
        if is_first:
            log_events.wait_began(board.state, PROVIDER)
        shown = visibility.begin_wait(board.state, began)
        board.note(shown)
        board.show("waits for provider")
        if is_first:
            await webhooks.tell_of_wait(board.state, shown)
    try:
        await workflow.wait_condition(
            lambda: board.state.attempts.pardoned != pardoned,
            timeout=choice.delay,
            timeout_summary=f"before {choice.target.model} is asked again",
        )
    except TimeoutError:
        return True
    return False


async def for_limit(board: Board, choice: Choice, key: ModelKey) -> None:
    """Wait until a limit of the provider is over, or a person resumes the turn.

    The wait does not count towards the turn's time. Earlier failures do not count afterwards.
    """
    pardoned = board.state.attempts.pardoned
    reason = board.state.attempts.failures[-1].error.message
    until = workflow.now() + choice.delay
    began = WaitBegan(PROVIDER, reason, (), board.failing_since, until, key.attempt, limit=True)
    async with _waiting(board, began, []):
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: board.state.attempts.pardoned != pardoned,
                timeout=choice.delay,
                timeout_summary=f"the limit of {choice.target.model} is over",
            )


def provider_is_back(board: Board) -> None:
    """End any wait for a provider after a model has answered."""
    if board.state.waiting is not None and board.state.waiting.kind == PROVIDER:
        ended = WaitEnded()
        visibility.end_wait(board.state, ended)
        board.note(ended)


def end_of_calls(board: Board) -> None:
    """End what is shown of waits of calls that are not waited for any more."""
    if board.state.waiting is not None and board.state.waiting.is_of_calls:
        ended = WaitEnded()
        visibility.end_wait(board.state, ended)
        board.note(ended)


def end_of_turn(board: Board, summary: Summary, reason: str = "") -> None:
    """Record the end of a turn for listings, and with it the end of a wait that is told.

    The turn may have updates to answer after that, and its readers know of both ends.
    """
    waiting = board.state.waiting
    visibility.end(board.state, summary, reason)
    if waiting is not None and waiting.is_told:
        board.note(WaitEnded())


async def for_approval(board: Board, calls: Asked) -> None:
    """Wait until people have decided about each of these calls, or its time has expired.

    The wait also ends once they are to be asked something else, by the server of a call.
    """
    pending = calls.pending(workflow.now(), limits.APPROVAL_EXPIRY)
    if board.clock.is_taken_over and board.state.waiting is not None:
        pending = board.state.waiting.pending  # of the run before: the time continues
    known = {(approval.call_id, approval.digest) for approval in pending}
    late: set[str] = set()
    expired: list[str] = []

    def is_over() -> bool:
        """Return whether no call is open, or another question is; expired calls count as denied."""
        open_places = board.state.asked.places
        is_new = not known.issuperset(open_places)
        return is_new or all(call_id in late for call_id, _ in open_places)

    asked = {approval.call_id: _why(board, approval) for approval in pending}
    why = "".join(f"; {call_id}: {reason}" for call_id, reason in asked.items() if reason)
    async with _waiting(
        board,
        WaitBegan("approval", f"somebody has to {_wanted(pending)}{why}", pending),
        expired,
    ):
        for approval in sorted(pending, key=lambda each: each.expires_at):
            time_left = max(approval.expires_at - workflow.now(), timedelta())
            try:
                await _until(
                    board,
                    is_over,
                    timeout=time_left,
                    timeout_summary=f"the approval of {approval.tool} expires",
                )
            except TimeoutError:
                late.add(approval.call_id)
        expired += [call_id for call_id, _ in board.state.asked.places if call_id in late]


def _why(board: Board, approval: PendingApproval) -> str:
    """Return why a person is asked about a call, or what the person is asked, in one line."""
    question = questions.question_of(board.state, approval.call_id)
    text = question.text if question else approval.reason
    return one_line(text, _REASON_CHARACTERS)


def _wanted(pending: Sequence[PendingApproval]) -> str:
    """Return what people have to do about these calls."""
    parts: list[str] = []
    for kinds, verb in _VERBS.items():
        names = ", ".join(
            f"{approval.tool} ({approval.call_id})"
            for approval in pending
            if approval.kind in kinds
        )
        parts += [f"{verb} {names}"] if names else []
    return ", and to ".join(parts)


async def end_taken_over(board: Board) -> None:
    """End a wait that the run before began, and whose end came before this run could wait."""
    if board.clock.is_taken_over:
        await _end(board, [])


async def _until(board: Board, is_over: Callable[[], bool], **options: Any) -> None:
    """Wait until a condition holds.

    Raises:
        RunIsFull: The turn has to go on in a new run before that. The wait is not over then.
        TimeoutError: The timeout in `options` is over.
    """
    await workflow.wait_condition(lambda: is_over() or board.is_full, **options)
    if not is_over():
        raise RunIsFull


@contextlib.asynccontextmanager
async def _waiting(board: Board, waits: WaitBegan, expired: list[str]) -> AsyncIterator[None]:
    """Stop the clock for a wait.

    A wait that the run before began goes on without another record.
    """
    if not board.clock.is_taken_over:
        log_events.wait_began(board.state, waits.kind)
        board.clock.begin_wait()
        shown = visibility.begin_wait(board.state, waits)
        board.note(shown)
        board.show(f"waits for {waits.kind}")
        await ancestors.tell_waits(board.state, waits.kind, waits.reason)
        if shown.kind != DELAY:
            await webhooks.tell_of_wait(board.state, shown)
    else:
        board.show(f"waits for {waits.kind}")
    yield
    await _end(board, expired)


async def _end(board: Board, expired: list[str]) -> None:
    board.clock.end_wait()
    ended = WaitEnded(tuple(expired))
    visibility.end_wait(board.state, ended)
    before = board.state
    board.note(ended)
    log_events.answered_without_a_run(before, board.state, refused="expired")
    await ancestors.tell_goes_on(board.state)
