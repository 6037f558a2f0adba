"""A task for a scripted model with a behaviour, its service, and what the model has seen.

Agents, models and tools are in the process of the benchmark, so each finds its job by its name,
which is the task of the agent, and the name of its workflow or thread.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from benchmarks.effects import tools
from benchmarks.effects.behaviours import FIND, Behaviour, next_move
from benchmarks.effects.episodes import serving
from benchmarks.effects.grading import Graded, Statement, graded
from benchmarks.effects.templates import Case
from benchmarks.effects.tools import ServiceRefused
from perdure import ToolCall, ToolOutcome, ToolResult

WRITE_TOOL, FIND_TOOL = "write", "find"
FAILED = "it failed"
"""The beginning of a result that tells the model of an error."""
AT_ONCE = 48
ENDLESS_S, SLOW_S = 60.0, 600.0
"""Seconds after which an episode is stopped: if its calls may be tried without end, and if they may
not. Times are divided by 30, so the first is half an hour."""
NO_END = "no end"
ATTEMPTS, FIRST_PAUSE_S = 4, 0.4
"""How often a call with a key is tried, and the pause before the second attempt, which doubles."""


@dataclass(frozen=True)
class Setting:
    """How a framework is set up.

    Attributes:
        name: The name in the row.
        attempts: The attempts of a call that makes effects; 0 for the default of the framework,
            which also says what becomes of an error.
        sends_key: Whether the tool sends the key of the call, and the service honours it.
    """

    name: str
    attempts: int = 0
    sends_key: bool = False


DEFAULTS = Setting("defaults")
ONCE = Setting("one attempt", attempts=1)
KEY = Setting("key of the call", attempts=ATTEMPTS, sends_key=True)
SETTINGS = (DEFAULTS, ONCE, KEY)


@dataclass(frozen=True)
class Seen:
    """A result of a tool, as the model sees it."""

    call_id: str
    content: str

    @property
    def is_error(self) -> bool:
        """Whether it tells of an error."""
        return self.content.startswith(FAILED)


@dataclass(frozen=True)
class Move:
    """What the model does next: a call of a tool with records as JSON, or what it says."""

    text: str = ""
    call_id: str = ""
    tool: str = ""
    records: str = ""

    @property
    def arguments(self) -> str:
        """The arguments of the call."""
        return json.dumps({"records": self.records})


@dataclass
class Job:
    """A task for a model with a behaviour, its service, and what the model has seen so far."""

    setting: Setting
    behaviour: Behaviour
    case: Case
    url: str
    asked: dict[str, ToolCall] = field(default_factory=dict)
    results: Sequence[ToolResult] = ()

    async def next_move(self, seen: Sequence[Seen]) -> Move:
        """The next move of the model, after the results that it sees."""
        self.results = [self._result(one) for one in seen]
        reply = next_move(self.case.template, self.behaviour, self.results)
        await asyncio.sleep(reply.delay.total_seconds())
        assert reply.answer is not None
        message = reply.answer.message
        asked = [part for part in message.parts if isinstance(part, ToolCall)]
        if not asked:
            return Move(text=message.text)
        [call], call_id = asked, f"call_{len(seen)}"
        self.asked[call_id] = call
        records = json.dumps(json.loads(call.arguments)["records"])
        tool = FIND_TOOL if call.name.startswith(FIND) else WRITE_TOOL
        return Move(call_id=call_id, tool=tool, records=records)

    def _result(self, seen: Seen) -> ToolResult:
        name = self.asked[seen.call_id].name
        return ToolResult(
            call_id=seen.call_id, name=name, content=seen.content, is_error=seen.is_error
        )

    async def write(self, records: str, key: str = "") -> str:
        """Make the effects.

        Raises:
            ServiceRefused: The service answered with an error.
            httpx.TransportError: There was no answer.
        """
        return await tools.send(self.case.template, self.url, json.loads(records), key)

    async def find(self, records: str) -> str:
        """Read back which effects were made, and which are missing."""
        return json.dumps(await tools.found(self.case.template, self.url, json.loads(records)))

    def statements(self) -> Iterator[Statement]:
        """Yield what became of each call by its result; without one, its outcome is unknown."""
        results = {result.call_id: result for result in self.results}
        for call_id, call in self.asked.items():
            if call.name.startswith(FIND):
                continue
            outcome, content = ToolOutcome.UNKNOWN, ""
            if result := results.get(call_id):
                outcome, content = _outcome(result), result.content
            records: list[dict[str, Any]] = json.loads(call.arguments)["records"]
            yield Statement.of(self.case.template, outcome, records, content)


def _outcome(result: ToolResult) -> ToolOutcome:
    if not result.is_error:
        return ToolOutcome.DONE
    return ToolOutcome.UNKNOWN if _LOST in result.content else ToolOutcome.FAILED


JOBS: dict[str, Job] = {}
"""The jobs of this process by their names."""
_LOST = "whether it has taken effect is unknown"


def failure(kind: str, message: str) -> str:
    """What a careful tool tells the model of an error, by its type and its text."""
    is_refusal = kind == ServiceRefused.__name__ and not message.startswith("500")
    return f"{FAILED}: {kind}: {message}" + ("" if is_refusal else f"; {_LOST}")


def may_repeat(error: Exception) -> bool:
    """Whether the same request may succeed later: the service has not refused what it says."""
    text = str(error)
    return not isinstance(error, ServiceRefused) or text.startswith(("429", "500", "503"))


Runs = Callable[[str], Awaitable[str]]
"""Runs the agent on a job by its name, and returns what it says; it stops what is cancelled."""


async def episode(runs: Runs, setting: Setting, behaviour: Behaviour, case: Case) -> Graded:
    """Run a job with a service of its own; the type of an error that ends it is its claim."""
    terms = case.template.terms(honours_keys=setting.sends_key)
    async with serving(case.fault, terms) as service:
        name = f"{behaviour}-{case.template.tool}-{case.fault}-{uuid4()}"
        job = JOBS[name] = Job(setting, behaviour, case, service.url)
        try:
            async with asyncio.timeout(SLOW_S if setting.attempts else ENDLESS_S):
                claim = await runs(name)
        except TimeoutError:
            claim = NO_END
        except Exception as error:  # noqa: BLE001 - of whatever framework
            claim = type(error).__name__
        service.settle()
        return graded(case, behaviour, service.effects, [*job.statements()], claim)


async def many(
    runs: Runs, setting: Setting, behaviours: Sequence[Behaviour], cases: Sequence[Case]
) -> list[Graded]:
    """Run every case with every behaviour, several at once."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(behaviour: Behaviour, case: Case) -> Graded:
        async with places:
            return await episode(runs, setting, behaviour, case)

    return await asyncio.gather(*(one(each, case) for case in cases for each in behaviours))
