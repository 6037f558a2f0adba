"""Run the code blocks of `docs/effects.md`."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from perdure import Agent, OutcomeUnknown, Registry, ToolOutcome, errors, tool
from perdure.agents.effects import PinnedEffect
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.facts import WaitBegan
from perdure.worker import AgentWorker

from ..support.spending import until
from .conftest import Tell


@dataclass
class Services:
    """A bank, a mail server and a hotel, whose answers can be lost."""

    done: list[tuple[str, ...]] = field(default_factory=list)
    loses: int = 0

    def _answer(self, *what: str) -> Any:
        self.done.append(what)
        if self.loses:
            self.loses -= 1
            raise OutcomeUnknown("no answer")
        return SimpleNamespace(reference="4711", number="12")

    async def pay(self, customer: str, invoice: str, cents: int, key: str) -> Any:
        return self._answer("paid", customer, invoice)

    async def find(self, customer: str, invoice: str) -> Any:
        there = ("paid", customer, invoice) in self.done
        return SimpleNamespace(reference="4711") if there else None

    async def send(self, to: str, subject: str, text: str) -> None:
        self._answer("sent", to)

    async def book(self, room: str, day: str, guests: int, key: str) -> Any:
        if ("booked", key) in self.done:
            return SimpleNamespace(number="12")
        return self._answer("booked", key)


@dataclass
class Deps:
    """What the lifespan of the page's worker yields."""

    services: Services

    @property
    def bank(self) -> Services:
        return self.services

    @property
    def mail(self) -> Services:
        return self.services

    @property
    def hotel(self) -> Services:
        return self.services


def pays() -> Any:
    return calls(call("pay", customer="c", invoice="i", cents=300))


async def test_effects_are_as_the_page_says(tell: Tell) -> None:
    """A payment that is looked up, a mail that a person settles, and a booking with a key."""
    services = Services()

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[Deps]:
        yield Deps(services)

    async with tell("effects") as story:
        story.given(Deps=Deps)
        pay = await story.defining("pay")
        send_mail = await story.defining("send_mail")
        settle_all = await story.defining("settle_all")
        book = await story.defining("book")
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
        for name, item in (("payer", soon), ("writer", asking), ("host", book)):
            registry.add(Agent(name=name, model="main", tools=[item]))
        model = ScriptedModel(
            *(pays(), pays(), says("paid"), mails, says("sent"), books, books, says("booked"))
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
        booked = await client.run("host", "Book.")

    first, second = (step.results[0] for step in paid.steps[:2])
    assert first.outcome is ToolOutcome.VERIFIED
    assert first.content.startswith("paid, reference 4711\n")
    assert second.content.startswith("Done before, in step 1, and not again. The result was: paid")
    assert "sent, says the log of the mail server" in wrote.steps[0].results[0].content
    assert [step.results[0].outcome for step in booked.steps[:2]] == [
        ToolOutcome.UNKNOWN,
        ToolOutcome.DONE,
    ]
    assert [what for what, *_ in services.done] == ["paid", "sent", "booked"]
    assert errors.EffectUnknownError.code == "EFFECT_UNKNOWN"
