"""Run the code blocks of `docs/schedules.md`."""

import asyncio
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from perdure import Agent, Budget
from perdure.activities.settle_schedule import reason
from perdure.clients.schedules.definition import turn_id_of
from perdure.testing import FunctionModel, ModelRequest, Reply, says
from perdure.turn.schedule_account import ScheduleAccount
from perdure.values.budgets import Spending

from ..support.scheduled_messages import turn_with
from ..support.scheduling import existing
from .conftest import Tell

SLOT = datetime(2026, 11, 23, 7, tzinfo=ZoneInfo("Europe/Berlin"))


@pytest.mark.slow
async def test_schedule_does_what_the_page_says(tell: Tell) -> None:
    """Its turns are told what the page shows, and the commands of the page succeed."""
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Reply:
        asked.append(request)
        return says("the digest")

    async with tell("schedules") as story:  # the commands are run at its end
        client = await story.works(Agent(name="reporter", model="main"), FunctionModel(answer))
        daily = await (await story.defining("digest"))(client)
        shown = await story.up_to("What the model is told", "text")
        await daily.backfill(SLOT, SLOT + timedelta(minutes=1))
        turn = await existing(client, turn_id_of(daily.id, SLOT))
        await turn.result()
        again = await (await story.defining("ask_again"))(client)
        message = await again.run_now()
        await (await turn_with(client.session("ticket-4711"), message)).result()
        await again.delete()
        reports = await (await story.defining("report"))(client, ["one", "two"])
        many = await client.batch(await reports.run_now()).wait()
        await reports.delete()
        watch = await (await story.defining("at_most"))(client)
        await client.turn(await watch.run_now()).result()
        await watch.delete()
        spent = await story.up_to("A budget for all turns", "text")
        looked = await story.prints((await story.defining("look"))(client))
        follow = (await story.defining("follow"))(client, None)
        following = asyncio.create_task(story.prints(follow))
        await (await story.defining("manage"))(client)
        followed = await following
        daily = await story["digest"](client)
        ran = await story.prints((await story.defining("last_week"))(daily))
        await daily.delete()

    assert asked[0].messages[0].text == shown.text.removesuffix("\n")  # type: ignore[union-attr]
    account = ScheduleAccount(
        total=Budget(usd="50"), spent=Spending(usd=Decimal("50.01")), since=SLOT
    )
    assert spent.text == f"{reason(account)}\n"
    assert many.done == 2
    assert asked[1].messages[-1].text.endswith("what has changed.")  # type: ignore[union-attr]
    assert looked.splitlines()[0] == "0 7 * * 1-5 Europe/Berlin False "
    assert f"digest-2026-11-23T06:00:00Z {SLOT} completed" in looked
    assert "digest-2026-11-23T06:00:00Z" in followed
    assert ran == "5\n"
