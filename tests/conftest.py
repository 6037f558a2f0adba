"""Fixtures for tests on a real server: a runtime that checks each of its turns when it closes.

The history of each turn is folded as a reader would fold it, and compared with the summary of the
workflow (Y12). At the end of the session a fresh process with an empty cache replays a share of the
histories, or all of them in thorough runs (Y5). `PERDURE_KEEP_HISTORIES` names a folder where all
of them are kept, under the names of their tests.
"""

import asyncio
import contextlib
import gc
import io
import itertools
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker._workflow import _WorkflowWorker

from perdure import Agent, AgentReport, ModelRetryPolicy, Outcome, Registry, limits
from perdure.clients import AgentClient, Turn
from perdure.clients.reading.feed import Feed, Feeds
from perdure.errors import PerdureError
from perdure.temporal.connect import CORE_LOGGER
from perdure.temporal.data_converter import chosen
from perdure.temporal.histories.runs import run_after
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.testing import FakeIssuer, ScriptedModel
from perdure.text import clip
from perdure.turn import carry, effects, unsettled
from perdure.turn.facts import TurnContinued
from perdure.turn.fold import fold
from perdure.turn.ledger import in_words
from perdure.turn.state import TurnState
from perdure.turn.wire import Summary
from perdure.values import reports
from perdure.values.effects import within
from perdure.worker import AgentWorker

from .support.rewriting import rewrite_asserts
from .support.thorough import every, examples

if TYPE_CHECKING:
    from .support.mcp.guarded_calendar import Calendar

Runtime = Callable[..., AbstractAsyncContextManager["RecordingClient"]]

os.environ.setdefault("PERDURE_HEARTBEAT_TOLERANCE_S", "2.5")  # lost workers are waited for

HISTORIES = "PERDURE_KEEP_HISTORIES"
_SHARE = "PERDURE_SHARE_OF_HISTORIES"
"""The temporary folder of the histories that are replayed, if not all are kept; workers of xdist
find it by this."""
_NO_FAILURES = {
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_PAUSE_REQUESTED_BEFORE_TASK_STARTED,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
}
"""No failure: an event came in while the turn was ending, or more than 2 MB of results came in
meanwhile, so the server has the workflow look again; or an operator paused or reset the turn; or a
supervisor gave a task of a dead worker back."""
_BUSY = "[TMPRL1101]"
"""How Temporal's message begins where a thread did not get the processor for two seconds.

The task is done again. Here, only processes of workers have so little patience.
"""
_PATIENCE_S = 60.0
hypothesis.settings.register_profile(
    "perdure",
    hypothesis.settings(max_examples=examples(100)),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
# the duration of an example depends on the load of the machine
hypothesis.settings.load_profile("perdure")
_scratch = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the session: Ctrl-C for child processes, a frugal Temporal server, and a folder for
    histories that xdist workers find too.
    """
    # a background job of a shell ignores SIGINT; child processes would inherit that
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # a higher GC percentage saves the server an eighth of its CPU time
    os.environ.setdefault("GOGC", "400")
    if not {HISTORIES, _SHARE} & os.environ.keys():
        config.stash[_scratch] = tempfile.TemporaryDirectory(prefix="perdure-histories-")
        os.environ[_SHARE] = config.stash[_scratch].name


def pytest_sessionstart() -> None:
    """Give workflow threads more than Temporal's two seconds to get the processor.

    A thread that is interrupted on a busy machine may leave a workflow that cannot be evicted, and
    then its worker never stops.
    """
    make = _WorkflowWorker.__init__

    def patient(worker: Any, *arguments: Any, **options: Any) -> None:
        make(worker, *arguments, **options)
        assert worker._deadlock_timeout_seconds == 2
        worker._deadlock_timeout_seconds = _PATIENCE_S

    _WorkflowWorker.__init__ = patient  # type: ignore[assignment]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """Rewrite the asserts of the test modules once, instead of in each worker."""
    if not sys.dont_write_bytecode:
        rewrite_asserts(config, len(specs))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without garbage collections: nearly all that is made stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave the thousands of collected tests out of the garbage collection.

    A full collection of them takes so long on a busy machine that Temporal takes the workflow task
    in which it falls for a deadlock.
    """
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deselect most rows of a long table except in `make test-slow`: `@pytest.mark.table(3)` runs
    three rows that are spread over the table.
    """
    tables: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("table"):
            tables[item.nodeid.partition("[")[0]].append(item)
    for rows in tables.values():
        mark = rows[0].get_closest_marker("table")
        tried = (
            {index * len(rows) // mark.args[0] for index in range(mark.args[0])} if mark else set()
        )
        for index, item in enumerate(rows):
            if index not in tried:
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Say what the tasks of a test waited for, if it took too long."""
    try:
        yield
    except pytest.fail.Exception as error:
        if str(error).startswith("Timeout"):
            item.add_report_section("call", "tasks", _tasks())
        raise


def _tasks() -> str:
    """The stacks of all tasks of this process that are not done."""
    written = io.StringIO()
    for task in gc.get_objects():
        if isinstance(task, asyncio.Task) and not task.done():
            print(task, file=written)
            task.print_stack(file=written)
    return written.getvalue()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Replay the recorded histories in a fresh process."""
    kept = os.environ.get(HISTORIES)
    folder = kept or os.environ[_SHARE]
    if hasattr(session.config, "workerinput") or not any(Path(folder).glob("*.json")):
        return
    script = Path(__file__).parent / "replay/fresh.py"
    done = subprocess.run(
        [sys.executable, str(script), folder, str(every() if kept else 1)],
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"\n{done.stdout.strip() or done.stderr.strip()}")
    if done.returncode:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove temporary files."""
    if _scratch in config.stash:
        config.stash[_scratch].cleanup()
        os.environ.pop(_SHARE, None)


ONCE_MORE = ModelRetryPolicy(
    initial_interval=timedelta(milliseconds=10),
    backoff_coefficient=10**6,
    maximum_interval=timedelta(hours=3),
    maximum_elapsed=timedelta(hours=1.5),
)
"""A model that fails is asked once more, soon: the second pause would last two hours at least."""


def impatient(app: AgentWorker | Registry | Agent[Any]) -> AgentWorker:
    """A worker that gives up soon instead of retrying for half an hour."""
    worker = app if isinstance(app, AgentWorker) else AgentWorker(app)
    return (
        replace(worker, model_retry=ONCE_MORE)
        if worker.model_retry == ModelRetryPolicy()
        else worker
    )


def first_of(error: PerdureError) -> str:
    """The message of an error, without the number of attempts."""
    return error.message.partition("; it was tried ")[0]


class RecordingFeeds(Feeds):
    """Remembers the first run of every turn that a handle has asked about."""

    def __init__(self, client: Client, turns: set[tuple[str, str]]) -> None:
        super().__init__(client)
        self._turns = turns

    def of(self, turn_id: str, runs: Sequence[str]) -> Feed:
        self._turns.add((turn_id, runs[0]))
        return super().of(turn_id, runs)


class RecordingClient(AgentClient):
    """A client that remembers the turns that it started."""

    def __init__(self, client: Client, task_queue: str) -> None:
        super().__init__(client, task_queue)
        self.recorded: set[tuple[str, str]] = set()
        self._feeds = RecordingFeeds(client, self.recorded)

    @property
    def task_queue(self) -> str:
        """The task queue of this test's worker."""
        return self._task_queue

    async def history(self, turn: Turn) -> WorkflowHistory:
        """The history of a turn, in its first run."""
        return await self.history_of(turn.id, await turn.first_run())

    async def history_of(self, turn_id: str, run_id: str) -> WorkflowHistory:
        """The history of one run of a turn."""
        return await self._client.get_workflow_handle(turn_id, run_id=run_id).fetch_history()


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The log without that of the SDK's core, which may tell of a worker of an earlier test."""

    def is_of_this_test(record: logging.LogRecord) -> bool:
        return record.name != CORE_LOGGER

    caplog.handler.addFilter(is_of_this_test)
    yield caplog
    caplog.handler.removeFilter(is_of_this_test)


@pytest.fixture
def runtime(perdure_runtime: Any) -> Runtime:
    """Agents on the session's server; every turn is checked at the end."""

    @contextlib.asynccontextmanager
    async def running(app: Any, **kwargs: Any) -> AsyncIterator[RecordingClient]:
        async with perdure_runtime(impatient(app), **kwargs) as client:
            recording = RecordingClient(client._client, client._task_queue)
            try:
                yield recording
            finally:
                for turn_id, run_id in recording.recorded:
                    await check_history(recording.temporal, turn_id, run_id)

    return running


Run = Callable[..., Any]


@pytest.fixture
def issuer() -> Iterator[FakeIssuer]:
    """The authorization server of the calendar."""
    with FakeIssuer("/realms/test", algorithm="ES256") as running:
        yield running


@pytest.fixture
def calendar(issuer: FakeIssuer) -> Iterator["Calendar"]:
    """An MCP server that needs a token of a person."""
    pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")
    from .support.mcp.guarded_calendar import calendar_of

    with calendar_of(issuer) as running:
        yield running


@pytest.fixture
def run(runtime: Runtime) -> Run:
    """Runs one turn of an agent with these fields on a scripted model."""

    async def run_one(
        model: ScriptedModel,
        task: str = "2 + 3?",
        *,
        deps: Any = None,
        start: Any = None,
        **fields: Any,
    ) -> AgentReport:
        agent = Agent(
            **{"name": "adder", "model": "scripted:adder", "instructions": "Add.", **fields}
        )
        async with runtime(agent, model=model, deps=deps) as client:
            return await client.run(agent, task, **(start or {}))

    return run_one


async def check_history(client: Client, turn_id: str, run_id: str | None) -> None:
    """Check that a reader's fold agrees with the workflow and that no workflow task failed, in this
    turn and in its children.

    The history is kept to be replayed.
    """
    history = await client.get_workflow_handle(turn_id, run_id=run_id).fetch_history()
    state = await fold_history(client, history)
    assert_no_task_failed(history)
    if state.ended is not None and state.ended.summary is not None:
        assert told_by(state.ended.summary) == told_by_fold(state)
        assert state.in_flight or not state.accounts.ledger.held, (
            f"{turn_id} is over and still reserves {dict(state.accounts.ledger.held)}"
        )
    if (
        state.request
        and state.ended
        and (state.ended.summary or state.ended.outcome == Outcome.CANCELLED)
    ):
        memo = await (
            await client.get_workflow_handle(turn_id, run_id=run_id).describe()
        ).memo_value("perdure")
        cost = in_words("usd", state.charged.usd) if state.is_priced else ""
        tokens = state.accounts.usage.input_tokens + state.accounts.usage.output_tokens
        folded = (state.ended.outcome, state.transcript.digest, state.step_count, tokens, cost)
        assert (
            memo["outcome"],
            memo.get("digest", ""),
            memo.get("steps", 0),
            memo.get("tokens", 0),
            memo.get("cost", ""),
        ) == folded
    for child in state.children:
        await check_history(client, child.turn_id, None)
    if run_after(history.events[-1]):
        await check_next_run(client, state, history)
    converter = client.data_converter
    if converter.external_storage or keys_of(converter) != keys_of(chosen()):
        return  # the process that replays histories has what the environment names
    keep(history, turn_id, run_id or history.run_id)


def keys_of(converter: DataConverter) -> object:
    """The names of the keys of a converter that encrypts; of another codec, the codec."""
    return getattr(converter.payload_codec, "key_names", converter.payload_codec)


_counted = itertools.count()


def keep(history: WorkflowHistory, turn_id: str, run_id: str) -> None:
    """Write a history for its replay: all of them if they are kept, otherwise the first and every
    nth of this process, because encoding one takes as long as folding it.
    """
    folder = os.environ.get(HISTORIES)
    if not folder and next(_counted) % every():
        return
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0].rpartition("::")[2]
    name = "".join(
        letter if letter.isascii() and letter.isalnum() else "-" for letter in f"{test}-{turn_id}"
    )
    path = Path(folder or os.environ[_SHARE]) / f"{name[:150]}-{run_id}.json"
    path.write_text(history.to_json(), encoding="utf-8")


def assert_no_task_failed(history: WorkflowHistory) -> None:
    """No workflow task failed, except for reasons that are not the workflow's."""
    failures = [
        event.workflow_task_failed_event_attributes
        for event in history.events
        if event.HasField("workflow_task_failed_event_attributes")
    ]
    failed = [
        failure
        for failure in failures
        if failure.cause not in _NO_FAILURES and _BUSY not in failure.failure.message
    ]
    assert not failed, f"workflow tasks of {history.workflow_id} failed: {failed}"


async def check_next_run(client: Client, state: TurnState, history: WorkflowHistory) -> None:
    """The next run of a turn took over what a reader finds in this one; it is checked as well."""
    turn_id, run_id = history.workflow_id, run_after(history.events[-1])
    following = await client.get_workflow_handle(turn_id, run_id=run_id).fetch_history()
    [began] = await HistoryReader(client.data_converter).facts(following.events[0])
    assert isinstance(began, TurnContinued)
    assert began.continuation.continues.digest == carry.state_of(state).digest
    await check_history(client, turn_id, run_id)


def told_by(summary: Summary) -> dict[str, Any]:
    """The summary of a workflow, without its error and its time."""
    return {
        name: getattr(summary, name)
        for name in Summary.model_fields
        if name not in ("error", "duration_ms", "outcome", "risk")
    }


def told_by_fold(state: TurnState) -> dict[str, Any]:
    """The same summary, computed by a fold of the history."""
    return {
        "agent": state.request.agent if state.request else "",
        "last_agent": state.other_agent,
        "output": clip(state.output, limits.SUMMARY_BYTES // 2),
        "steps": state.step_count,
        "model_calls": state.accounts.model_calls,
        "tool_calls": state.tool_calls,
        "usage": state.accounts.usage,
        "spent": state.charged,
        "is_priced": state.is_priced,
        "length": state.transcript.length,
        "digest": state.transcript.digest,
        "children": reports.bounded(
            [child.report for child in state.children], limits.SUMMARY_BYTES // 4
        ),
        "descendants": state.descendants,
        "effects": within(effects.gathered(state), limits.SUMMARY_BYTES // 4),
        "unsettled": unsettled.count(state),
    }


async def fold_history(client: Client, history: WorkflowHistory) -> TurnState:
    """The state that a reader folds from a history."""
    reader = HistoryReader(client.data_converter)
    state = TurnState()
    for event in history.events:
        state = fold(await reader.facts(event), state)
    return state


async def eventually(holds: Callable[[], bool], what: str, *, within_s: float = 60.0) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {within_s:g} s"
        await asyncio.sleep(0.02)
