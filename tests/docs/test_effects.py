"""Run the code blocks of `docs/effects.md`."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent, Registry, ToolOutcome, errors, tool
from perdure.agents.effects import PinnedEffect
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.facts import WaitBegan
from perdure.worker import AgentWorker

from ..support.approving import pending
from ..support.docs import given
from ..support.spending import until
from .conftest import Tell


def pays() -> Any:
    return calls(call("pay", customer="c", invoice="i", cents=300))


@pytest.mark.slow
async def test_effects_are_as_the_page_says(tell: Tell) -> None:
    """A payment that is looked up, a mail that a person settles, a booking with a key, and a charge
    that is taken back.
    """
    services = given.Service()

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[given.Services]:
        yield given.Services(services)

    async with tell("effects") as story:
        story.given(Services=given.Services)
        pay = await story.defining("pay")
        send_mail = await story.defining("send_mail")
        settle_all = await story.defining("settle_all")
        settle_later = await story.defining("settle_later")
        book = await story.defining("book")
        cashier = await story.defining("cashier")
        undo_all = await story.defining("undo_all")
        assert pay.pinned_effect == PinnedEffect(
            has_key=True, verifies=True, settle_s=120, verify_timeout_s=60
        )
        soon = tool(  # two minutes are long
            name="pay",
            effect=pay.effect,
            verify=pay.verify,
            settle=timedelta(milliseconds=1),
            idempotent=True,
        )(pay.function)
        asking = tool(name="send_mail", effect=send_mail.effect, on_unknown="pause")(
            send_mail.function
        )
        mails = calls(call("send_mail", to="ada", subject="hello", text="…"))
        books = calls(call("book", room="1", day="2026-12-01"))
        registry = Registry()
        for name, item in (
            ("payer", soon),
            ("writer", asking),
            ("sender", send_mail),
            ("host", book),
        ):
            registry.add(Agent(name=name, model="main", tools=[item]))
        registry.add(replace(cashier, model="main"))
        charges = calls(call("charge", customer="c", invoice="i"))
        model = ScriptedModel(
            *(pays(), pays(), says("paid"), mails, says("sent"), mails, says("perhaps")),
            *(mails, says("sent"), books, books, says("booked")),
            *(charges, says("charged")),
        )
        client = await story.works(AgentWorker(registry, lifespan=lifespan), model)
        services.loses = 1
        paid = await client.run("payer", "Pay.")
        services.loses = 1
        turn = await client.start("writer", "Write.")
        await until(turn, WaitBegan)
        await settle_all(turn)
        wrote = await turn.result()
        services.loses = 1
        sent = await client.start("sender", "Write.")
        await settle_later(sent, await sent.result())
        again = await (await sent.fork(0)).result()
        services.loses = 1
        booked = await client.run("host", "Book.")
        turn = await client.start("cashier", "Charge.")
        await turn.result()
        undo = await turn.undo("call_1_1", by="anna")
        [refund] = await pending(undo)
        await undo.approve(refund)
        await undo_all(turn)
        [charged] = await turn.effects()

    first, second = (step.results[0] for step in paid.steps[:2])
    assert first.outcome is ToolOutcome.VERIFIED
    assert first.content.startswith("paid, reference 4711\n")
    assert second.content.startswith("Done before, in step 1, and not again. The result was: paid")
    assert "sent, says the log of the mail server" in wrote.steps[0].results[0].content
    assert again.steps[0].results[0].content.endswith("sent, says the log of the mail server")
    assert [step.results[0].content for step in booked.steps[:2]] == [
        "booked as 12",
        "Done before, in step 1, and not again. The result was: booked as 12",
    ]
    done = [what for what, *_ in services.done]
    assert done == ["paid", "sent", "sent", "booked", "charged", "refunded"]
    assert charged.status == "undone"
    assert errors.EffectUnknownError.code == "EFFECT_UNKNOWN"
