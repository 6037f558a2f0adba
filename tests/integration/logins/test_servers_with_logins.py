"""The options of MCP servers that act for a person, and what such servers may do wrong."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import MCPEffect, ToolOutcome
from perdure.testing import says

from ...support.data_subjects import home
from ...support.logins import DONE, LOG_IN, LUNCH, Office, login_of, office, until

__all__ = ["home", "office"]


def contents(report: Any) -> list[str]:
    """The results of the calls of a turn."""
    return [result.content for step in report.steps for result in step.results]


@pytest.mark.accepts("G142")
async def test_tools_after_a_login_need_the_approval_that_the_agent_declares(
    office: Office,
) -> None:
    """And so does a server that may ask nothing itself ask for the login."""
    client = await office.client()
    options: Any = {"requires_approval": ["add_event"], "asks": False}
    async with office.worker(LOG_IN, LUNCH, DONE, **options).running(client.temporal):
        turn = await office.start(client)
        await office.log_in(client, turn)

        async def waits() -> bool:
            return any(one.tool.endswith("add_event") for one in await turn.pending_approvals())

        await until(waits)
        before = dict(office.calendar.events)
        [waiting] = await turn.pending_approvals()
        await turn.approve(waiting)
        await turn.result()

    assert before == {}
    assert office.calendar.events == {"anna": ["Lunch"]}


@pytest.mark.slow
@pytest.mark.accepts("G142")
async def test_declined_login_of_a_server_that_may_ask_nothing_is_not_asked_again(
    office: Office,
) -> None:
    client = await office.client()
    async with office.worker(LOG_IN, says("then not"), asks=False).running(client.temporal):
        turn = await office.start(client)
        waiting, _ = await login_of(turn)
        await turn.deny(waiting, "no", by="anna")
        report = await asyncio.wait_for(turn.result(), 60)

    assert report.output == "then not"


@pytest.mark.slow
@pytest.mark.accepts("G142")
async def test_tools_that_have_not_the_digest_of_the_agent_are_not_offered(office: Office) -> None:
    """They are known after the login alone, so the model reads why."""
    client = await office.client()
    script = LOG_IN, says("then not")
    async with office.worker(*script, digest="0" * 64).running(client.temporal):
        turn = await office.start(client)
        await office.log_in(client, turn)
        report = await turn.result()

    [content] = contents(report)
    assert "calendar" in content
    assert "digest" in content


@pytest.mark.slow
@pytest.mark.accepts("G142")
async def test_read_back_without_a_login_does_not_say_that_nothing_happened(
    office: Office,
) -> None:
    """A call takes effect, its answer is lost, and the login ends: the next login tells it."""
    office.calendar.loses.add("add_event")
    client = await office.client()
    effect = MCPEffect(effect=["title"], verify="whoami", settle=timedelta(seconds=1))
    script = LOG_IN, LUNCH, LOG_IN, DONE, DONE
    async with office.worker(*script, effects={"add_event": effect}).running(client.temporal):
        turn = await office.start(client)
        await office.log_in(client, turn)

        handle = client.temporal.get_workflow_handle(turn.id)

        async def is_refused() -> bool:
            running = (await handle.describe()).raw_description.pending_activities
            return any("verify" in one.activity_type.name and one.attempt > 1 for one in running)

        await until(is_refused)
        other = await office.start(client)
        await office.log_in(client, other)
        await other.result()
        report = await turn.result()

    result = report.steps[1].results[0]
    assert office.calendar.events == {"anna": ["Lunch"]}
    assert (result.outcome, result.content.splitlines()[0]) == (ToolOutcome.VERIFIED, "anna")
