"""The crash tests' parts: a provider whose answers are all different, worker processes, and records
that are kept outside of the product.

The product's own report is never the only evidence. The provider logs every request before it
answers; every tool call is in the journal before it takes effect; Temporal's history has all
attempts. Each test compares the three.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest
from temporalio.client import Client

from perdure import AgentReport, Outcome
from perdure.activities.provider import ModelRequest
from perdure.activities.providers.openai_chat import body_of
from perdure.clients import Turn
from perdure.clients.reading.events import Event
from perdure.temporal.connect import connect
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.testing.stub_provider import LoggedRequest, StubCall, StubProvider, StubReply, read_log
from perdure.turn.facts import (
    CallFailed,
    HookEnded,
    ModelAnswered,
    Recorded,
    Scheduled,
    ToolLost,
    ToolReturned,
)
from perdure.turn.keys import AgentKey, Key, PollKey, parse_key
from perdure.values.messages import UNKNOWN_NOTE

from ...conftest import RecordingClient, check_history, eventually, fold_history
from ..losses import timeless
from .app import AGENT

ROOT = Path(__file__).parents[3]
LOST = "contact with the process that ran it was lost; whether it took effect is unknown"
"""The error result of a tool that only reads, and whose worker was lost."""
UNKNOWN = f"{LOST}{UNKNOWN_NOTE}"
"""The error result of any other tool whose worker was lost."""

GONE_S = 120.0
"""How long a turn may take to get over a kill; measured are 6 to 9 s."""

Process = asyncio.subprocess.Process
Message = dict[str, Any]


def asks(*calls: StubCall, delay_s: float = 0) -> StubReply:
    """A reply that asks for tools."""
    return {"calls": calls, "delay_s": delay_s}


def use(name: str, what: str, **arguments: object) -> StubCall:
    """A call of a tool of the app."""
    return {"name": name, "arguments": {"what": what, **arguments}}


def says(text: str, delay_s: float = 0) -> StubReply:
    """A reply without calls."""
    return {"text": text, "delay_s": delay_s}


class Improviser(StubProvider):
    """The stub provider with answers that are all different: each text ends with the number of the
    request.

    As with a real model, the answers of two attempts differ, so a transcript that mixes them is
    detected.
    """

    def answer(
        self, body: dict[str, Any], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """The stub's reply with its number."""
        status, more, content = super().answer(body, headers)
        reply = json.loads(content)
        if status == 200:
            message = reply["choices"][0]["message"]
            message["content"] = f"{message['content'] or 'working'} #{self.number(body)}"
        return status, more, json.dumps(reply).encode()

    def number(self, body: dict[str, Any]) -> int:
        """The number of this request, starting at 1."""
        return 1 + next(index for index, request in enumerate(self.requests) if request is body)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the journal: a tool call that has started."""

    what: str
    attempt: int
    key: str
    pid: int


class Story:
    """A provider, a client and workers on one task queue; all of them are stopped at the end of the
    block.

    Attributes:
        app: The location of the workers' app.
    """

    def __init__(
        self,
        address: str,
        folder: Path,
        replies: tuple[StubReply, ...] = (),
        *,
        stub: StubProvider | None = None,
        supervised: bool = False,
    ) -> None:
        self.stub = stub or Improviser(replies, folder / "requests.jsonl")
        self.workers: list[Process] = []
        self.app = "tests.support.e2e.app:make"
        self._address = address
        self._folder = folder
        self._supervised = supervised
        self._log = folder / "requests.jsonl"
        self._journal = folder / "journal.jsonl"
        self._queue = f"e2e-{secrets.token_hex(6)}"
        self._client: RecordingClient | None = None
        self._deaths = Counter[int]()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._stack.enter_context(self.stub)
        self._client = await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self.workers:
            await kill_all(worker)
        await self._stack.aclose()

    @property
    def client(self) -> RecordingClient:
        """The caller's client."""
        assert self._client is not None
        return self._client

    @property
    def temporal(self) -> Client:
        """Temporal's own client."""
        return self.client.temporal

    async def connect(self) -> RecordingClient:
        """A new client, as in another process of the caller."""
        return RecordingClient(await connect(self._address), self._queue)

    async def start(self, task: str = "go", **options: Any) -> Turn:
        """Start a turn."""
        return await self.client.start(AGENT, task, **options)

    async def worker(self, app: str = "", **environment: str) -> Process:
        """Start a worker process."""
        ours = {
            "E2E_PROVIDER": self.stub.base_url,
            "E2E_JOURNAL": str(self._journal),
            "PERDURE_TASK_QUEUE": self._queue,
            "PERDURE_SUPERVISOR": str(int(self._supervised)),
            "NO_PROXY": "*",
        }
        with (self._folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "perdure", "worker", app or self.app),
                *("--address", self._address),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, **ours, **environment},
                start_new_session=True,
            )
        self.workers.append(process)
        return process

    async def replace(self, worker: Process, app: str = "", **environment: str) -> Process:
        """`kill -9` of a worker. Its supervisor starts another one; without one, this does.

        Returns:
            The process to kill next.
        """
        if self._supervised:
            await eventually(lambda: bool(supervised(worker.pid)), "a process runs")
        await kill(worker)
        return await self.following(worker, app, **environment)

    async def following(self, worker: Process, app: str = "", **environment: str) -> Process:
        """The process to kill next, after one that has died. A supervisor starts it by itself;
        without one, this does once the worker has ended.
        """
        if self._supervised:
            self._deaths[worker.pid] += 1
            place, deaths = self.workers.index(worker), self._deaths[worker.pid]
            await eventually(
                lambda: self.said(place).count("started again") >= deaths,
                "a process is started again",
                within_s=GONE_S,
            )
            return worker
        await worker.wait()
        return await self.worker(app, **environment)

    @contextlib.asynccontextmanager
    async def kept_running(self) -> AsyncIterator[None]:
        """A worker that is started again whenever it dies: by its supervisor, or without one by
        this, as systemd or Kubernetes does.
        """

        async def keep() -> None:
            while True:
                await (await self.worker()).wait()

        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})

    def said(self, worker: int = 0) -> str:
        """The log of a worker process."""
        return (self._folder / f"worker-{worker}.log").read_text(encoding="utf-8")

    def journal(self) -> list[Entry]:
        """Every tool call that started, in order."""
        lines = (
            self._journal.read_text(encoding="utf-8").splitlines(keepends=True)
            if self._journal.exists()
            else []
        )
        return [Entry(**json.loads(line)) for line in lines if line.endswith("\n")]

    def log(self) -> list[LoggedRequest]:
        """Every request that the provider received, in order."""
        return read_log(self._log)

    def ran(self) -> list[tuple[str, int]]:
        """The tool calls in the journal, each with its attempt."""
        return [(entry.what, entry.attempt) for entry in self.journal()]

    def keys(self, what: str) -> set[str]:
        """The idempotency keys in the journal."""
        return {entry.key for entry in self.journal() if entry.what == what}

    def requests(self) -> dict[int, int]:
        """The number of requests to the provider, by step."""
        return dict(
            sorted(Counter(request.assistant_messages + 1 for request in self.log()).items())
        )

    async def asked(self, times: int) -> None:
        """Wait until the provider has received this number of requests."""
        await eventually(
            lambda: len(self.log()) >= times, f"request {times} arrives", within_s=GONE_S
        )

    async def begun(self, what: str, attempt: int = 1) -> None:
        """Wait until a tool call has started."""
        await eventually(
            lambda: (what, attempt) in self.ran(),
            f"{what} begins, attempt {attempt}",
            within_s=GONE_S,
        )

    async def calls_begun(self, count: int) -> None:
        """Wait until this number of requests and tool calls have started."""
        await eventually(
            lambda: len(self.log()) + len(self.journal()) >= count,
            f"{count} calls have begun",
            within_s=GONE_S,
        )

    async def report(self, turn: Turn) -> AgentReport:
        """The report of a turn that must complete, checked against all the records."""
        async with asyncio.timeout(GONE_S):
            report = await turn.result()
        assert report.outcome is Outcome.COMPLETED
        await check_history(self.temporal, turn.id, await turn.first_run())
        assert_recorded_once(await self.facts(turn))
        await self.check_requests()
        return report

    async def check_requests(self) -> None:
        """Every request contains what Temporal has recorded of one of the turns, and nothing
        else.
        """
        requests = list(self.stub.requests)
        histories = [
            self.temporal.get_workflow_handle(turn, run_id=run).fetch_history()
            for turn, run in self.client.recorded
        ]
        states = [await fold_history(self.temporal, await history) for history in histories]
        assert_sent_as_recorded(requests, [state.transcript.messages for state in states])

    async def facts(self, turn: Turn) -> list[Recorded]:
        """The facts in history, as a later reader sees them."""
        reader = HistoryReader(self.temporal.data_converter)
        events = (await self.client.history(turn)).events
        return [fact for event in events for fact in await reader.facts(event)]

    async def attempts(self, turn: Turn) -> dict[str, int]:
        """The number of attempts in history, by step and call.

        Without that of the agent, which is looked up within the workflow task: a starved machine
        takes too long for that, and then looks it up in an activity.
        """
        scheduled = [fact.key for fact in await self.facts(turn) if isinstance(fact, Scheduled)]
        keys = [key for key in scheduled if not isinstance(key, AgentKey)]
        return dict(Counter(str(replace(key, attempt=1)) for key in keys))


Tell = Callable[..., Awaitable[Story]]


@pytest.fixture
def has_supervisor() -> bool:
    """Whether the workers of a story have supervisors."""
    return False


WITH_AND_WITHOUT = (
    pytest.param(
        True,
        id="supervised",
        marks=pytest.mark.skipif(
            sys.platform != "linux", reason="its processes are found in /proc"
        ),
    ),
    pytest.param(False, id="alone", marks=pytest.mark.slow),
)
"""The rows of a test of kills: the process that is killed has a supervisor, or it has none."""


@pytest.fixture(params=WITH_AND_WITHOUT)
def with_and_without_supervisor(request: pytest.FixtureRequest) -> bool:
    """Each test of a module that imports this as `has_supervisor` runs twice: the process that is
    killed is the child of a supervisor, as users run it, or the worker itself.
    """
    return bool(request.param)


@pytest.fixture
async def tell(perdure_server: str, tmp_path: Path, has_supervisor: bool) -> AsyncIterator[Tell]:
    """Start a test with these replies of the provider; all of its processes end with the test."""
    async with AsyncExitStack() as stack:

        async def begin(*replies: StubReply, address: str = perdure_server) -> Story:
            story = Story(address, tmp_path, replies, supervised=has_supervisor)
            return await stack.enter_async_context(story)

        yield begin


def supervised(supervisor: int) -> list[int]:
    """The worker processes of a supervisor, on Linux; none if the process is a worker itself."""
    try:
        below = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        return [int(child) for child in below if b"--supervised" in _command(int(child))]
    except OSError:
        return []


def _command(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()


async def kill(worker: Process) -> None:
    """`kill -9` of a worker, and wait until it has ended; of the child, if it has a supervisor."""
    under = supervised(worker.pid)
    if not under:
        await kill_all(worker)
    for child in under:
        os.kill(child, signal.SIGKILL)
    await eventually(lambda: not set(under) & set(supervised(worker.pid)), "they end")


async def kill_all(worker: Process) -> None:
    """`kill -9` of a worker, and first of its supervisor, as where the machine is lost."""
    if worker.returncode is None:
        under = supervised(worker.pid)
        worker.send_signal(signal.SIGKILL)
        for child in under:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
    await worker.wait()


async def recorded(turn: Turn, key: str) -> Event:
    """Wait until Temporal has recorded the end of this activity, whether it succeeded or failed."""
    async with asyncio.timeout(GONE_S):
        async for event in turn.events():
            if isinstance(
                event.fact, ModelAnswered | ToolReturned | ToolLost | CallFailed
            ) and event.fact.key == parse_key(key):
                return event
    raise AssertionError(f"the turn is over, without {key}")


def assert_sent_as_recorded(
    requests: list[dict[str, Any]], transcripts: list[tuple[Any, ...]]
) -> None:
    """Every request is a prefix of a transcript that Temporal has, word for word, up to the model's
    turn.
    """
    known = [
        body_of(ModelRequest(model="", system="Do as told.", messages=messages))["messages"]
        for messages in transcripts
    ]
    for number, request in enumerate(requests, 1):
        sent = request["messages"]
        assert_paired(sent)
        length = len(sent)
        follows = [
            whole
            for whole in known
            if whole[:length] == sent
            and (length == len(whole) or whole[length]["role"] == "assistant")
        ]
        assert follows, f"request {number} holds a transcript that history does not have: {sent}"


def assert_recorded_once(facts: list[Recorded]) -> None:
    """A call has another attempt only if the previous one was lost, never if its end is known."""
    lost: set[Key] = set()
    for fact in facts:
        if isinstance(fact, Scheduled) and fact.key.attempt > 1:
            assert replace(fact.key, attempt=fact.key.attempt - 1) in lost
        if isinstance(fact, ToolLost) or (isinstance(fact, CallFailed | HookEnded) and fact.lost):
            lost.add(fact.key)
    scheduled = [
        fact.key
        for fact in facts
        # the polls of a job go on after a question, under the same key
        if isinstance(fact, Scheduled) and not isinstance(fact.key, PollKey)
    ]
    assert len(scheduled) == len(set(scheduled))


def assert_paired(messages: list[Message]) -> None:
    """The calls of every assistant message are followed by exactly their results, in order, before
    any other message.
    """
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert waiting[:1] == [message["tool_call_id"]]
            waiting.pop(0)
            continue
        assert not waiting, f"no result for {waiting}"
        waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert not waiting, f"no result for {waiting}"


def results(report: AgentReport) -> list[str]:
    """The result of each tool call as the model received it, in order, without times of sending."""
    return [timeless(result.content) for step in report.steps for result in step.results]
