"""Run the code blocks of `docs/questions.md`."""

from dataclasses import replace

import pytest

from perdure import Registry, ToolOutcome
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

from ..support.approving import pending
from .conftest import Tell


@pytest.mark.slow
async def test_questions_are_asked_and_answered_as_the_page_says(tell: Tell) -> None:
    """By the toolbox, and by tools whose answers are fixed in code."""
    async with tell("questions") as story:
        clerk = await story.defining("clerk")
        host = await story.defining("host")
        answer_all = await story.defining("answer_all")
        booking = story["Booking"]
        asks = calls(call("ask", question="Which?", options=["red", "green"], default="red"))
        both = calls(
            call("confirm_booking", question="Is it right?"),
            call("choose_size", question="Which size?"),
        )
        model = ByTask(
            {
                "Paint.": ScriptedModel(asks, says("painted")),
                "Book.": ScriptedModel(both, says("booked")),
            }
        )
        agents = [replace(agent, model="main") for agent in (clerk, host)]
        client = await story.works(AgentWorker(Registry(agents)), model)
        turn = await client.start("clerk", "Paint.")
        await pending(turn)
        await answer_all(client)
        painted = await turn.result()
        turn = await client.start("host", "Book.")
        confirm, size = await pending(turn, 2)
        await turn.answer(confirm, booking(guests=2))
        await turn.answer(size, "L")
        booked = await turn.result()

    [result] = painted.steps[0].results
    assert (result.outcome, result.content) == (ToolOutcome.DONE, "green")
    assert [decision.by for decision in painted.steps[0].decisions] == ["anna@example.com"]
    assert [result.content for result in booked.steps[0].results] == [
        '{"guests":2,"board":"breakfast","note":null}',
        "L",
    ]
    assert (confirm.kind, size.kind) == ("form", "question")
