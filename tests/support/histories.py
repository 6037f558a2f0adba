"""The stored histories, and how their turns end."""

from __future__ import annotations

from pathlib import Path

from temporalio.client import WorkflowHistory

from perdure.values.reports import Outcome

from ..replay.record import FOLDER, KINDS

STORED = sorted(FOLDER.glob("*.json"))


OUTCOMES: dict[str, Outcome | None] = {
    **dict.fromkeys(KINDS, Outcome.COMPLETED),
    **dict.fromkeys(["refused", "model_failed", "unknown_agent"], Outcome.FAILED),
    **dict.fromkeys(["finished", "exhausted"], Outcome.BUDGET_EXHAUSTED),
    "truncated": Outcome.TRUNCATED,
    "max_iterations": Outcome.MAX_ITERATIONS,
    "cancelled": Outcome.CANCELLED,
    "terminated": Outcome.TERMINATED,
    "past_its_deadline": Outcome.TIMED_OUT,
    "first_run": None,
}


def stored(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(f"adder/{path.stem}", path.read_text(encoding="utf-8"))
