"""A job: its turn, the people around it, the fault, and what it claims at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
from temporalio.api.history.v1 import HistoryEvent
from temporalio.service import RPCError

from benchmarks.matrix import app
from benchmarks.matrix.faults import NOTHING, Fault
from benchmarks.matrix.judge import APPROVED, AT_MOST_ONCE, BY_KEY, REPEATABLE, Plan, Verdict, judge
from benchmarks.matrix.script import CLERK, SCOUT
from benchmarks.matrix.site import LOOK_S, ROOT, Crew, Site, crew
from benchmarks.matrix.witness import Line
from perdure import Budget
from perdure.clients import AgentClient
from perdure.temporal.histories.runs import run_after
from perdure.values.reports import Outcome

LIMIT_USD = "0.15"
"""The budget of a job."""
EFFECTS = {
    "look": REPEATABLE,
    "book": BY_KEY,
    "charge": AT_MOST_ONCE,
    "wire": APPROVED,
    "look-again": REPEATABLE,
}
RUN_EVENTS = 60
"""The events of a run, so that each job continues as new."""
MESSAGES = {"m-1": 2, "m-2": 2, "m-3": 5}
"""Each message is sent after this number of model calls."""
_LOOK_AT_END_S = 20.0
_TO_THE_END_S = 30.0
"""How long a fault may take that was begun before the end of its job."""
_MESSAGE = re.compile(r"\[message ([\w.-]+)\]")


@dataclass
class Job:
    """A turn with its workers.

    Attributes:
        name: Its id, which is that of its turn.
        usd: Its budget.
        environment: That of its workers.
    """

    name: str
    site: Site
    crew: Crew
    fault: Fault = NOTHING
    event: int = 0
    usd: str = LIMIT_USD
    first_run: str = ""
    struck: dict[str, Any] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        """What it is to do."""
        return Plan(
            job=self.name,
            effects=EFFECTS,
            limit_usd=Decimal(self.usd),
            limits_usd={SCOUT: Decimal(app.SCOUT_USD)},
            resets=self.fault.resets,
        )

    def lines(self) -> list[Line]:
        """What the witness has of it."""
        return self.site.record.of(self.name)

    def model_calls(self) -> int:
        """How often its agent has asked its model."""
        return sum(line["kind"] == "bill" and CLERK in line["model"] for line in self.lines())

    async def note(self, kind: str, **fields: Any) -> None:
        """Have the witness write a line."""
        await self.site.record.note(kind, self.name, **fields)

    async def start(self) -> None:
        """Start its turn."""
        client = AgentClient.from_temporal(self.site.client.temporal, task_queue=self.crew.queue)
        turn = await client.start(
            CLERK, f"[job {self.name}] Do the job.", id=self.name, budget=Budget(usd=self.usd)
        )
        self.first_run = await turn.first_run()

    async def events(self) -> AsyncIterator[HistoryEvent]:
        """Yield the events of its turn as they come, over all runs, to the end."""
        run: str | None = self.first_run
        while run:
            handle = self.site.client.temporal.get_workflow_handle(self.name, run_id=run)
            run = None
            async for event in handle.fetch_history_events(wait_new_event=True):
                yield event
                run = run_after(event)

    async def strike(self) -> None:
        """Make the fault once there are as many events as that."""
        count = 0
        async for event in self.events():
            count += 1
            if self.fault.is_awaited(event, count, self.event):
                break
        else:
            return
        self.struck["began"] = time.time()
        try:
            self.struck["evidence"] = await self.fault.strike(self)
        except (OSError, RPCError, AssertionError) as error:  # it could not be made: no evidence
            print(f"{self.name}: {type(error).__name__}: {error}", flush=True)

    async def until(self, kind: str, what: str) -> None:
        """Wait for a line of the witness; the fault begins then."""
        while not self._has(kind, what):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
        self.struck["began"] = time.time()

    def _has(self, kind: str, what: str) -> bool:
        return any(line["kind"] == kind and line["what"] == what for line in self.lines())

    async def claim(self) -> None:
        """Wait for the end, and write down what it claims."""
        try:
            async with asyncio.timeout(self.fault.patience_s):
                outcome, text, unread = await self._end()
        except TimeoutError:
            await self._terminate()
            return
        names = [name for words in unread for name in _MESSAGE.findall(words)]
        await self.note("claim", outcome=outcome, text=text, unread=names)

    async def _end(self) -> tuple[str, str, tuple[str, ...]]:
        """Return the outcome, the answer or the error, and the messages that were not read.

        A turn that is terminated by a reset goes on in another run.
        """
        path = f"/v1/turns/{self.name}/result?wait={_LOOK_AT_END_S:g}"
        while True:
            answer = await self.site.ask("GET", path)
            result = answer.json()
            if answer.status_code == HTTPStatus.OK and result["outcome"] != Outcome.TERMINATED:
                text = result["error"]["message"] if result["error"] else result["output"]
                return result["outcome"], str(text), tuple(result["unread"])
            await asyncio.sleep(LOOK_S)

    async def _terminate(self) -> None:
        """End the turn, if it is not over."""
        with contextlib.suppress(RPCError):
            await self.site.client.temporal.get_workflow_handle(self.name).terminate()

    async def say(self) -> None:
        """Send the messages, each until it is accepted, or refused because the turn is over."""
        for name, calls in MESSAGES.items():
            while self.model_calls() < calls:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(LOOK_S)
            body = {"text": f"[message {name}] Go on.", "id": name}
            answer = await self.site.ask("POST", f"/v1/turns/{self.name}/steer", body)
            if answer.status_code < 300:
                await self.note("accepted", id=name)

    async def decide(self) -> None:
        """Approve each call that waits, as it was reviewed."""
        decided: set[tuple[str, str]] = set()
        while True:
            for call in await self.waiting():
                reviewed = (call["token"], call["arguments"])
                if reviewed not in decided:
                    decided.add(reviewed)
                    await decide(self, call, by="decider")
            await asyncio.sleep(2 * LOOK_S)

    async def waiting(self) -> list[dict[str, Any]]:
        """The calls that wait for a person."""
        status = (await self.site.ask("GET", f"/v1/turns/{self.name}")).json()
        return [wait["call"] for wait in status.get("waits", ()) if wait["call"]]

    async def length(self, at: float) -> tuple[int, bool]:
        """How many events there were at a time, and whether the turn was open."""
        count, last = 0, None
        async for event in self.events():
            last = event.event_time.ToMicroseconds() / 1e6
            count += last <= at
        return count, last is None or last > at


async def decide(job: Job, call: Mapping[str, Any], *, by: str, approves: bool = True) -> None:
    """Send a decision, which is written down before and after."""
    arguments = arguments_of(call)
    await job.note("decision", **arguments, approves=approves, by=by)
    await asyncio.sleep(job.fault.review_s)
    verb = "approve" if approves else "deny"
    body = {"call_id": call["call_id"], "token": call["token"]}
    answer = await job.site.ask("POST", f"/v1/turns/{job.name}/{verb}", body)
    await job.note("decided", **arguments, by=by, answer=word_of(answer))


def arguments_of(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a waiting call would do: its effect, and its other arguments."""
    arguments = json.loads(call["arguments"])
    return {"what": arguments.pop("what"), "arguments": arguments}


def word_of(answer: httpx.Response) -> str:
    """What became of a decision."""
    if answer.status_code < 300:
        return "used"
    if answer.status_code == 409 and "already" in answer.text:
        return "already"
    return f"{answer.status_code}: {answer.text[:600]}"


async def run(
    name: str, site: Site, fault: Fault = NOTHING, event: int = 0, root: Path = ROOT
) -> Verdict:
    """Run a job with a fault at an event, and judge it."""
    environment = {app.RUN_EVENTS: str(RUN_EVENTS), **fault.environment(event)}
    async with AsyncExitStack() as stack:
        workers = await crew(name, site, root, **environment)
        stack.push_async_callback(workers.end)
        job = Job(name, site, workers, fault, event)
        await workers.start()
        await job.start()
        async with beside(job.say(), job.decide()), beside(job.strike()) as [striking]:
            await job.claim()
            if job.struck:
                await asyncio.wait({striking}, timeout=_TO_THE_END_S)
        await tell(job)
        return judge(job.lines(), job.plan)


async def tell(job: Job) -> None:
    """Have the witness write down what was done to a job.

    The length of the history may be one or two events less than that of the fault: a reader is
    shown a workflow task for an update before it is recorded.
    """
    if not job.fault.name:
        return
    began, evidence = job.struck.get("began", 0.0), job.struck.get("evidence", "")
    length, was_open = await job.length(began)
    await job.note(
        "fault",
        fault=job.fault.name,
        event=job.event,
        length=length,
        began=began,
        landed=bool(evidence) and was_open,
        evidence=evidence,
    )


@contextlib.asynccontextmanager
async def beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Do something beside the block, until its end; a failure is one of the block."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def events_of(name: str, site: Site) -> int:
    """Return the number of events of a job that is over, in all its runs."""
    first_run = await site.client.turn(name).first_run()
    job = Job(name, site, await crew(name, site), first_run=first_run)
    return (await job.length(float("inf")))[0]
