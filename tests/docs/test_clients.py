"""Run the code blocks of `docs/clients.md`."""

import json
from datetime import timedelta

import pytest

from perdure import Agent, ToolMessage, tool
from perdure.clients import AgentClient
from perdure.errors import LLMAuthError, LLMUnavailableError
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says, slowly

from . import given
from .conftest import Tell
from .until import until


def pay() -> str:
    """Pay."""
    return "paid"


SUPPORT = Agent(name="support", model="main")
CLERK = Agent(name="clerk", model="main", output=given.Invoice)
PAYER = Agent(name="payer", model="main", tools=[tool(requires_approval=True)(pay)])
BROKEN = slowly(fails(LLMUnavailableError("gone")), pieces=["30 d"], pause=timedelta(seconds=1))


def model() -> ByTask:
    """The replies of the models in the page's turns."""
    return ByTask(
        {
            "Answer ticket 4711.": ScriptedModel(says("30 days"), BROKEN, says("31 days")),
            "Answer ticket 4712.": ScriptedModel(says("60 days")),
            "Read invoice 17.": ScriptedModel(says('{"total": "12.50", "due": "2026-12-01"}')),
            "Is this an invoice or a reminder? …": ScriptedModel(says('{"value": "reminder"}')),
            "I am Jo.": ScriptedModel(says("Hello, Jo."), says("Jo.")),
            "Pay.": ScriptedModel(calls(call("pay"))),
            "Answer without a key.": ScriptedModel(fails(LLMAuthError("no key"))),
            "Answer ticket 4713.": ScriptedModel(says("90 days")),
            "Sum up the tickets of today.": ScriptedModel(says("three tickets")),
        }
    )


@pytest.mark.accepts("P21", "P22")
async def test_client_does_what_the_page_says(tell: Tell) -> None:
    """Each function of the page is called with suitable turns."""
    scripts = model()
    async with tell("clients") as story:
        await story.works([SUPPORT, CLERK, PAYER], scripts)
        client = await (await story.defining("connect"))()
        assert (
            await (await story.defining("count"))(story.terminal.environment["TEMPORAL_ADDRESS"])
            == 0
        )
        story.given(client=client, Invoice=given.Invoice, Kind=given.Kind)
        await (await story.defining("examples"))(client)
        values = await story.prints((await story.defining("values"))(client))
        followed = await story.prints(
            (await story.defining("follow"))(client.turn("ticket-4711"), None)
        )
        public = [
            json.loads(one)
            for one in await (await story.defining("for_a_browser"))(client.turn("ticket-4711"))
        ]
        far = await (await story.defining("how_far"))(client, "ticket-4711")
        waiting = await story["how_far"](client, (await client.start("payer", "Pay.")).id)
        heard = await story.prints((await story.defining("show"))(client))
        answer = await story.defining("answer")
        failing = await client.start(
            "support", "Answer without a key.", id="no-key", labels={"customer": "Jo"}
        )
        answers = [await answer(turn) for turn in (client.turn("ticket-4712"), failing)]
        failed_for = await story.defining("failed_for")
        failed = await until(lambda: failed_for(client, "Jo"), "the turn that failed is listed")
        one_page = await story.defining("one_page")
        page = await one_page(client, None)
        context = await story.up_to("Context and history", "text")
        scripts.scripts[context.text.strip()] = ScriptedModel("two months")
        knowing = await client.run(
            "support", "Answer ticket 4711.", context={"customer": "Jo, since 2019"}
        )
        go_on, rows = await story.defining("go_on"), dict[str, bytes]()
        talk = [await go_on(client, rows, "jo", said) for said in ("I am Jo.", "What is my name?")]
        remembered = scripts.scripts["I am Jo."].requests[1].messages
        each_night = await story.defining("each_night")
        from_outside = await client.turn("ticket-4713").result()
        await each_night(client)
        await client.temporal.get_schedule_handle("nightly").trigger()
        nightly = await until(
            lambda: listed(client), "the turn that the schedule started is listed"
        )
        summed_up = await client.turn(nightly[0]).result()

    assert page == ([], None)
    assert values == "12.50\n2026-12-01\nreminder\n"
    assert "TurnStarted" in followed.splitlines()[0]
    assert (public[0]["kind"], public[-1]["text"], far) == (
        "turn_started",
        "30 days",
        "completed: 30 days",
    )
    assert waiting.startswith("step 1, waits for approval: ")
    assert ", waits: ['approval of pay'], spent $0.0" in waiting
    assert (
        heard == "step 1, attempt 1\n30 dwhat came since does not count\nstep 1, attempt 2\n31 days"
    )
    assert answers == ["60 days", "LLM_AUTH after 0 steps: no key"]
    assert failed == ["no-key: Answer without a key."]
    assert knowing.output == "two months"
    assert talk == ["Hello, Jo.", "Jo."]
    assert [message.text for message in remembered if not isinstance(message, ToolMessage)] == [
        "I am Jo.",
        "Hello, Jo.",
        "What is my name?",
    ]
    assert (from_outside.output, summed_up.output) == ("90 days", "three tickets")
    assert nightly[0].startswith("nightly-")


async def listed(client: AgentClient) -> list[str]:
    """The ids of the schedule's turns."""
    return [entry.id async for entry in client.list(labels={"job": "nightly"})]
