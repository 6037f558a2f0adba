"""One turn for each way to end: every class of error, each from its real cause, and every outcome.

All of them run concurrently, once; then their worker stops, and another client reads what is
stored.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowExecutionStatus as Status

from perdure import (
    Agent,
    AgentReport,
    Budget,
    InputGuardrail,
    Outcome,
    Registry,
    Timeout,
    TurnInfo,
    errors,
    limits,
    tool,
)
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient, Turn, TurnEntry
from perdure.errors import PerdureError
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.testing.scripted import Reply
from perdure.turn.facts import Scheduled
from perdure.values.answers import ModelAnswer
from perdure.values.reports import StopReason
from perdure.worker import AgentWorker

from ..conftest import RecordingClient, eventually
from .spending import PRICE, SOON_S, ended, look, queue, until

AT_ONCE = {"retry_after_s": 0.01}


@tool
async def linger() -> str:
    """Take long."""
    await asyncio.sleep(60)
    return "late"


Act = Callable[[AgentClient, Turn], Awaitable[object]]


async def cancel(_: AgentClient, turn: Turn) -> None:
    await until(turn, Scheduled, times=2)
    await turn.cancel("enough")


async def terminate(client: AgentClient, turn: Turn) -> None:
    await until(turn, Scheduled, times=2)
    await client.temporal.get_workflow_handle(turn.id).terminate(reason="enough")


@dataclass(frozen=True)
class Case:
    """How a turn reaches its end, and the expected end.

    `error` is None for a successful turn; `steps` is None if the number depends on the machine.
    """

    error: type[PerdureError] | None
    replies: tuple[Reply, ...] = ()
    agent: dict[str, Any] = field(default_factory=dict)
    start: dict[str, Any] = field(default_factory=dict)
    act: Act | None = None
    outcome: Outcome = Outcome.FAILED
    status: Status = Status.FAILED
    steps: int | None = 0


class Resolver:
    def resolve(self, name: str) -> Any:
        raise OSError(f"no such file: {name}")


def twice(error: PerdureError) -> tuple[Reply, Reply]:
    """A transient error that persists."""
    return fails(error), fails(error)


def same(times: int) -> tuple[Reply, ...]:
    return (calls(call("look")),) * times


CASES = {
    "budget": Case(
        errors.TurnBudgetExceededError,
        same(1),
        start={"budget": Budget(model_calls=1)},
        outcome=Outcome.BUDGET_EXHAUSTED,
        steps=1,
    ),
    "iterations": Case(
        errors.MaxIterationsError,
        same(1),
        {"max_iterations": 1},
        outcome=Outcome.MAX_ITERATIONS,
        steps=1,
    ),
    "boundary": Case(
        errors.AutonomyBoundaryError,
        same(1),
        start={"allowed_tools": ["linger"]},
        outcome=Outcome.BOUNDARY,
    ),
    "loop": Case(errors.LoopDetectedError, same(3), outcome=Outcome.LOOP, steps=3),
    "cancelled": Case(
        errors.TurnCancelledError,
        (calls(call("linger")),),
        act=cancel,
        outcome=Outcome.CANCELLED,
        status=Status.CANCELED,
        steps=1,
    ),
    "terminated": Case(
        errors.TurnTerminatedError,
        (calls(call("linger")),),
        act=terminate,
        outcome=Outcome.TERMINATED,
        status=Status.TERMINATED,
    ),
    "timeout": Case(
        errors.TurnTimeoutError,
        (calls(call("linger")),),
        agent={"middleware": [Timeout(timedelta(seconds=1.5))]},
        outcome=Outcome.TIMED_OUT,
        steps=None,
    ),
    "output": Case(
        errors.OutputInvalidError,
        (says("no number"),) * (1 + limits.OUTPUT_REASKS),
        {"output": int},
        steps=1 + limits.OUTPUT_REASKS,
    ),
    "guardrail": Case(errors.GuardrailError, (), {"middleware": [InputGuardrail(lambda _: "no")]}),
    "resolver": Case(
        errors.ToolResolverError, (), {"resolver": Resolver()}, {"allowed_tools": ["gone"]}
    ),
    "too_large": Case(errors.TooLargeError, (says("x" * 2_000_000),)),
    "mismatch": Case(
        errors.TranscriptMismatchError, twice(errors.TranscriptMismatchError(context=AT_ONCE))
    ),
    "llm": Case(errors.LLMError, (*same(1), fails(errors.LLMError("odd"))), steps=1),
    "auth": Case(
        errors.LLMAuthError,
        (*same(1), fails(errors.LLMAuthError("bad key", context={"status": 401}))),
        steps=1,
    ),
    "rate": Case(
        errors.LLMRateLimitError,
        twice(errors.LLMRateLimitError("slow down", context={"status": 429, **AT_ONCE})),
    ),
    "slow": Case(
        errors.LLMTimeoutError, twice(errors.LLMTimeoutError("too slow", context=AT_ONCE))
    ),
    "request": Case(
        errors.LLMInvalidRequestError,
        (fails(errors.LLMInvalidRequestError("no such field", context={"status": 400})),),
    ),
    "down": Case(
        errors.LLMUnavailableError,
        twice(errors.LLMUnavailableError("down", context={"status": 503, **AT_ONCE})),
    ),
    "chain": Case(
        errors.ModelChainExhaustedError,
        (*same(1), *twice(errors.LLMInvalidRequestError("no such model", context={"status": 404}))),
        agent={"model": ["scripted:chain", "vllm:chain"]},
        steps=1,
    ),
    "refused": Case(
        errors.LLMRefusedError,
        (*same(1), says("I would rather not", stop=StopReason.REFUSED)),
        steps=2,
    ),
    "unpriced": Case(
        errors.UnknownPriceError, (), {"model": "vllm:unpriced"}, {"budget": Budget(usd="5")}
    ),
    "provider": Case(PerdureError, (*same(1), fails(PerdureError("a bug"))), steps=1),
    "nobody": Case(errors.UnknownAgentError),
    "broken_factory": Case(errors.ConfigurationError),
    "two_tools": Case(errors.DuplicateToolError),
    "no_request": Case(errors.InvalidRequestError),
    "completed": Case(
        None,
        (*same(1), says("done" * 250_000)),
        outcome=Outcome.COMPLETED,
        status=Status.COMPLETED,
        steps=2,
    ),
    "truncated": Case(
        None,
        (says("do", stop=StopReason.MAX_TOKENS),),
        outcome=Outcome.TRUNCATED,
        status=Status.COMPLETED,
        steps=1,
    ),
    "finished": Case(
        None,
        (*same(1), says("done")),
        agent={"on_exhausted": "finish"},
        start={"budget": Budget(model_calls=2)},
        outcome=Outcome.BUDGET_EXHAUSTED,
        status=Status.COMPLETED,
        steps=2,
    ),
    "timed_out": Case(
        errors.TurnTimeoutError,
        (calls(call("linger")),),
        outcome=Outcome.TIMED_OUT,
        status=Status.TIMED_OUT,
    ),
}

FROM_OUTSIDE = {"terminated", "timed_out"}
"""Cases that end without running any of their code."""
INSIDE = CASES.keys() - FROM_OUTSIDE

ELSEWHERE = {
    errors.TurnNotFoundError: (
        "there is no turn",
        "integration/turns/test_start_find_wait_cancel.py::test_unknown_id_is_not_found",
    ),
    errors.TurnExistsError: (
        "the turn of that id goes on",
        "integration/turns/test_start_find_wait_cancel.py::test_same_id_is_an_error_where_that_was_asked_for",
    ),
    errors.TurnConflictError: (
        "the turn of that id goes on",
        "integration/turns/test_start_find_wait_cancel.py::test_same_id_for_other_work_is_a_conflict",
    ),
    errors.ServerUnreachableError: (
        "no server, no turn",
        "integration/turns/test_start_find_wait_cancel.py::test_closed_port_is_an_unreachable_server",
    ),
    errors.TooManyRequestsError: (
        "the turn goes on",
        "integration/turns/test_floods_of_updates.py::test_update_that_is_not_sent_in_time_is_told_so",
    ),
    errors.WebhookRefusedError: (
        "the turn has a URL that no worker allows",
        "integration/gateway/test_webhooks.py::test_url_that_no_worker_allows_is_refused_before_any_model_call",
    ),
    errors.ApprovalConflictError: (
        "told to who decides",
        "integration/tools/test_approvals.py::test_approval_is_bound_to_arguments_and_used_once",
    ),
    errors.LLMBudgetExceededError: (
        "becomes the cause of a TurnBudgetExceededError",
        "integration/turns/test_errors.py::test_spent_credit_of_a_provider_is_a_spent_budget",
    ),
    errors.TurnOverError: (
        "the turn is over",
        "integration/turns/test_steering.py::test_bad_messages_are_refused_and_change_nothing",
    ),
    errors.ScheduleNotFoundError: (
        "there is no schedule",
        "integration/schedules/test_schedules.py::test_deleted_schedule_leaves_its_turns_alone",
    ),
    errors.ScheduleConflictError: (
        "the schedule stays as it is",
        (
            "integration/schedules/test_schedules.py"
            "::test_same_definition_is_the_same_schedule_and_another_one_is_a_conflict"
        ),
    ),
    errors.ScheduleBusyError: (
        "the turn of the schedule goes on",
        (
            "integration/schedules/test_schedules.py"
            "::test_running_turn_is_left_alone_queued_behind_cancelled_or_joined"
        ),
    ),
    errors.BatchNotFoundError: (
        "there is no batch",
        "integration/batches/test_batches.py::test_broken_tasks_are_named_and_nothing_is_started",
    ),
    errors.BatchConflictError: (
        "the batch of that id goes on",
        "integration/batches/test_batches.py::test_each_task_runs_once_and_no_more_at_once_than_allowed",
    ),
    errors.TaskNotStartedError: (
        "no turn was started",
        "integration/batches/test_batches.py::test_failure_stops_a_batch_and_the_rest_is_run_again",
    ),
    errors.SessionNotFoundError: (
        "there is no session",
        "integration/sessions/test_sessions.py::test_closed_unknown_and_wrong_sessions_are_refused",
    ),
    errors.SessionClosedError: (
        "the session is over",
        "integration/sessions/test_sessions.py::test_closed_unknown_and_wrong_sessions_are_refused",
    ),
    errors.SessionBusyError: (
        "the turn of the session goes on",
        "integration/sessions/test_sessions.py::test_busy_session_refuses_what_it_is_told_to_refuse",
    ),
    errors.StaleCursorError: (
        "told to who reads events",
        "integration/reading/test_event_json.py::test_cursor_that_is_not_of_this_run_is_refused",
    ),
    errors.UnknownVersionError: (
        "the turn waits for a worker that knows it",
        "integration/turns/test_carried_state.py::test_state_of_a_later_version_waits_for_its_release",
    ),
    errors.DecryptionError: (
        "ends a turn whose worker lacks the key, before it begins",
        (
            "integration/encryption/test_encryption.py"
            "::test_worker_without_the_key_ends_a_new_turn_at_once"
        ),
    ),
    errors.ErasedError: (
        "ends a turn that begins after the erasure, and is told to who reads",
        "integration/encryption/test_erasure.py::test_turn_that_begins_after_the_erasure_ends_at_once",
    ),
    errors.KeyStoreError: (
        "the turn waits until the store is back",
        (
            "integration/encryption/test_erasure.py"
            "::test_worker_goes_on_with_its_keys_while_the_store_is_away"
        ),
    ),
    errors.PayloadDecodeError: (
        "told to who lacks the codec",
        (
            "integration/encryption/test_encrypted_turns.py"
            "::test_turn_that_cannot_be_decoded_costs_a_list_one_line"
        ),
    ),
}
"""Classes that no turn ends with: why, and the test that raises them."""


def broken_factory(_: TurnInfo) -> Agent[Any]:
    raise OSError("no database")


def two_tools(_: TurnInfo) -> Agent[Any]:
    return Agent(name="two_tools", model="scripted:two_tools", tools=[look, look])


class ByModel:
    """The provider of all models; each name has its script."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return await self._scripts[request.model].complete(request)

    def __init__(self) -> None:
        self._scripts = {name: ScriptedModel(*case.replies) for name, case in CASES.items()}

    async def close(self) -> None:
        """Nothing to close."""


def everything() -> AgentWorker:
    """An agent for each case; the model with the name of the case drives it."""
    made = {"nobody", "no_request", "broken_factory", "two_tools"}
    named = {
        name: {"model": f"scripted:{name}", "tools": [look, linger], **case.agent}
        for name, case in CASES.items()
        if name not in made
    }
    agents = [Agent(name=name, **fields) for name, fields in named.items()]
    model = ByModel()
    return AgentWorker(
        Registry([*agents, broken_factory, two_tools]),
        providers={"scripted": model, "vllm": model},
        prices={"scripted:*": PRICE},
    )


async def begin(client: RecordingClient, name: str, case: Case) -> Turn:
    """Start the turn of a case; two cases need Temporal's own client."""
    ways: dict[str, dict[str, Any]] = {
        "no_request": {"arg": "garbage"},
        "timed_out": {"execution_timeout": timedelta(seconds=8)},
    }
    if name not in ways:
        turn = await client.start(name, "go", id=f"{client.task_queue}-{name}", **case.start)
    else:
        given = {"arg": {"agent": name, "task": "go"}, **ways[name]}
        handle = await client.temporal.start_workflow(
            "AgentTurn", id=f"{client.task_queue}-{name}", task_queue=client.task_queue, **given
        )
        turn = client.turn(handle.id)
    if case.act:
        await case.act(client, turn)
    return turn


@dataclass(frozen=True)
class End:
    """The end of a case's turn, as its caller got it, as it was read later, in Temporal, in the
    list and in the log; and the size of its last event.
    """

    told: AgentReport | PerdureError
    read: AgentReport | PerdureError
    status: Status | None
    memo: dict[str, Any]
    entry: TurnEntry
    records: list[dict[str, Any]]
    closing_bytes: int

    @property
    def report(self) -> AgentReport:
        """The report, returned or from the error."""
        found = self.read.report if isinstance(self.read, PerdureError) else self.read
        assert found is not None
        return found


async def play(address: str, cases: Iterable[str]) -> dict[str, End]:
    """Run these cases, and return their ends."""
    async with queue(address) as work:
        async with work.worker(everything()), listening() as records:
            turns = await asyncio.gather(*(begin(work.client, name, CASES[name]) for name in cases))
            told = await asyncio.gather(*map(ended, turns))
            say = {turn.id for name, turn in zip(cases, turns, strict=True) if name in INSIDE}
            await eventually(lambda: say <= closed(records), "every turn has said its end")
        later = await AgentClient.connect(address)
        entries = await _entries(later, {turn.id for turn in turns})
        by_turn = {
            turn.id: [record for record in records if record["task"] == turn.id] for turn in turns
        }
        return {
            name: await _end(later, turn, end, entries, by_turn)
            for name, turn, end in zip(cases, turns, told, strict=True)
        }


def closed(records: Iterable[dict[str, Any]]) -> set[str]:
    """The turns whose end is recorded: that is soon after the server has accepted it."""
    return {record["task"] for record in records if record["event"] == "turn_completed"}


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[list[dict[str, Any]]]:
    """The worker's log records about turns, until the end of the block."""
    heard: list[dict[str, Any]] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            # every record of this logger has `perdure`
            heard.append(record.perdure)  # type: ignore[attr-defined]

    logger, ear = logging.getLogger("perdure.turns"), Ear()
    level = logger.level
    logger.addHandler(ear)
    logger.setLevel(logging.INFO)
    try:
        yield heard
    finally:
        logger.removeHandler(ear)
        logger.setLevel(level)


async def _entries(client: AgentClient, ids: set[str]) -> dict[str, TurnEntry]:
    """The list's entries of ended turns, which Temporal writes asynchronously."""
    async with asyncio.timeout(SOON_S):
        while True:
            found: dict[str, TurnEntry] = {}
            async for entry in client.turns(state="ended"):
                found |= {entry.id: entry} if entry.id in ids else {}
                if len(found) == len(ids):
                    return found
            await asyncio.sleep(0.1)


async def _end(
    later: AgentClient,
    turn: Turn,
    told: AgentReport | PerdureError,
    entries: dict[str, TurnEntry],
    records: dict[str, list[dict[str, Any]]],
) -> End:
    handle = later.temporal.get_workflow_handle(turn.id)
    history, description = await handle.fetch_history(), await handle.describe()
    memo = (await description.memo()).get("perdure", {})
    read, closing_bytes = await ended(later.turn(turn.id)), history.events[-1].ByteSize()
    return End(
        told, read, description.status, memo, entries[turn.id], records[turn.id], closing_bytes
    )
