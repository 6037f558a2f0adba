"""Checks around a turn, middleware of one's own, and who watches.

`python examples/guardrails.py`.
"""

import asyncio
from datetime import timedelta
from typing import Any

from perdure import (
    Agent,
    AgentReport,
    InputGuardrail,
    Middleware,
    Observer,
    OutputGuardrail,
    Step,
    Task,
    Timeout,
    TurnInfo,
    errors,
    tool,
)
from perdure.testing import ScriptedModel, call, calls, local_runtime, says


@tool(read_only=True)
def look_up(words: str) -> str:
    """Look something up in the handbook."""
    return "30 days"


def is_short(task: Task) -> bool | str:
    return len(task.text) < 100 or "ask in fewer than 100 letters"


def names_no_customer(report: AgentReport[Any]) -> bool | str:
    return "Ada" not in report.output or "the answer names a customer"


class Diary(Middleware):
    """One's own: each half runs as an activity in the worker."""

    async def before(self, task: Task) -> None:
        print("begins:", task.text)

    async def after(self, report: AgentReport[Any]) -> None:
        print("answers:", report.output)


class Audit(Observer):
    async def on_step(self, turn: TurnInfo, step: Step) -> None:
        print(f"step {step.number}:", [asked.name for asked in step.message.calls])


clerk = Agent(
    name="clerk",
    model="openai:gpt-5-mini",
    tools=[look_up],
    middleware=[
        InputGuardrail(is_short),
        Timeout(timedelta(hours=1)),
        OutputGuardrail(names_no_customer),
        Diary(),
    ],
    observers=[Audit()],
)


async def main() -> None:
    model = ScriptedModel(
        calls(call("look_up", words="notice period")),
        says("30 days"),
        says("30 days, as Ada knows."),
    )
    async with local_runtime(clerk, model=model) as client:
        await client.run(clerk, "How long is the notice period?")
        for task in ("And Ada's?", "Please! " * 20):
            try:
                await client.run(clerk, task)
            except errors.GuardrailError as error:
                print("refused:", error.message)


if __name__ == "__main__":
    asyncio.run(main())
