"""What others are told of logins at MCP servers: receivers of webhooks, and auditors."""

from __future__ import annotations

import pytest

from perdure.turn.facts import Decided

from ...support.auditing import audited, lately
from ...support.data_subjects import home
from ...support.logins import DONE, LOG_IN, LUNCH, Office, login_of, office, until
from ...support.receiver import Receiver

__all__ = ["home", "office"]


@pytest.mark.accepts("G148")
async def test_wait_for_a_login_is_told_once(office: Office, receiver: Receiver) -> None:
    """With what is asked for, and no token of the person; the end is told once as well."""
    client = await office.client()
    urls = {"on_wait": receiver.url("/waits"), "on_done": receiver.url("/done")}
    async with office.worker(LOG_IN, LUNCH, DONE).running(client.temporal):
        turn = await office.start(client, **urls)
        await receiver.until("/waits")
        await office.log_in(client, turn)
        await turn.result()
        await receiver.until("/done")

    [waits], [_] = receiver.of("/waits"), receiver.of("/done")
    [waiting] = waits.verified()["data"]["pending"]
    assert waiting["question"]["login"] == {"url": office.calendar.url}
    assert office.calendar.events == {"anna": ["Lunch"]}


@pytest.mark.accepts("G149")
async def test_login_is_one_decision_of_one_person_in_all_records(office: Office) -> None:
    """The audit, the report and the events have it once, for two turns that waited."""
    client, since = await office.client(), lately()
    async with office.worker(LOG_IN, LOG_IN, DONE, DONE).running(client.temporal):
        turns = [await office.start(client), await office.start(client)]
        for turn in turns:
            await login_of(turn)

        async def both() -> bool:
            waiting = client.turns(subject=office.home.subject, state="waiting")
            return len([one async for one in waiting]) == len(turns)

        await until(both)  # Temporal's list may lag behind
        await office.log_in(client, turns[0])
        reports = [await turn.result() for turn in turns]
        events = [[event async for event in turn.events()] for turn in turns]
        entries = await audited(client, since, {"answer"}, id_prefix="login-")

    acts = [[one.act for one in entries if one.id == turn.id] for turn in turns]
    people = {one.by for one in entries if one.act == "answer"}
    assert acts == [["start", "answer"]] * 2
    assert [len(report.steps[0].decisions) for report in reports] == [1, 1]
    assert {one.by for report in reports for one in report.steps[0].decisions} == people
    assert len(people) == 1
    assert [sum(isinstance(event.fact, Decided) for event in some) for some in events] == [1, 1]
    assert "accept" not in repr(entries)
