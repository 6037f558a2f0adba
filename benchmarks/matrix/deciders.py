"""Several deciders at once, on two gateways, about one call: one decision is used."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.matrix import app, jobs
from benchmarks.matrix.faults import Fault, nothing
from benchmarks.matrix.judge import Verdict, judge
from benchmarks.matrix.site import LOOK_S, ROOT, Site, crew, request

DECIDERS = (2, 4, 8, 16)


def fault(count: int) -> Fault:
    """Return what is done to a job whose call is decided by so many at once."""
    return Fault(name=f"{count} deciders", strike=nothing, gateways=2)


async def run(name: str, site: Site, fault: Fault, count: int, root: Path = ROOT) -> Verdict:
    """Run a job whose call is decided by so many at once: half of them approve, half deny."""
    workers = await crew(name, site, root, **{app.RUN_EVENTS: str(jobs.RUN_EVENTS)})
    try:
        job = jobs.Job(name, site, workers, fault)
        await workers.start()
        await job.start()
        async with jobs.beside(job.say(), _decide(job, count)):
            await job.claim()
        await jobs.tell(job)
    finally:
        await workers.end()
    return judge(job.lines(), job.plan)


async def _decide(job: jobs.Job, count: int) -> None:
    """Decide at the same moment, once the call waits."""
    while not (calls := await job.waiting()):  # noqa: ASYNC110 - a gateway is asked
        await asyncio.sleep(LOOK_S)
    [call] = calls
    order = list(range(count))
    secrets.SystemRandom().shuffle(order)
    job.struck["began"] = time.time()
    ends = await asyncio.gather(*(_one(job, call, number) for number in order))
    last_sent, first_answered = max(sent for sent, _ in ends), min(got for _, got in ends)
    if last_sent < first_answered:
        job.struck["evidence"] = f"{count} requests were sent before the first answer"
    await asyncio.Event().wait()


async def _one(job: jobs.Job, call: Mapping[str, Any], number: int) -> tuple[float, float]:
    """Decide, and return when the request was sent, and when it was answered."""
    approves, by = number % 2 == 0, f"decider-{number}"
    arguments = jobs.arguments_of(call)
    await job.note("decision", **arguments, approves=approves, by=by)
    at = job.site.gateways[number // 2 % len(job.site.gateways)]
    body = {"call_id": call["call_id"], "token": call["token"]}
    path = f"/v1/turns/{job.name}/{'approve' if approves else 'deny'}"
    sent = time.time()
    answer = await request(at, "POST", path, body)
    answered = time.time()
    await job.note("decided", **arguments, by=by, answer=jobs.word_of(answer))
    return sent, answered
