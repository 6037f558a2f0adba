"""MCP servers that act for a person: a turn waits until its data subject has logged in."""

from __future__ import annotations

import pytest

from perdure import errors
from perdure.agents.mcp_logins import MCPLogin
from perdure.clients import AgentClient, Turn
from perdure.testing import ScriptedModel, says
from perdure.values.approvals import PendingApproval
from perdure.values.messages import ToolMessage
from perdure.values.reports import AgentReport

from ...support.data_subjects import home
from ...support.logins import DONE, LOG_IN, LUNCH, SEND, Office, login_of, office, until

__all__ = ["home", "office"]

DONE_LOGIN = (
    "{} is logged in at calendar. You have its tools from now on: calendar__whoami,"
    " calendar__add_event"
)
DECLINED = (
    "calendar__log_in was not called: {} has to log in at the MCP server 'calendar', and declined"
    " to"
)


def results(report: AgentReport) -> list[str]:
    """The results of the calls of a turn."""
    return [result.content for step in report.steps for result in step.results]


async def pending_of(turn: Turn[str], tool: str) -> list[PendingApproval]:
    """The calls of a tool that wait, once there are some."""
    found: list[PendingApproval] = []

    async def waits() -> bool:
        found[:] = [one for one in await turn.pending_approvals() if one.tool == tool]
        return bool(found)

    await until(waits)
    return found


async def asked_again(turn: Turn[str]) -> bool:
    """Whether a person is asked once more about a call."""
    return any(one.reason for one in await turn.pending_approvals())


async def replay(client: AgentClient, turn: Turn[str]) -> None:
    """Replay the history of a turn with the keys of this process."""
    from temporalio.worker import Replayer

    from perdure.workflows import WORKFLOWS

    history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
    replayer = Replayer(data_converter=client.temporal.data_converter, workflows=WORKFLOWS)
    assert (await replayer.replay_workflow(history)).replay_failure is None


@pytest.mark.accepts("G125")
async def test_turn_waits_for_the_login_and_goes_on_with_the_tools(office: Office) -> None:
    client = await office.client()
    async with office.worker(LOG_IN, LUNCH, DONE).running(client.temporal):
        turn = await office.start(client)
        waiting, asked = await login_of(turn)
        await office.log_in(client, turn)
        report = await turn.result()
        await replay(client, turn)

    assert asked.url == office.calendar.url
    assert waiting.question is not None
    assert office.home.subject in waiting.question.text
    assert office.calendar.url in waiting.question.text
    assert office.calendar.events == {"anna": ["Lunch"]}
    assert results(report) == [
        DONE_LOGIN.format(office.home.subject),
        "Lunch is event 1 of anna",
    ]


@pytest.mark.accepts("G126")
async def test_login_is_that_of_one_subject_and_serves_its_next_turn(office: Office) -> None:
    client = await office.client()
    other = f"other-{office.home.id}"
    async with office.worker(LOG_IN, LUNCH, DONE, LUNCH, DONE, LOG_IN, LUNCH, DONE).running(
        client.temporal
    ):
        first = await office.start(client)
        await office.log_in(client, first)
        await first.result()
        await (await office.start(client)).result()
        office.issuer.person = {"sub": "bert"}
        third = await office.start(client, subject=other)
        await office.log_in(client, third)
        await third.result()

    assert office.calendar.events == {"anna": ["Lunch", "Lunch"], "bert": ["Lunch"]}


@pytest.mark.accepts("G127")
async def test_model_reads_that_the_person_has_declined(office: Office) -> None:
    client = await office.client()
    async with office.worker(LOG_IN, says("then not")).running(client.temporal):
        turn = await office.start(client)
        waiting, _ = await login_of(turn)
        await turn.deny(waiting, "no calendar, please", by="anna")
        report = await turn.result()

    assert results(report) == [DECLINED.format(office.home.subject)]
    assert office.calendar.events == {}


@pytest.mark.accepts("G127")
async def test_accept_without_a_login_asks_again(office: Office) -> None:
    """Somebody who says that it is done is not believed."""
    client = await office.client()
    async with office.worker(LOG_IN, LUNCH, DONE).running(client.temporal):
        turn = await office.start(client)
        waiting, _ = await login_of(turn)
        await turn.answer(waiting, "accept", by="mallory")
        await until(lambda: asked_again(turn))
        await office.log_in(client, turn)
        await turn.result()

    assert office.calendar.events == {"anna": ["Lunch"]}


@pytest.mark.accepts("G128")
async def test_call_that_is_refused_for_want_of_a_login_is_made_once_after_it(
    office: Office,
) -> None:
    """The login is taken back while the turn runs: the call waits, and takes effect once."""
    client = await office.client()
    async with office.worker(LOG_IN, SEND, LUNCH, DONE).running(client.temporal):
        turn = await office.start(client)
        await office.log_in(client, turn)
        [waiting] = await pending_of(turn, "send")
        office.issuer.revoke("anna")
        await turn.approve(waiting)
        await login_of(turn, "add_event")
        before = dict(office.calendar.events)
        await office.log_in(client, turn)
        await turn.result()
        await replay(client, turn)

    assert before == {}
    assert office.calendar.events == {"anna": ["Lunch"]}


@pytest.mark.accepts("G130")
async def test_login_asks_for_the_scopes_that_a_call_lacks(office: Office) -> None:
    office.calendar.scopes["add_event"] = "events.write"
    office.issuer.metadata["scopes_supported"] = ["events.write", "profile"]
    client = await office.client()
    login = MCPLogin(scopes=["profile"])
    async with office.worker(LOG_IN, LUNCH, DONE, login=login).running(client.temporal):
        turn = await office.start(client)
        first = await office.log_in(client, turn)
        await login_of(turn, "add_event")
        second = await office.log_in(client, turn)
        await turn.result()

    assert first.scopes == ("profile",)
    assert second.scopes == ("profile", "events.write")
    assert office.calendar.events == {"anna": ["Lunch"]}


@pytest.mark.accepts("G146")
async def test_server_that_refuses_a_login_with_all_that_it_demands(office: Office) -> None:
    """The person is asked once, and the model reads it."""
    office.calendar.scopes["add_event"] = "events.write"
    office.calendar.is_never_enough = True
    office.issuer.metadata["scopes_supported"] = ["events.write"]
    model = ScriptedModel(LOG_IN, LUNCH, DONE)
    client = await office.client()
    async with office.worker(model=model).running(client.temporal):
        turn = await office.start(client)
        await office.log_in(client, turn)
        await office.log_in(client, turn, "add_event")
        await turn.result()
        await replay(client, turn)

    last = model.requests[-1].messages[-1]
    assert isinstance(last, ToolMessage)
    assert last.results[0].is_error
    assert "with the scopes that it demands (events.write), and it refuses the call" in str(last)
    assert office.calendar.events == {}


@pytest.mark.accepts("G133")
async def test_turn_without_a_subject_does_not_begin(office: Office) -> None:
    client = await office.client()
    async with office.worker(LOG_IN).running(client.temporal):
        turn = await client.start("secretary", "Note it.")
        with pytest.raises(errors.ConfigurationError, match=r"start the turn for a data subject"):
            await turn.result()


@pytest.mark.accepts("G137")
async def test_turn_that_may_not_use_the_server_asks_nobody(office: Office) -> None:
    """The server is not contacted, and the tool that asks is not offered."""
    client = await office.client()
    asked = office.calendar.requests
    async with office.worker(says("nothing to do")).running(client.temporal):
        turn = await office.start(client, allowed_tools=[])
        await turn.result()

    assert office.calendar.requests == asked


@pytest.mark.accepts("G137")
async def test_tools_after_a_login_are_those_that_the_turn_allows(office: Office) -> None:
    client = await office.client()
    allowed = ["calendar__whoami"]  # who allows it allows the login
    async with office.worker(LOG_IN, LUNCH).running(client.temporal):
        turn = await office.start(client, allowed_tools=allowed)
        await office.log_in(client, turn)
        with pytest.raises(errors.AutonomyBoundaryError):
            await turn.result()

    assert office.calendar.events == {}


@pytest.mark.accepts("G139")
async def test_one_login_answers_all_turns_of_the_subject_that_wait(office: Office) -> None:
    client = await office.client()
    async with office.worker(LOG_IN, LOG_IN, DONE, DONE).running(client.temporal):
        turns = [await office.start(client) for _ in range(2)]
        for turn in turns:
            await login_of(turn)

        async def both() -> bool:
            waiting = client.turns(subject=office.home.subject, state="waiting")
            return len([one async for one in waiting]) == len(turns)

        await until(both)  # Temporal's list may lag behind
        await office.log_in(client, turns[0])
        for turn in turns:
            assert (await turn.result()).output == "noted"


@pytest.mark.accepts("G131")
async def test_erasure_destroys_the_login(office: Office) -> None:
    client = await office.client()
    async with office.worker(LOG_IN, DONE, LOG_IN, DONE).running(client.temporal):
        turn = await office.start(client)
        await office.log_in(client, turn)
        await turn.result()
        before = office.home.store.secret(office.home.subject, f"tokens {office.calendar.url}")
        waits = await office.start(client)
        assert (await waits.result()).output == "noted"
        receipt = await client.erase(office.home.subject, by="officer")
    after = office.home.store.secret(office.home.subject, f"tokens {office.calendar.url}")

    assert before is not None
    assert after is None
    [store] = [place.what for place in receipt.places if place.place == "key store"]
    assert "with the tokens of logins" in store


@pytest.mark.accepts("G132")
async def test_tokens_are_not_in_the_history_of_a_turn(office: Office) -> None:
    """Nor is the client's secret; and they are encrypted in the store."""
    client = await office.client()
    async with office.worker(LOG_IN, LUNCH, DONE).running(client.temporal):
        turn = await office.start(client)
        await office.log_in(client, turn)
        await turn.result()
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
        codec = client.temporal.data_converter.payload_codec
        assert codec is not None
        decoded = [str(event) for event in history.events]
        report = await turn.result()
    stored = office.home.store.secret(office.home.subject, f"tokens {office.calendar.url}")
    assert stored is not None
    texts = [*decoded, report.model_dump_json(), repr(stored.sealed)]
    tokens = office.calendar.tokens

    assert tokens
    for token in tokens:
        assert not [text for text in texts if token in text or token[-24:] in text]
