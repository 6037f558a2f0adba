"""A provider that is down for a minute, and a deploy that changes a tool: `.venv-peers/bin/python
-m benchmarks.peers.interruptions`, ten minutes.

The same agent on Perdure and four others, each with the model client and the retries of the first
example in its documentation, calls the stub provider over HTTP. A turn needs three answers: a call
of the tool for Rome, one for Oslo, and the last one. Like a model, the stub reads the name of the
argument from the schema in the request.

`away`: after the first answer the provider refuses connections, or answers with status 503, for 60
s.

`deploy`: the process is killed, and started again with an argument of the tool renamed, one added
that has a default, or another description. It is killed in the second model call (`next call`), so
that the new code makes the tool call, or in the call for Oslo (`recorded call`), which the new code
gets with the old arguments.

A turn that gave up while the provider was down is continued as documented, and after a kill as well
if nothing happens by itself. No wait is longer than `LONGEST_S`. Arguments choose: names, and words
of cases, as in `interruptions dbos langgraph away`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowFailureError

from benchmarks.bench import Kind
from benchmarks.peers.processes import Told, telling
from benchmarks.peers.weather import TASK, VERSIONS
from perdure.testing.stub_provider import StubProvider, StubReply, said_in
from perdure.worker.dev.server import DevServer

AWAY_S, LONGEST_S, HELD_S = 60.0, 150.0, 600.0
CITIES = ("Rome", "Oslo")
NEXT, RECORDED = "next call", "recorded call"
KINDS = {
    "perdure": Kind(
        "perdure",
        "benchmarks.peers.weather_perdure",
        "AgentTurn",
        lambda task: {"agent": "weather", "task": task},
    ),
    "pydantic-ai": Kind("pydantic-ai", "benchmarks.peers.weather_pydantic_ai", "Weather"),
    "openai-agents": Kind("openai-agents", "benchmarks.peers.weather_openai_agents", "Weather"),
    "langgraph": Kind("langgraph", "benchmarks.peers.weather_langgraph", ""),
    "dbos": Kind("dbos", "benchmarks.peers.weather_dbos", ""),
}
"""Those without a workflow are libraries."""


class Weatherman(StubProvider):
    """Asks for the weather in each city, then answers."""

    def __init__(self, port: int = 0, *, holds: int | None = None) -> None:
        super().__init__([], port=port)
        self.answered: Counter[int] = Counter()
        self.refused = 0
        self.is_away = False
        self.arrived = asyncio.Event()
        self._holds = holds
        self._loop = asyncio.get_running_loop()

    def served(
        self, body: dict[str, Any], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], Iterable[bytes]]:
        if self.is_away:
            self.refused += 1
            content = b'{"error": {"message": "overloaded", "type": "server_error"}}'
            return (
                503,
                {"content-type": "application/json", "content-length": str(len(content))},
                [content],
            )
        self.answered[answers_in(body)] += 1
        if answers_in(body) == (self._holds or 1):
            self._loop.call_soon_threadsafe(self.arrived.set)
        return super().served(body, headers)

    def reply(self, body: Mapping[str, Any]) -> StubReply | None:
        answers = answers_in(body)
        if answers >= len(CITIES):
            return {"text": "In Rome."}
        delay_s = HELD_S if answers == self._holds and self.answered[answers] == 1 else 0
        return {
            "calls": [{"name": "weather", "arguments": {argument(body): CITIES[answers]}}],
            "delay_s": delay_s,
        }


def answers_in(body: Mapping[str, Any]) -> int:
    """The number of answers in a request: each has one call."""
    return sum(
        one.get("role") == "assistant" or one.get("type") == "function_call"
        for one in said_in(body)
    )


def argument(body: Mapping[str, Any]) -> str:
    """The name of the tool's argument that a model would fill in."""
    [tool] = body["tools"]
    return str(next(iter(tool.get("function", tool)["parameters"]["required"])))


@dataclass
class Run:
    """A turn, in whichever process it currently runs."""

    kind: Kind
    turn_id: str
    url: str
    address: str
    provider: str

    @contextlib.asynccontextmanager
    async def process(self, version: str = "before", holds: str = "") -> AsyncIterator[Told]:
        """A worker, or the process of a library, that is ready."""
        environment = {
            "WEATHER": version,
            "WEATHER_HOLDS": holds,
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": self.provider,
        }
        job: tuple[str, ...] = ("benchmarks.job", self.kind.module, self.address, self.turn_id)
        if not self.kind.workflow:
            job = ("benchmarks.peers.library_job", f"{self.kind.module}:sqlite", self.url)
        async with telling(*job, **environment) as told:
            if not self.kind.workflow:
                await told.until("ready")
            yield told

    async def start(self, told: Told) -> None:
        if self.kind.workflow:
            client = await Client.connect(self.address)
            await client.start_workflow(
                self.kind.workflow, self.kind.start(TASK), id=self.turn_id, task_queue=self.turn_id
            )
        else:
            await told.say(f"run {self.turn_id} {TASK}")

    async def end(self, told: Told, *, is_new: bool = False) -> str:
        """The end of the turn: `done`, the name of the error, or none in time."""
        try:
            async with asyncio.timeout(LONGEST_S):
                return await (
                    self._workflow_end() if self.kind.workflow else self._library_end(told, is_new)
                )
        except TimeoutError:
            return f"still running after {LONGEST_S:g} s{await self._pending()}"

    async def _workflow_end(self) -> str:
        client = await Client.connect(self.address)
        try:
            await client.get_workflow_handle(self.turn_id).result()
        except WorkflowFailureError as error:
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            return f"failed: {type(cause).__name__}: {cause}"[:200]
        return "done"

    async def _library_end(self, told: Told, is_new: bool) -> str:
        before = len(told.of("failed"))
        if is_new:
            await told.say(f"again {self.turn_id}")
        async with told.came:
            await told.came.wait_for(lambda: told.of("done") or len(told.of("failed")) > before)
        return "done" if told.of("done") else f"failed: {told.of('failed')[-1][2]}"

    async def _pending(self) -> str:
        if not self.kind.workflow:
            return ""
        handle = (await Client.connect(self.address)).get_workflow_handle(self.turn_id)
        raw = (await handle.describe()).raw_description
        seen = [
            f"{one.activity_type.name}, attempt {one.attempt}: {one.last_failure.message}"
            for one in raw.pending_activities
        ]
        history = await handle.fetch_history()
        failed = [
            event.workflow_task_failed_event_attributes.failure.message for event in history.events
        ]
        seen += [
            f"workflow task, attempt {raw.pending_workflow_task.attempt}: {message}"
            for message in failed
            if message
        ]
        return f", {'; '.join(seen)}"[:400]


async def away(run: Run, stub: Weatherman, how: str) -> dict[str, Any]:
    """A turn whose provider is down after its first answer."""
    async with run.process() as told:
        await run.start(told)
        await told.until("ran")
        port, went = int(stub.anthropic_url.rpartition(":")[2]), time.time()
        if how == "refuses":
            await asyncio.to_thread(stub.__exit__, None, None, None)
        stub.is_away = True
        ending = asyncio.create_task(run.end(told))
        await asyncio.wait([ending], timeout=AWAY_S)
        gave_up = round(time.time() - went) if ending.done() else None
        came = time.time()
        with Weatherman(port) if how == "refuses" else contextlib.nullcontext(stub) as back:
            back.is_away = False
            ended = await ending
            after = round(time.time() - came, 1)
            seen = story(
                ended,
                [told],
                stub.answered + (back.answered if back is not stub else Counter()),
                refused=stub.refused,
            )
            if gave_up is None:
                return {**seen, "seconds after it was back": after}
            again = await run.end(told, is_new=True) if not run.kind.workflow else "-"
            return {**seen, "gave up after": gave_up, "continued by hand": again}


async def deploy(run: Run, stub: Weatherman, version: str, point: str) -> dict[str, Any]:
    """A turn whose process is killed, and restarted with another version of the tool."""
    async with run.process(holds=CITIES[1] if point == RECORDED else "") as first:
        await run.start(first)
        await (stub.arrived.wait() if point == NEXT else first.until("ran", 2))
        first.process.kill()
    async with run.process(version) as second:
        began = time.time()
        ended = await run.end(second, is_new=True)
        return {
            **story(ended, [first, second], stub.answered),
            "seconds": round(time.time() - began, 1),
        }


def story(
    ended: str, processes: list[Told], answered: Counter[int], **facts: Any
) -> dict[str, Any]:
    """The end, the answered (and billed) requests by their position in the turn, and the runs of
    the tool.
    """
    ran = [" ".join(line[1:3]) for told in processes for line in told.of("ran")]
    return {"ended": ended, "answers": dict(sorted(answered.items())), "runs": ran, **facts}


async def one(name: str, number: int, address: str, folder: Path, *case: str) -> None:
    """Run a case and print the observations."""
    holds = 1 if NEXT in case else None
    with Weatherman(holds=holds) as stub:
        run = Run(
            KINDS[name],
            f"{name}-{number}",
            f"sqlite:///{folder / f'{name}-{number}'}.db",
            address,
            stub.base_url,
        )
        try:
            async with asyncio.timeout(LONGEST_S + 120):
                seen = await (
                    away(run, stub, case[1]) if case[0] == "away" else deploy(run, stub, *case[1:])
                )
        except TimeoutError:
            seen = {"ended": "never began"}
    print(json.dumps({"name": name, "case": " ".join(case), **seen}), flush=True)


async def main(words: Sequence[str]) -> None:
    """The cases that match one of the words, one library at a time."""
    names = [word for word in words if word in KINDS]
    wanted = [word for word in words if word not in KINDS]
    changes = [
        ("deploy", version, point)
        for version in VERSIONS
        if version != "before"
        for point in (NEXT, RECORDED)
    ]
    cases = [
        case
        for case in (("away", "refuses"), ("away", "503"), *changes)
        if not wanted or set(wanted) & set(case)
    ]
    with tempfile.TemporaryDirectory() as folder:
        async with DevServer(folder=None, port=0, ui=False) as server:
            for name in names or KINDS:
                async with asyncio.TaskGroup() as group:
                    for number, case in enumerate(cases):
                        group.create_task(
                            one(name, number, server.address.address, Path(folder), *case)
                        )


if __name__ == "__main__":
    os.environ.setdefault("LANGSMITH_TRACING", "false")
    asyncio.run(main(sys.argv[1:]))
