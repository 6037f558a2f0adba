"""Run the code blocks of `docs/tools.md`."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from perdure import Agent, Registry
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.messages import UNKNOWN_NOTE
from perdure.worker import AgentWorker

from ..support.docs import given
from .conftest import Tell

UNKNOWN = f"whether it took effect is unknown{UNKNOWN_NOTE}"


@pytest.mark.slow
async def test_tools_run_as_the_page_says(tell: Tell) -> None:
    """A tool with an idempotency key, a method, two tools in parallel, one of an agent made by a
    factory, and one from a schema.
    """
    bank = given.Bank()

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[given.Deps]:
        yield given.Deps(bank)

    async with tell("tools") as story:
        story.given(Deps=given.Deps)
        payer = Agent(name="payer", model="main", tools=[await story.defining("pay")])
        library, buyer = await story.defining("agent"), await story.defining("buyer")
        registry: Registry = await story.defining("registry")
        teller = await story.defining("teller")
        settler = Agent(name="settler", model="main", tools=[await story.defining("settle")])
        to_check = await story.defining("to_check")
        for agent in (payer, library, buyer, teller, settler):
            registry.add(agent)
        model = ScriptedModel(
            *(calls(call("pay", invoice="17")), says("paid")),
            *(calls(call("add_book", title="Emma")), says("there")),
            *(calls(call("price", shop="north"), call("price", shop="south")), says("the same")),
            *(calls(call("prices", region="Oslo")), says("tolv")),
            *(calls(call("send_money", recipient="Ada", euros=30)), says("sent")),
            *(calls(call("settle", invoice="17")), says("settled")),
            *(calls(call("settle", invoice="none")), says("I do not know")),
        )
        client = await story.works(AgentWorker(registry, lifespan=lifespan), model)
        runs = [
            await client.run(name, "Go.", labels={"language": "Norwegian"})
            for name in ("payer", "library", "buyer", "seller", "teller", "settler", "settler")
        ]
        unsettled = [to_check(report) for report in runs]

    told = [[result.content for result in report.steps[0].results] for report in runs]
    assert told == [
        ["paid, reference R-1"],
        ["1 books"],
        ["30 euros in the north", "30 euros in the south"],
        ["Oslo: 12"],
        ["30 euros to Ada, 70 are left"],
        ["R-1"],
        [told[-1][0]],
    ]
    assert told[-1][0].startswith("settle: the bank gave no reference for none, after it was sent")
    assert told[-1][0].endswith(f" UTC; {UNKNOWN}")
    assert unsettled == [*([] for _ in range(6)), [f'settle {{"invoice": "none"}}: {told[-1][0]}']]
    assert model.requests[-7].system == "Answer in Norwegian."
    assert list(bank.paid.values()) == ["17", "17", "none"]
