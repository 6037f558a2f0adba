"""The text of delegates and of sessions, while it is generated: each piece names its turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure import Agent, OutputGuardrail
from perdure.clients import Event, SessionEvent, TextBegins, TextVoid, TurnText
from perdure.clients.turns.handle import Turn
from perdure.session import facts
from perdure.testing import ScriptedModel, says
from perdure.turn.facts import ChildEnded, ChildScheduled
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime
from ...support.delegating import delegate, spawn
from ...support.gateway.served import messages, served
from ...support.speaking import Speaker

SECONDS = 30
BOSS = Agent(name="boss", model="boss:m", delegates=["clerk"])
CLERK = Agent(name="clerk", model="clerk:m")


@contextlib.asynccontextmanager
async def working(
    runtime: Runtime, *parts: str, boss: ScriptedModel | None = None, clerk: Agent = CLERK
) -> AsyncIterator[tuple[Speaker, RecordingClient]]:
    """A boss that delegates to a clerk whose model says these parts."""
    speaker = Speaker(*parts)
    script = boss or ScriptedModel(delegate("clerk", "Say it."), says("The clerk has said it."))
    app = AgentWorker([BOSS, clerk], providers={"boss": script, "clerk": speaker})
    async with runtime(app) as client, asyncio.timeout(SECONDS):
        try:
            yield speaker, client
        finally:
            speaker.go_on()


async def child_of(turn: Turn) -> str:
    """The id of the turn below, once it has begun."""
    async with contextlib.aclosing(turn.events()) as events:
        async for event in events:
            if isinstance(event.fact, ChildScheduled):
                return event.fact.turn_id
    raise AssertionError("there is no turn below")


@pytest.mark.accepts("E189")
async def test_text_of_a_delegate_comes_while_it_is_generated(runtime: Runtime) -> None:
    """Each part is given when the one before it was heard, and all before the end is told."""
    async with working(runtime, "one ", "two ", "three") as (speaker, client):
        turn = await client.start("boss", "go", live=True)
        heard = list[object]()
        async for item in turn.live(delegates=True):
            if isinstance(item, TurnText) and isinstance(item.piece, str):
                heard.append(item.piece)
                for gate in speaker.gates[: len(heard) - 1]:  # the mark was heard, too
                    gate.set()
            elif isinstance(item, TurnText | str):
                heard.append(item)
            elif isinstance(item, Event) and isinstance(item.fact, ChildEnded):
                heard.append("ended")
        child = await child_of(turn)
        own = [said async for said in turn.text()]

    begins = TurnText(child, "clerk", TextBegins(1))
    assert heard == [begins, "one ", "two ", "three", "ended", "The clerk has said it."]
    assert own == [TextBegins(2), "The clerk has said it."]


@pytest.mark.accepts("E189")
async def test_one_who_comes_back_hears_of_delegates_what_is_new(runtime: Runtime) -> None:
    """From the cursor of an event during the second task: only the text of that one."""
    script = ScriptedModel(
        delegate("clerk", "First."), delegate("clerk", "Second."), says("Both are done.")
    )
    async with working(runtime, "one ", "two", boss=script) as (speaker, client):
        turn = await client.start("boss", "go", live=True)
        began = list[tuple[str, str]]()
        async for event in turn.events():
            if isinstance(event.fact, ChildScheduled):
                began.append((event.fact.turn_id, event.cursor))
                if len(began) == 2:
                    speaker.gates[0].clear()
                    break
                speaker.go_on()
        heard = list[TurnText]()
        async for item in turn.live(began[1][1], delegates=True):
            if isinstance(item, TurnText):
                heard.append(item)
                speaker.go_on()

    assert {item.turn_id for item in heard} == {began[1][0]}
    assert "".join(item.piece for item in heard if isinstance(item.piece, str)) == "one two"


@pytest.mark.accepts("E193")
async def test_one_who_comes_while_a_delegate_runs_can_leave_out_those_before(
    runtime: Runtime,
) -> None:
    """The text of the delegate that runs comes from its beginning, that of the first does not; from
    a cursor, so does the text of one that ran then.
    """
    script = ScriptedModel(
        delegate("clerk", "First."), delegate("clerk", "Second."), says("Both are done.")
    )
    async with working(runtime, "one ", "two", boss=script) as (speaker, client):
        turn = await client.start("boss", "go", live=True)
        began, cursor = list[str](), ""
        async for event in turn.events():
            if isinstance(event.fact, ChildScheduled):
                began.append(event.fact.turn_id)
                cursor = event.cursor
                if len(began) == 2:
                    speaker.gates[0].clear()
                    break
                speaker.go_on()
        heard = list[TurnText]()
        async for item in turn.live(delegates="running"):
            if isinstance(item, TurnText):
                heard.append(item)
                speaker.go_on()
        late = turn.live(cursor, delegates="running")
        later = [item async for item in late if isinstance(item, TurnText)]
        over = turn.live(delegates="running")
        last = [item async for item in over if isinstance(item, TurnText)]

    assert {item.turn_id for item in (*heard, *later)} == {began[1]}
    for items in (heard, later):
        assert "".join(item.piece for item in items if isinstance(item.piece, str)) == "one two"
    assert last == []


@pytest.mark.slow
@pytest.mark.accepts("E189", "E193")
async def test_text_names_its_agent_for_one_who_comes_after_it_was_begun(runtime: Runtime) -> None:
    """From its beginning, also if the turn above has had an event since."""
    async with working(runtime, "one ", "two") as (speaker, client):
        turn = await client.start("boss", "go", live=True)
        async for said in turn.text(delegates=True):
            if isinstance(said, TurnText) and said.piece == "one ":
                break
        await turn.steer("Hurry.")
        heard = list[TurnText]()
        async for item in turn.live(delegates="running"):
            if isinstance(item, TurnText):
                heard.append(item)
                speaker.go_on()

    assert {item.agent for item in heard} == {"clerk"}
    assert [item.piece for item in heard] == [TextBegins(1), "one ", "two"]


@pytest.mark.accepts("E194")
async def test_text_of_a_delegate_that_is_checked_comes_when_it_has_passed(
    runtime: Runtime,
) -> None:
    """As a whole, and before the end of the delegate is told; none of it before."""
    checked, may_pass = asyncio.Event(), asyncio.Event()

    async def check(_: object) -> bool:
        checked.set()
        await may_pass.wait()
        return True

    guarded = Agent(name="clerk", model="clerk:m", middleware=[OutputGuardrail(check)])
    async with working(runtime, "one ", "two", clerk=guarded) as (speaker, client):
        speaker.go_on()
        turn = await client.start("boss", "go", live=True)
        heard = list[object]()

        async def hear() -> None:
            async for item in turn.live(delegates=True):
                if isinstance(item, TurnText):
                    heard.append(item.piece)
                elif isinstance(item, Event) and isinstance(item.fact, ChildEnded):
                    heard.append("ended")

        hearing = asyncio.create_task(hear())
        await checked.wait()
        before = [*heard]
        may_pass.set()
        await hearing

    assert before == []
    assert heard == [TextBegins(1), "one two", "ended"]


@pytest.mark.slow
@pytest.mark.accepts("E189")
async def test_texts_of_concurrent_delegates_are_told_apart(runtime: Runtime) -> None:
    """Five at once, one of which fails and is voided."""
    script = ScriptedModel(
        spawn(*((("clerk", f"Task {number}.")) for number in range(5))), says("done")
    )
    async with working(runtime, "one ", "two ", "three", boss=script) as (speaker, client):
        turn = await client.start("boss", "go", live=True)
        heard = dict[str, str]()
        async for item in turn.text(delegates=True):
            if not isinstance(item, TurnText):
                continue
            if isinstance(item.piece, str):
                heard[item.turn_id] = heard.get(item.turn_id, "") + item.piece
                if len(heard) == 5:
                    speaker.go_on()
            elif isinstance(item.piece, TextVoid):
                heard[item.turn_id] = ""

    assert len(heard) == 5
    assert set(heard.values()) == {"one two three"}


@pytest.mark.slow
@pytest.mark.accepts("E189")
async def test_turn_that_is_not_live_tells_the_text_of_delegates_when_it_is_recorded(
    runtime: Runtime,
) -> None:
    async with working(runtime, "one ", "two") as (speaker, client):
        speaker.go_on()
        turn = await client.start("boss", "go")
        heard = [said async for said in turn.text(delegates=True)]
        child = await child_of(turn)

    assert heard == [
        TurnText(child, "clerk", TextBegins(1)),
        TurnText(child, "clerk", "one two"),
        TextBegins(2),
        "The clerk has said it.",
    ]


@pytest.mark.accepts("E190")
async def test_session_is_one_stream_with_the_text_of_its_turns(runtime: Runtime) -> None:
    """Two turns; one who comes back during the second gets that, and nothing of the first."""
    script = ScriptedModel(says("First answer."), delegate("clerk", "Say it."), says("Second."))
    async with working(runtime, "one ", "two", boss=script) as (speaker, client):
        session = client.session("talk", "boss", live=True)
        await session.say("first")
        heard, cursor = list[object](), ""
        async for item in session.live():
            if isinstance(item, TurnText):
                heard.append((item.turn_id, item.agent, item.piece))
            elif isinstance(item.fact, facts.TurnBegan | facts.TurnOver):
                heard.append(type(item.fact).__name__)
                if heard.count("TurnOver") == 1 and heard[-1] == "TurnOver":
                    await session.say("second")
                if heard.count("TurnBegan") == 2:
                    cursor = item.cursor
                    break
        again = list[TurnText]()
        async for item in session.live(cursor):
            if isinstance(item, SessionEvent):
                if isinstance(item.fact, facts.TurnOver):
                    break
                continue
            again.append(item)
            speaker.go_on()
        await session.close()

    assert heard[:5] == [
        "TurnBegan",
        ("talk/1", "boss", TextBegins(1)),
        ("talk/1", "boss", "First answer."),
        "TurnOver",
        "TurnBegan",
    ]
    assert [item.turn_id for item in again][-1] == "talk/2"
    assert "".join(item.piece for item in again if isinstance(item.piece, str)) == "one twoSecond."


@pytest.mark.accepts("E190")
async def test_text_of_a_tree_and_of_a_session_over_http(runtime: Runtime) -> None:
    """Messages of text have no id and name their turn and agent; without the option, none comes."""
    async with (
        working(runtime, "one ", "two") as (speaker, client),
        served(client) as http,
    ):
        speaker.go_on()
        session = client.session("@acme/talk", "boss", live=True)
        turn = await (await session.say("go")).turn()
        await turn.result()
        await session.close()

        async def told(path: str, **query: str) -> list[dict[str, Any]]:
            return [data async for _, data in messages(http, path, **query)]

        stream, turn_stream = "/v1/sessions/talk/events", "/v1/turns/talk/1/events"
        plain, with_text = await told(stream), await told(stream, text="true")
        own, of_tree = await told(turn_stream), await told(turn_stream, delegates="true")

    said = [one for one in with_text if one["kind"] == "text"]
    assert [(one["agent"], one["text"]) for one in said] == [
        ("clerk", "one two"),
        ("boss", "The clerk has said it."),
    ]
    assert said[1]["turn"] == "@acme/talk/1"
    assert [one for one in with_text if not one["kind"].startswith("text")] == plain
    assert [one["text"] for one in own if one["kind"] == "text"] == ["The clerk has said it."]
    assert [one["text"] for one in of_tree if one["kind"] == "text"] == [
        "one two",
        "The clerk has said it.",
    ]
