"""Answers that are values.

With a model of yours: `perdure dev examples.typed_output:app`; without one:
`python examples/typed_output.py`.
"""

import asyncio
from datetime import date
from decimal import Decimal
from enum import Enum

from pydantic import BaseModel, Field

from perdure import Agent, Registry
from perdure.testing import ScriptedModel, local_runtime
from perdure.worker import AgentWorker


class Invoice(BaseModel):
    number: str = Field(description="As it is printed, such as RE-1042.")
    total: Decimal = Field(ge=0, description="In euros, taxes included.")
    due: date | None = None


class Kind(Enum):
    INVOICE = "invoice"
    REMINDER = "reminder"


clerk = Agent(
    name="clerk",
    description="Reads invoices",
    instructions="Read the invoice.",
    model="main",
    output=Invoice,
)
app = AgentWorker(Registry([clerk]), models={"main": "openai:gpt-5-mini"})

LETTER = "Invoice RE-1042 over EUR 119.00, payable until 24 December 2026."


async def main() -> None:
    # the first answer is not an Invoice, so the model is asked again with the reason
    model = ScriptedModel(
        "The invoice is over EUR 119.00.",
        '{"number": "RE-1042", "total": 119.00, "due": "2026-12-24"}',
        '{"value": "invoice"}',
    )
    async with local_runtime(app, model=model) as client:
        report = await client.run(clerk, LETTER)
        print(report.output.total + 1, report.output.due, f"in {report.model_calls} calls")

        kind = await client.generate("main", f"What is this? {LETTER}", Kind)
        print(kind)


if __name__ == "__main__":
    asyncio.run(main())
