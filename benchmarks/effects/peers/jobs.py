"""A task for a scripted model with a behaviour, its service, and what the model has seen.

The name of a job says all of it. It is the task of the agent, and the id of its workflow or thread,
so models and tools find their job also in a process that has taken over. There, what the model has
seen is what the framework shows it; `asked` and `results` are for the grader.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import uuid4

from benchmarks.effects import tools
from benchmarks.effects.behaviours import FIND, Behaviour, next_move
from benchmarks.effects.episodes import serving
from benchmarks.effects.grading import Graded, Statement, graded
from benchmarks.effects.templates import BY_TOOL, Case, Template
from benchmarks.effects.tools import ServiceRefused
from perdure import ToolCall, ToolOutcome, ToolResult
from perdure.testing import StubService

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

    @property
    def slug(self) -> str:
        """The name without spaces."""
        return self.name.replace(" ", "-")


DEFAULTS = Setting("defaults")
ONCE = Setting("one attempt", attempts=1)
KEY = Setting("key of the call", attempts=ATTEMPTS, sends_key=True)
SETTINGS = (DEFAULTS, ONCE, KEY)
BY_SLUG = {setting.slug: setting for setting in SETTINGS}


@dataclass(frozen=True)
class Seen:
    """A result of a tool, by its name here, as the framework shows it to the model."""

    call_id: str
    tool: str
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
    """A task for a model with a behaviour, its service, and what the model has seen so far.

    Attributes:
        setting: How the framework is set up.
        behaviour: That of the model.
        template: The task.
        port: That of its service.
        kill: The moment at which its process is killed; empty if it is not.
        number: What tells it apart.
        asked: The calls of the model in this process, by their ids.
        results: What the model saw last, in this process.
    """

    setting: Setting
    behaviour: Behaviour
    template: Template
    port: int
    kill: str = ""
    number: str = field(default_factory=lambda: uuid4().hex)
    asked: dict[str, ToolCall] = field(default_factory=dict)
    results: Sequence[ToolResult] = ()

    @classmethod
    def of(cls, name: str) -> Self:
        """The job with this name, which has seen nothing yet."""
        setting, behaviour, tool, port, kill, number = name.split(".")
        return cls(BY_SLUG[setting], Behaviour(behaviour), BY_TOOL[tool], int(port), kill, number)

    @property
    def name(self) -> str:
        """Its name, which is not that of any other job."""
        task = (self.setting.slug, self.behaviour, self.template.tool)
        return ".".join((*task, str(self.port), self.kill, self.number))

    @property
    def url(self) -> str:
        """The URL of its service."""
        return f"http://127.0.0.1:{self.port}"

    async def next_move(self, seen: Sequence[Seen]) -> Move:
        """The next move of the model, after the results that it sees."""
        self.results = [self._result(one) for one in seen]
        reply = next_move(self.template, self.behaviour, self.results)
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
        prefix = FIND if seen.tool == FIND_TOOL else ""
        name = f"{prefix}{self.template.tool}"
        return ToolResult(
            call_id=seen.call_id, name=name, content=seen.content, is_error=seen.is_error
        )

    async def write(self, records: str, key: str = "") -> str:
        """Make the effects; wait for the end of the process if it is killed at this moment.

        Raises:
            ServiceRefused: The service answered with an error.
            httpx.TransportError: There was no answer.
        """
        await tools.killed(self.kill, "before", self.name)
        answer = await tools.send(self.template, self.url, json.loads(records), key)
        await tools.killed(self.kill, "after", self.name)
        return answer

    async def find(self, records: str) -> str:
        """Read back which effects were made, and which are missing."""
        return json.dumps(await tools.found(self.template, self.url, json.loads(records)))

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
            yield Statement.of(self.template, outcome, records, content)


def _outcome(result: ToolResult) -> ToolOutcome:
    if not result.is_error:
        return ToolOutcome.DONE
    return ToolOutcome.UNKNOWN if _LOST in result.content else ToolOutcome.FAILED


_JOBS: dict[str, Job] = {}
_LOST = "whether it has taken effect is unknown"


def job_of(name: str) -> Job:
    """The job with this name; always the same one in a process."""
    return _JOBS.setdefault(name, Job.of(name))


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
        name = Job(setting, behaviour, case.template, port_of(service)).name
        try:
            async with asyncio.timeout(SLOW_S if setting.attempts else ENDLESS_S):
                claim = await runs(name)
        except TimeoutError:
            claim = NO_END
        except Exception as error:  # noqa: BLE001 - of whatever framework
            claim = type(error).__name__
        service.settle()
        return graded(case, behaviour, service.effects, [*job_of(name).statements()], claim)


def port_of(service: StubService) -> int:
    """The port of a service that has started."""
    return int(service.url.rpartition(":")[2])


async def many(
    runs: Runs, setting: Setting, behaviours: Sequence[Behaviour], cases: Sequence[Case]
) -> list[Graded]:
    """Run every case with every behaviour, several at once."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(behaviour: Behaviour, case: Case) -> Graded:
        async with places:
            return await episode(runs, setting, behaviour, case)

    return await asyncio.gather(*(one(each, case) for case in cases for each in behaviours))
