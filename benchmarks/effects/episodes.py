"""Episodes on Perdure: a turn and a service for each, many at once on one worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from benchmarks.effects.behaviours import Behaviour, replied, task_of
from benchmarks.effects.grading import Graded, Statement, graded
from benchmarks.effects.templates import Case, Template
from benchmarks.effects.tools import SERVICE, Configuration, agents_of
from perdure import AssistantMessage, ToolCall, ToolMessage
from perdure.clients import AgentClient, Turn
from perdure.errors import PerdureError
from perdure.testing import Fault, FunctionModel, StubService, Terms
from perdure.values.messages import Message
from perdure.worker import AgentWorker
from perdure.worker.settings import WorkerSettings

AT_ONCE = 32
_TOLERANCE = timedelta(minutes=2)
"""No process dies here, so no call of a slow machine has to count as lost."""


def worker_of(configurations: Iterable[Configuration]) -> AgentWorker:
    """A worker with the agents of some configurations, and the scripted model."""
    agents = [agent for configuration in configurations for agent in agents_of(configuration)]
    return AgentWorker(agents, providers={"script": FunctionModel(replied)})


@contextlib.asynccontextmanager
async def serving(fault: Fault, terms: Terms) -> AsyncIterator[StubService]:
    """A service for the duration of the block; neither its start nor its end blocks the loop."""
    service = StubService(fault, terms=terms)
    await asyncio.to_thread(service.__enter__)
    try:
        yield service
    finally:
        await asyncio.to_thread(service.__exit__, None, None, None)


async def episode(
    client: AgentClient, configuration: Configuration, behaviour: Behaviour, case: Case
) -> Graded:
    """Run a turn with a service of its own."""
    template = case.template
    terms = template.terms(honours_keys=configuration.honours_keys, hold_s=configuration.hold_s)
    async with serving(case.fault, terms) as service:
        turn = await begun(client, configuration, behaviour, template, service)
        claim, statements = await ended(turn, template)
        service.settle()
        return graded(case, behaviour, service.effects, statements, claim)


async def begun(
    client: AgentClient,
    configuration: Configuration,
    behaviour: Behaviour,
    template: Template,
    service: StubService,
    **labels: str,
) -> Turn:
    """Start the turn of an episode."""
    return await client.start(
        configuration.agent(template),
        task_of(template, behaviour),
        labels={SERVICE: service.url, **labels},
    )


async def ended(turn: Turn, template: Template) -> tuple[str, list[Statement]]:
    """What the model said at the end, and what became of its calls by their results."""
    try:
        report = await turn.result()
    except PerdureError as error:
        messages = error.report.messages if error.report else ()
        return type(error).__name__, list(stated(template, messages))
    return str(report.output), list(stated(template, report.messages))


def stated(template: Template, messages: Iterable[Message]) -> Iterator[Statement]:
    """Yield what became of each call that makes effects."""
    called: dict[str, list[dict[str, Any]]] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            asked = [part for part in message.parts if isinstance(part, ToolCall)]
            called |= {one.id: json.loads(one.arguments)["records"] for one in asked}
        elif isinstance(message, ToolMessage):
            for result in message.results:
                if result.name == template.tool:
                    records = called.get(result.call_id, [])
                    yield Statement.of(template, result.outcome, records, result.content)


async def run(
    configuration: Configuration,
    behaviours: Sequence[Behaviour],
    cases: Sequence[Case],
    address: str,
) -> list[Graded]:
    """Run every case with every behaviour, on a worker in this process.

    Args:
        configuration: How the tools are declared.
        behaviours: Those of the model.
        cases: The tasks and modes.
        address: The address of a Temporal server.
    """
    logging.getLogger("perdure").setLevel(logging.CRITICAL)  # every error of a tool is wanted
    settings = WorkerSettings(heartbeat_tolerance=_TOLERANCE, grace=timedelta(seconds=1))
    queue = f"effects-{configuration.name}"
    client = await AgentClient.connect(address, task_queue=queue)
    worker = replace(worker_of([configuration]), task_queue=queue)
    async with worker.running(client.temporal, settings=settings):
        return await many(client, configuration, behaviours, cases)


async def many(
    client: AgentClient,
    configuration: Configuration,
    behaviours: Sequence[Behaviour],
    cases: Sequence[Case],
) -> list[Graded]:
    """Run every case with every behaviour, several at once."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(behaviour: Behaviour, case: Case) -> Graded:
        async with places:
            return await episode(client, configuration, behaviour, case)

    return await asyncio.gather(*(one(each, case) for case in cases for each in behaviours))
