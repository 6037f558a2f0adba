"""The same episodes in a loop of thirty lines without Perdure, as it is often written.

An exception of a tool is an error for the model, whatever it means. A loop whose process is killed
begins again in the next one, since nothing is left of it. `python -m benchmarks.effects.handwritten
JSON` runs some loops, and prints what the model says at the end of each.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from benchmarks.effects.behaviours import FIND, Behaviour, next_move
from benchmarks.effects.episodes import serving
from benchmarks.effects.grading import Graded, Statement, graded
from benchmarks.effects.templates import BY_TOOL, Case
from benchmarks.effects.tools import CONFIGURATIONS, Configuration, found, killed, meaning, send
from perdure import ToolCall, ToolResult
from perdure.testing import Fault

AT_ONCE = 100


@dataclass
class Loop:
    """A model, its tools, and the results so far."""

    configuration: Configuration
    behaviour: Behaviour
    case: Case
    url: str
    kill: str = ""
    results: list[ToolResult] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name among the loops of a process."""
        return f"{self.behaviour}-{self.case.template.tool}"

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
        call_id = uuid4().hex
        keys = {"call": call_id, "effect": json.dumps(meaning(template, records)), "none": ""}
        try:
            if call.name.startswith(FIND):
                content = json.dumps(await found(template, self.url, records))
            else:
                key = keys[self.configuration.key]
                await killed(self.kill, "before", self.name)
                content = await send(template, self.url, records, key)
                await killed(self.kill, "after", self.name)
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


async def all_of(given: Mapping[str, Any]) -> list[str]:
    """Run some loops, and return what the model says at the end of each."""
    configuration = next(one for one in CONFIGURATIONS if one.name == given["configuration"])
    loops = [
        Loop(
            configuration,
            Behaviour(one["behaviour"]),
            Case(BY_TOOL[one["tool"]], Fault.NONE),
            one["url"],
            given["kill"],
        )
        for one in given["loops"]
    ]
    return await asyncio.gather(*(loop.run() for loop in loops))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(all_of(json.loads(sys.argv[1])))))
