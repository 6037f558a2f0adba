"""Middleware and observers that note what they are told."""

from dataclasses import dataclass, field

from perdure import Middleware
from perdure.agents.observers import Observer
from perdure.values.reports import AgentReport, Step
from perdure.values.tasks import Task, TurnInfo


@dataclass(frozen=True)
class Noting(Middleware):
    """Records its calls."""

    name: str
    notes: list[str]

    async def before(self, task: Task) -> None:
        self.notes.append(f"{self.name} before {task.text}")

    async def after(self, report: AgentReport) -> None:
        self.notes.append(f"{self.name} after {report.output}, {len(report.steps)} steps")


@dataclass(frozen=True)
class Watching(Observer):
    """Records its events, and can fail at every step."""

    notes: list[str] = field(default_factory=list)
    fails: bool = False

    async def on_step(self, turn: TurnInfo, step: Step) -> None:
        self.notes.append(f"step {step.number}: {[result.content for result in step.results]}")
        if self.fails:
            raise ValueError("no")

    async def on_wait(self, turn: TurnInfo, kind: str, reason: str) -> None:
        self.notes.append(f"waits for {kind}: {reason}")

    async def on_end(self, turn: TurnInfo, report: AgentReport) -> None:
        self.notes.append(f"{turn.turn_id} {report.outcome.value} after {len(report.steps)} steps")
