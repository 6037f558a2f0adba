"""Run the code blocks of `docs/clients.md`."""

import pytest

from perdure import Agent, ToolMessage
from perdure.clients import AgentClient
from perdure.errors import LLMAuthError
from perdure.testing import ByTask, ScriptedModel, fails, says

from ..support.docs import given
from ..support.docs.until import until
from .conftest import Tell

SUPPORT = Agent(name="support", model="main")
CLERK = Agent(name="clerk", model="main", output=given.Invoice)


def model() -> ByTask:
    """The replies of the models in the page's turns."""
    return ByTask(
        {
            "Answer ticket 4710.": ScriptedModel(*[says("10 days")] * 3),
            "Answer ticket 4711.": ScriptedModel(says("30 days")),
            "Answer ticket 4712.": ScriptedModel(says("60 days")),
            "Read invoice 17.": ScriptedModel(says('{"total": "12.50", "due": "2026-12-01"}')),
            "Is this an invoice or a reminder? …": ScriptedModel(says('{"value": "reminder"}')),
            "I am Jo.": ScriptedModel(says("Hello, Jo."), says("Jo.")),
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
        await story.works([SUPPORT, CLERK], scripts)
        client = await (await story.defining("connect"))()
        assert (
            await (await story.defining("count"))(story.terminal.environment["TEMPORAL_ADDRESS"])
            == 0
        )
        stop = await story.defining("stop")
        spoken = client.session("spoken", "support")
        await spoken.say("Answer ticket 4710.")
        stopped = [
            await stop(handle, "jo@example.com")
            for handle in (
                await client.start("support", "Answer ticket 4710."),
                spoken,
                await client.start_batch("many", "support", ["Answer ticket 4710."]),
                await client.create_schedule(
                    "daily", "support", "Answer ticket 4710.", cron="0 1 * * *", timezone="UTC"
                ),
            )
        ]
        story.given(client=client, Invoice=given.Invoice, Kind=given.Kind)
        await (await story.defining("examples"))(client)
        values = await story.prints((await story.defining("values"))(client))
        answer = await story.defining("answer")
        failing = await client.start("support", "Answer without a key.")
        answers = [await answer(turn) for turn in (client.turn("ticket-4712"), failing)]
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

    assert values == "12.50\n2026-12-01\nreminder\n"
    assert answers == ["60 days", "LLM_AUTH after 0 steps: no key"]
    turn, session, batch, schedule = (said.split(" of support is ")[1] for said in stopped)
    assert (turn, session, schedule) == ("ended", "closed", "paused")
    assert batch in {"cancelled", "completed"}  # its turn may be over before
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
    return [entry.id async for entry in client.turns(labels={"job": "nightly"})]
