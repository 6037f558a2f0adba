"""Workflows of a user, as the sandbox loads them: this module imports only what they need."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel
from temporalio import workflow

from perdure import Agent, Budget, ModelRetryPolicy, errors, tool
from perdure.workflows import run_turn


class Notice(BaseModel):
    """What is asked for."""

    days: int


@dataclass
class Found:
    """What the workflow returns."""

    days: int
    turn_id: str
    steps: int


@tool(read_only=True)
def look() -> str:
    """Look somewhere."""
    return "30 days"


CLERK = Agent(name="clerk", model="scripted:clerk", tools=[look])


@workflow.defn
class Ticket:
    """A user's workflow, in the sandbox."""

    @workflow.run
    async def run(self, question: str) -> Found:
        """Ask the clerk."""
        report = await run_turn(
            "clerk",
            question,
            output=Notice,
            id=f"{workflow.info().workflow_id}/clerk",
            budget=Budget(model_calls=3),
        )
        return Found(report.output.days, report.turn_id, report.model_calls)


@workflow.defn
class Limited:
    """A workflow that allows a single step."""

    @workflow.run
    async def run(self, question: str) -> list[Any]:
        """Return the limit that ended the turn."""
        try:
            await run_turn(CLERK, question, max_iterations=1)
        except errors.MaxIterationsError as error:
            return [type(error).__name__, *next(iter(error.context.items()))]
        return []


@workflow.defn
class Careful:
    """A workflow that handles errors."""

    @workflow.run
    async def run(self, question: str) -> list[Any]:
        """Return the outcome."""
        try:
            await run_turn(CLERK, question)
        except errors.PerdureError as error:
            report = error.report
            return [
                type(error).__name__,
                error.message,
                *((report.outcome.value, report.model_calls) if report else ()),
            ]
        return []


@workflow.defn
class Clueless:
    """A workflow that knows the name of an agent alone."""

    @workflow.run
    async def run(self, task_queue: str) -> str:
        """Return all that the end of the turn says."""
        try:
            return repr(await run_turn("desk", "Help.", task_queue=task_queue))
        except errors.PerdureError as error:
            return f"{error.to_dict()} {error.report!r}"


@workflow.defn
class Impatient:
    """A workflow that does not wait for a provider."""

    @workflow.run
    async def run(self, question: str) -> list[Any]:
        """Return how often the model was asked."""
        at_once = ModelRetryPolicy(maximum_elapsed=timedelta(milliseconds=1))
        try:
            await run_turn(CLERK, question, model_retry=at_once)
        except errors.LLMUnavailableError as error:
            return [error.context["attempts"]]
        return []


@workflow.defn
class Ordered:
    """A workflow whose turns have an order, a delay and a deadline."""

    @workflow.run
    async def run(self, question: str) -> list[str]:
        """Return two answers, and the error of a turn whose deadline has passed."""
        mine = workflow.info().workflow_id
        own = await run_turn(
            CLERK,
            question,
            id=f"{mine}/own",
            priority=1,
            fairness="tenant-7",
            weight=2,
            delay=timedelta(milliseconds=10),
            deadline=timedelta(hours=1),
        )
        plain = await run_turn(CLERK, question, id=f"{mine}/plain")
        try:
            await run_turn(CLERK, question, deadline=datetime(2026, 1, 1, tzinfo=UTC))
        except errors.InvalidRequestError as error:
            return [own.output, plain.output, error.message]
        return []
