"""The same episodes in a loop of thirty lines without Perdure, as it is often written.

An exception of a tool is an error for the model, whatever it means.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.effects.behaviours import FIND, Behaviour, next_move
from benchmarks.effects.episodes import serving
from benchmarks.effects.grading import Graded, Statement, graded
from benchmarks.effects.templates import Case
from benchmarks.effects.tools import Configuration, found, meaning, send
from perdure import ToolCall, ToolResult

AT_ONCE = 100


@dataclass
class Loop:
    """A model, its tools, and the results so far."""

    configuration: Configuration
    behaviour: Behaviour
    case: Case
    url: str
    results: list[ToolResult] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)

    async def run(self) -> str:
        """Ask, act, repeat; return what the model says at the end."""
        while True:
            reply = next_move(self.case.template, self.behaviour, self.results)
            await asyncio.sleep(reply.delay.total_seconds())
            assert reply.answer is not None
            asked = [part for part in reply.answer.message.parts if isinstance(part, ToolCall)]
            if not asked:
                return reply.answer.message.text
            for call in asked:
                await self._act(call)

    async def _act(self, call: ToolCall) -> None:
        template, records = self.case.template, json.loads(call.arguments)["records"]
        call_id = f"call-{len(self.results)}"
        keys = {"call": call_id, "effect": json.dumps(meaning(template, records)), "none": ""}
        try:
            if call.name.startswith(FIND):
                content = json.dumps(await found(template, self.url, records))
            else:
                key = keys[self.configuration.key]
                content = await send(template, self.url, records, key)
            is_error = False
        except Exception as error:  # noqa: BLE001 - as such loops do
            content = f"{call.name} failed: {type(error).__name__}: {error}"
            is_error = True
        result = ToolResult(call_id=call_id, name=call.name, content=content, is_error=is_error)
        self.results.append(result)
        if call.name == template.tool:
            self.statements.append(Statement.of(template, result.outcome, records, content))


async def episode(configuration: Configuration, behaviour: Behaviour, case: Case) -> Graded:
    """Run the loop with a service of its own."""
    terms = case.template.terms(honours_keys=configuration.honours_keys)
    async with serving(case.fault, terms) as service:
        loop = Loop(configuration, behaviour, case, service.url)
        claim = await loop.run()
        service.settle()
        return graded(case, behaviour, service.effects, loop.statements, claim)


async def run(
    configuration: Configuration, behaviours: Sequence[Behaviour], cases: Sequence[Case]
) -> list[Graded]:
    """Run every case with every behaviour."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(behaviour: Behaviour, case: Case) -> Graded:
        async with places:
            return await episode(configuration, behaviour, case)

    return await asyncio.gather(*(one(each, case) for case in cases for each in behaviours))
