"""The parts of the table of bad inputs: a row, the possible outcomes, and the bench that tries a
row.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

from perdure import Agent, AgentReport, MCPServer, Registry, tool
from perdure.activities.provider import Provider
from perdure.clients import Turn
from perdure.errors import PerdureError
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.testing.runtime import _ByAgent
from perdure.testing.stub_provider import StubReply
from perdure.turn.outages import ATTEMPTS
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime
from ..loopback import KEY, VENDORS, Vendor, raw_server
from ..spending import Held
from .odd_bodies import Bodies
from .odd_values import started
from .weigher import weigh

APIS: list[Vendor] = [parameters.values[0] for parameters in VENDORS]  # type: ignore[misc]

ENVIRONMENT = {"NOTES_KEY": KEY, "ODD_EMPTY": "", "ODD_LINE": KEY + "\n", "ODD_LETTER": KEY + "é"}
"""Additional variables of a bench's worker: a key, and three values invalid in a header."""

End = AgentReport | PerdureError | int
"""How an input ended: the report of a turn, an error, or a status of HTTP."""

Source = Literal[
    "provider",
    "caller",
    "start by JSON",
    "model",
    "tool",
    "MCP server",
    "skill folder",
    "person",
    "operator",
    "environment",
]


Retried = Literal["", "a second attempt", "its retries"]
"""The retries of a model before the turn fails: none, one, or those of the `ModelRetryPolicy`."""


@dataclass(frozen=True)
class Fails:
    """The turn ends with this error, which has its report, at once or after a retry."""

    error: type[PerdureError]
    after: Retried = ""

    def fits(self, end: End) -> bool:
        if not isinstance(end, PerdureError) or type(end) is not self.error or end.report is None:
            return False
        return self.after == _retried(end)

    def __str__(self) -> str:
        return f"the turn fails{f' after {self.after}' if self.after else ''}: `{self.error.code}`"


def _retried(error: PerdureError) -> Retried:
    if ATTEMPTS in error.context:
        return "its retries"
    return "a second attempt" if error.transient else ""


@dataclass(frozen=True)
class Refused:
    """The caller gets one of these errors at once, and no turn starts, or the existing turn
    continues.
    """

    error: type[PerdureError]
    other: type[PerdureError] | None = None

    def fits(self, end: End) -> bool:
        return (
            isinstance(end, PerdureError)
            and type(end) in (self.error, self.other)
            and end.report is None
        )

    def __str__(self) -> str:
        return f"the caller is refused: `{self.error.code}`" + (
            f" or `{self.other.code}`" if self.other else ""
        )


@dataclass(frozen=True)
class Told:
    """The model gets an error result with this text, and the turn continues to its answer."""

    words: str

    def fits(self, end: End) -> bool:
        if not isinstance(end, AgentReport):
            return False
        results = [result for step in end.steps for result in step.results]
        return any(result.is_error and self.words in result.content for result in results)

    def __str__(self) -> str:
        return f"the model reads “{self.words}”"


@dataclass(frozen=True)
class Answers:
    """The turn ends with its answer.

    `words` describe the outcome, and `holds` is a condition for it.
    """

    words: str
    holds: Callable[[AgentReport], bool]

    def fits(self, end: End) -> bool:
        return isinstance(end, AgentReport) and self.holds(end)

    def __str__(self) -> str:
        return f"the turn answers: {self.words}"


@dataclass(frozen=True)
class Responds:
    """The worker answers with this HTTP status."""

    status: int

    def fits(self, end: End) -> bool:
        return end == self.status

    def __str__(self) -> str:
        return f"the worker responds with status {self.status}"


Outcome = Fails | Refused | Told | Answers | Responds


@dataclass(frozen=True)
class BadInput:
    """One row of the table.

    Attributes:
        number: Its number, which stays the same when other rows change.
        source: Where the input comes from.
        words: A description of the input.
        outcome: The outcome of every try.
        tried: Tries it, in one or several ways, and returns the end of each.
    """

    number: int
    source: Source
    words: str
    outcome: Outcome
    tried: Callable[[Bench], Awaitable[Sequence[End]]]


async def end_of(asked: Awaitable[Any]) -> End:
    """The report or the error of a request; for a turn, its end."""
    try:
        got = await asked
        report = await got.result() if isinstance(got, Turn) else got
    except PerdureError as error:
        return error
    assert isinstance(report, AgentReport), (
        f"{report!r} was given, and neither a report nor an error"
    )
    return report


async def all_of(*asked: Coroutine[Any, Any, End]) -> list[End]:
    """Several ends, tried concurrently."""
    return list(await asyncio.gather(*asked))


class Bench:
    """A worker that tries bad inputs, with a stub provider and fake servers.

    Attributes:
        client: Starts turns on the worker.
        folder: An empty folder for each row that wants one.
        live: Whether answers are streamed.
    """

    def __init__(self, client: RecordingClient, edges: Edges, folder: Path, *, live: bool) -> None:
        self.client = client
        self.live = live
        self._edges = edges
        self._folder = folder
        self._numbers = itertools.count()

    def folder(self) -> Path:
        """An empty folder."""
        made = self._folder / f"row-{next(self._numbers)}"
        made.mkdir()
        return made

    def agent(self, model: Provider, **fields: Any) -> str:
        """The name of a new agent with its own model."""
        name = f"agent-{next(self._numbers)}"
        self._edges.models[name] = model
        self._edges.registry.add(Agent(**{"name": name, "model": f"scripted:{name}", **fields}))
        return name

    async def turn(
        self, model: Provider, start: dict[str, Any] | None = None, **fields: Any
    ) -> End:
        """The end of a new agent's turn."""
        name = self.agent(model, **fields)
        return await end_of(
            self.client.start(**{"agent": name, "task": "go", "live": self.live, **(start or {})})
        )

    async def asked(self, *replies: Any, **fields: Any) -> End:
        """The end of a turn whose model gives these replies, and then an answer."""
        return await self.turn(ScriptedModel(*replies, says("done")), **fields)

    async def served(self, vendor: Vendor, reply: StubReply, *, live: bool = False) -> End:
        """The end of a turn whose provider gives this reply to its first request, in this API."""
        task = f"task-{next(self._numbers)}"
        self._edges.replies[task] = reply
        return await end_of(self.client.start(vendor.name, task, live=live or self.live))

    async def sent(
        self, vendor: Vendor, payload: bytes, then: bytes = b"", every_s: float = 0, **fields: Any
    ) -> End:
        """The end of a turn whose provider sends these bytes."""
        with raw_server(payload, then=then, every_s=every_s) as address:
            return await self.turn(vendor.make(address, None), **fields)

    async def started(self, *args: object) -> End:
        """The end of a turn started with these arguments by Temporal's own client."""
        return await end_of(started(self.client, args))


@dataclass
class Edges:
    """The fakes around a worker, which rows add to."""

    registry: Registry = field(default_factory=Registry)
    models: dict[str, Provider] = field(default_factory=dict)
    replies: dict[str, StubReply] = field(default_factory=dict)


@contextlib.asynccontextmanager
async def bench(runtime: Runtime, folder: Path, *, live: bool = False) -> AsyncIterator[Bench]:
    """A bench whose worker runs while the block does.

    No workflow task may have failed at its end.
    """
    edges = Edges()
    with pytest.MonkeyPatch.context() as environment, Bodies(edges.replies) as stub:
        for name, value in ENVIRONMENT.items():
            environment.setenv(name, value)
        apis = {vendor.name: vendor.make(stub.anthropic_url, None) for vendor in APIS}
        for name in apis:
            edges.registry.add(Agent(name=name, model=f"{name}:m", tools=[weigh]))
        edges.registry.add(Agent(name="clerk", model="scripted:clerk", instructions="Answer."))
        edges.registry.add(
            Agent(
                name="served",
                model="scripted:served",
                toolboxes=[MCPServer.stdio("none", ["true"])],
            )
        )
        worker = AgentWorker(edges.registry, providers={**apis, "scripted": _ByAgent(edges.models)})
        async with runtime(worker) as client, honest_turns(client, edges):
            yield Bench(client, edges, folder, live=live)
        for model in edges.models.values():
            await model.close()


@contextlib.asynccontextmanager
async def honest_turns(client: RecordingClient, edges: Edges) -> AsyncIterator[None]:
    """Two ordinary turns: one is in a model call and one in a tool while the block runs.

    Neither is affected.
    """
    gate = threading.Event()

    @tool(read_only=True, timeout=timedelta(minutes=2))
    def rest() -> str:
        """Rest until the others are done."""
        gate.wait()
        return "rested"

    thinks, works = Held(says("thought")), ScriptedModel(calls(call("rest")), says("worked"))
    edges.models["honest"] = ByTask({"think": thinks, "work": works})
    edges.registry.add(Agent(name="honest", model="scripted:honest", tools=[rest]))
    turns = [await client.start("honest", task) for task in ("think", "work")]
    try:
        yield
    finally:
        thinks.let_go.set()
        gate.set()
    thought, worked = [await turn.result() for turn in turns]
    assert (thought.output, thought.model_calls, thinks.call_count) == ("thought", 1, 1)
    assert (worked.output, worked.model_calls, works.call_count) == ("worked", 2, 2)
    assert [result.content for result in worked.steps[0].results] == ["rested"]
