"""Sessions: conversations of many turns."""

import asyncio
import contextlib
import secrets
from typing import Any

import pytest
from temporalio.converter import DataConverter

from perdure import Agent, Budget, Outcome, OutputGuardrail, errors, limits
from perdure.clients import Session, SessionEntry
from perdure.session.facts import TurnOver
from perdure.session.state import fold
from perdure.temporal.names import CLOSE
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.values.messages import AssistantMessage

from ...conftest import RecordingClient, Runtime
from ...support.conversing import Paced, session_of, texts, until_idle, until_recorded
from ...support.held_records import HeldRecords
from ...support.spending import SOON_S, app, look, queue, spender


@pytest.mark.accepts("E7", "E51")
async def test_each_turn_begins_with_the_messages_of_those_before(runtime: Runtime) -> None:
    """Tool calls and results included; readers see the same messages as the models."""
    model = ScriptedModel(
        calls(call("look"), text="I look."), says("found"), says("as before"), says("bye")
    )
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        first = await session.say("Find it.", id="m-1")
        report = await first.result()
        second = await session.say("And now?")
        await second.result()
        third = await session.say("Thanks.")
        await third.result()
        again = await session.say("Find it.", id="m-1")
        known = await until_recorded(session, 3)
        turns = await session.turns()

    assert first.disposition == "started"
    # the caller may know the end of a turn before the session does
    assert {second.disposition, third.disposition} <= {"started", "queued"}
    assert [one.turn_id for one in (first, second, third)] == [
        f"{session.id}/{number}" for number in (1, 2, 3)
    ]
    assert (report.output, again.turn_id) == ("found", first.turn_id)
    assert texts(model.requests[3].messages) == [
        *("Find it.", "I look.", "found", "And now?", "as before", "Thanks.")
    ]
    assert [type(one).__name__ for one in model.requests[2].messages] == [
        *("UserMessage", "AssistantMessage", "ToolMessage", "AssistantMessage", "UserMessage")
    ]
    assert known == (*model.requests[3].messages, AssistantMessage.model_validate(known[-1]))
    assert [turn.outcome for turn in turns] == [Outcome.COMPLETED] * 3


@pytest.mark.accepts("E52")
async def test_messages_of_a_burst_are_read_together(runtime: Runtime) -> None:
    """Also two at once at the very beginning; one that is taken out of the queue is not read."""
    model = Paced(says("one"), says("two"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        first = await session.say("first", id="1")
        await model.begun.acquire()
        queued = [await session.say(text, id=text) for text in ("second", "third", "fourth")]
        again = await session.say("third", id="third")
        waits = (await session.status()).queue
        taken = [await session.unqueue(one) for one in ("third", "third", "first", "unknown")]
        model.let_go(2)
        await first.result()
        turn = await queued[2].turn()
        await turn.result()

    assert [one.disposition for one in queued] == ["queued"] * 3
    assert {one.turn_id for one in (*queued, again)} == {f"{session.id}/2"} == {turn.id}
    assert [one.id for one in waits] == ["second", "third", "fourth"]
    assert taken == [True, False, False, False]
    assert texts(model.requests[1].messages) == ["first", "one", "second", "fourth"]


@pytest.mark.accepts("E53")
async def test_message_is_steered_into_the_running_turn(runtime: Runtime) -> None:
    """What the turn does not answer, because its budget is spent, the next turn reads."""
    model = Paced(says("one"), says("two"), says("three"))
    worker = app(budget=Budget(model_calls=2))
    async with runtime(worker, model=model) as client:
        session = session_of(client)
        first = await session.say("first")
        await model.begun.acquire()
        second = await session.say("second", if_busy="steer")
        model.let_go()
        await model.begun.acquire()
        third = await session.say("third", if_busy="steer")
        model.let_go(2)
        report = await first.result()
        await (await session.turn_of(third.id)).result()
        turns = await until_recorded_turns(session, 2)

    assert (second.disposition, second.turn_id) == ("steered", first.turn_id)
    assert third.disposition == "steered"
    assert (report.output, texts(report.unread)) == ("two", ["third"])
    assert texts(model.requests[1].messages) == ["first", "one", "second"]
    assert texts(model.requests[2].messages) == ["first", "one", "second", "two", "third"]
    assert [turn.messages for turn in turns] == [
        (first.id, second.id, third.id),
        (third.id,),
    ]


@pytest.mark.accepts("E54")
async def test_message_interrupts_the_running_turn(runtime: Runtime) -> None:
    """The next turn begins with what was done, and reads all that waits."""
    model = Paced(calls(call("look")), says("never"), says("done"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        first = await session.say("first")
        await model.begun.acquire()
        model.let_go()
        await model.begun.acquire()
        await session.say("second")
        third = await session.say("third", if_busy="interrupt")
        with pytest.raises(errors.TurnCancelledError):
            await first.result()
        await model.begun.acquire()
        model.let_go(2)
        await third.result()

    assert (third.disposition, third.turn_id) == ("interrupting", f"{session.id}/2")
    asked = model.requests[2].messages
    assert texts(asked) == ["first", "second", "third"]
    assert [type(one).__name__ for one in asked[:3]] == [
        *("UserMessage", "AssistantMessage", "ToolMessage")
    ]


@pytest.mark.slow
@pytest.mark.accepts("E54")
async def test_cancelled_turn_parks_the_queue(runtime: Runtime) -> None:
    """Until the next message, or until the session is resumed; nothing is deleted."""
    model = Paced(says("never"), says("never"), says("two"), says("three"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        first = await session.say("first")
        await model.begun.acquire()
        await session.say("second")
        assert await session.interrupt("enough")
        with pytest.raises(errors.TurnCancelledError):
            await first.result()
        await until_recorded(session, 1)
        parked = await session.status()
        assert not await session.interrupt()
        third = await session.say("third")
        await model.begun.acquire()
        fourth = await session.say("fourth")
        await client.turn(third.turn_id).cancel("by hand")
        await until_recorded(session, 2)
        assert await session.resume()
        assert not await session.resume()
        await model.begun.acquire()
        model.let_go(3)
        await (await session.turn_of(fourth.id)).result()

    assert (parked.state, [one.text for one in parked.queue]) == ("idle", ["second"])
    assert texts(model.requests[1].messages) == ["first", "second", "third"]
    assert texts(model.requests[2].messages)[-1] == "fourth"


@pytest.mark.slow
@pytest.mark.accepts("E98")
@pytest.mark.parametrize("by_session", [True, False])
async def test_message_right_after_a_cancel_is_read(runtime: Runtime, by_session: bool) -> None:
    """While the turn ends, or while the session records it."""
    model = Paced(says("never"), says("two"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        first = await session.say("first")
        await model.begun.acquire()
        await session.say("second")
        if by_session:
            await session.interrupt("enough")
        else:
            turn = await first.turn()
            await turn.cancel("enough")
            async for event in session.events():
                if isinstance(event.fact, TurnOver):
                    break
        third = await session.say("third")
        await model.begun.acquire()
        model.let_go(2)
        await third.result()

    assert texts(model.requests[1].messages) == ["first", "second", "third"]


@pytest.mark.accepts("E99")
async def test_turn_of_a_session_is_not_another_one_with_its_id(runtime: Runtime) -> None:
    """The message is read by a turn with another id, which the sender gets."""
    model = Paced(says("not of the session"), says("of the session"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        other = await client.start("spender", "something else", id=f"{session.id}/1")
        await model.begun.acquire()
        sent = await session.say("first")
        await model.begun.acquire()
        model.let_go(2)
        report = await sent.result()
        turn = await sent.turn()
        [recorded] = await until_recorded_turns(session, 1)
        assert await session.begun(other.id) is None

    assert sent.turn_id == other.id != turn.id == recorded.turn_id
    assert (report.output, report.turn_id) == ("of the session", turn.id)


@pytest.mark.accepts("E55")
async def test_busy_session_refuses_what_it_is_told_to_refuse(runtime: Runtime) -> None:
    model = Paced(says("one"), says("two"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        first = await session.say("first", if_busy="reject")
        await model.begun.acquire()
        with pytest.raises(errors.SessionBusyError) as busy:
            await session.say("second", if_busy="reject")
        for number in range(limits.UNREAD_MESSAGES):
            await session.say(f"{number}")
        with pytest.raises(errors.SessionBusyError):
            await session.say("one too many")
        for unread in (await session.status()).queue:
            await session.unqueue(unread.id)
        model.let_go(2)
        await first.result()
        await (await session.say("third", if_busy="reject")).result()

    assert busy.value.context["turn_id"] == first.turn_id
    assert texts(model.requests[1].messages) == ["first", "one", "third"]


@pytest.mark.accepts("E56")
async def test_budget_of_a_session_is_for_all_of_its_turns(runtime: Runtime) -> None:
    """Within what the agent has for each; a message to a spent one is refused, and waits for no
    money.
    """
    model = ScriptedModel(says("one"), says("two"), says("three"))
    worker = app(budget=Budget(model_calls=5))
    async with runtime(worker, model=model) as client:
        session = session_of(client, budget=Budget(model_calls=2))
        for text in ("first", "second"):
            await (await session.say(text)).result()
        await until_recorded(session, 2)
        with pytest.raises(errors.TurnBudgetExceededError):
            await session.say("third")
        spent = (await session.status()).spent
        await session.add_budget(Budget(model_calls=1))
        await (await session.say("third")).result()
        with pytest.raises(errors.InvalidRequestError):
            await session.add_budget(Budget(usd="1"))

    assert spent.model_calls == 2


@pytest.mark.accepts("E57")
async def test_closed_unknown_and_wrong_sessions_are_refused(runtime: Runtime) -> None:
    model = Paced(says("one"), says("two"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        unknown = client.session(f"none-{secrets.token_hex(4)}")
        for asking in (
            unknown.say("hello"),
            unknown.status(),
            unknown.interrupt(),
            unknown.close(),
        ):
            with pytest.raises(errors.SessionNotFoundError):
                await asking
        first = await session.say("first")
        await model.begun.acquire()
        await session.say("second", id="m-2")
        with pytest.raises(errors.TurnConflictError):
            await client.session(session.id, "other").say("hello")
        unread = await session.close("over")
        with pytest.raises(errors.SessionClosedError):
            await session.say("third")
        model.let_go()
        report = await first.result()
        await _closed(session)
        for asking in (session.say("third"), session.unqueue("m-2"), session.close()):
            with pytest.raises(errors.SessionClosedError):
                await asking
        turn = await client.start("spender", "a turn", id=f"turn-{secrets.token_hex(4)}")
        model.let_go()
        await turn.result()
        with pytest.raises(errors.SessionNotFoundError):
            await client.session(turn.id).status()
        for bad in ("", 3):
            with pytest.raises(errors.InvalidRequestError):
                client.session(bad)  # type: ignore[arg-type]
        for bad in ("x" * 91, "a\nb"):
            with pytest.raises(errors.InvalidRequestError):
                client.session(bad, "spender")

    assert [one.id for one in unread] == ["m-2"]
    assert report.output == "one"


async def _closed(session: Session) -> None:
    async for _ in session.events():
        pass


@pytest.mark.accepts("E59")
async def test_session_remembers_who_answered_last(runtime: Runtime) -> None:
    """After a handoff, and after a message that names an agent."""
    billing = Agent(name="billing", model="scripted:billing")
    worker = app(spender(handoffs=["billing"]), billing)
    front = ScriptedModel(
        calls(call("hand_over", agent="billing", message="A bill.")), says("front again")
    )
    back = ScriptedModel(says("billed"), says("billed again"))
    async with runtime(worker, model={"spender": front, "billing": back}) as client:
        session = session_of(client)
        first = await (await session.say("My bill?")).result()
        await until_recorded(session, 1)
        status = await session.status()
        second = await (await session.say("And the other?")).result()
        third = await (await session.say("Back, please.", agent="spender")).result()
        with pytest.raises(errors.InvalidRequestError):
            await session.say("wrong", agent="billing", if_busy="steer")

    assert (first.agent, first.last_agent, first.output) == ("spender", "billing", "billed")
    assert (status.agent, status.last_agent) == ("spender", "billing")
    assert (second.agent, second.last_agent) == ("spender", "billing")
    assert second.output == "billed again"
    assert (third.agent, third.output) == ("spender", "front again")


@pytest.mark.accepts("U20")
async def test_handoff_in_a_session_does_not_change_whose_rules_hold(runtime: Runtime) -> None:
    """The guardrail of the session's agent checks the later turns, also in a fork; an agent that a
    message names has its own rules.
    """
    secret = "the PASSWORD is hunter2"
    guard = OutputGuardrail(lambda report: "PASSWORD" not in str(report.output))
    front = spender(handoffs=["billing"], middleware=[guard], max_iterations=2)
    looks = [calls(call("look", number=number)) for number in range(3)]
    models = {
        "spender": ScriptedModel(calls(call("hand_over", agent="billing", message="A bill."))),
        "billing": ScriptedModel(says("billed"), says(secret), says(secret), *looks, says(secret)),
    }
    billing = Agent(name="billing", model="scripted:billing", tools=[look])
    async with runtime(app(front, billing), model=models) as client:
        session = session_of(client)
        await (await session.say("My bill?")).result()
        with pytest.raises(errors.GuardrailError) as refused:
            await (await session.say("The password?")).result()
        await until_recorded(session, 2)
        fork = await session.fork(1, id=f"{session.id}-b")
        with pytest.raises(errors.GuardrailError):
            await (await fork.say("The password?")).result()
        chosen = await (await session.say("Look.", agent="billing")).result()

    assert refused.value.report is not None
    assert (refused.value.report.agent, refused.value.report.last_agent) == ("spender", "billing")
    assert (chosen.agent, chosen.output, len(chosen.steps)) == ("billing", secret, 4)


@pytest.mark.accepts("E58", "E150", "P55")
async def test_fork_of_a_session_goes_on_from_a_turn(runtime: Runtime) -> None:
    """Right after the result of the turn, which the session may not have recorded."""
    model = ScriptedModel(says("one"), says("two"), says("other"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        sent = await session.say("first", id="m-1")
        await sent.result()
        fork = await session.fork(1, id=f"{session.id}-b")
        await (await session.say("second")).result()
        await (await fork.say("elsewhere")).result()
        with pytest.raises(errors.InvalidRequestError):
            await session.fork(3, id=f"{session.id}-c")

    assert repr(session) == f"Session('{session.id}')"
    assert repr(sent) == f"Sent('m-1', started, turn_id='{session.id}/1')"
    assert texts(model.requests[2].messages) == ["first", "one", "elsewhere"]


@pytest.mark.slow
@pytest.mark.accepts("Y51")
async def test_session_survives_its_worker(perdure_server: str) -> None:
    """A message that comes while no worker runs is taken in by the next one, once."""
    model = Paced(says("never"), says("one"), says("two"))
    async with queue(perdure_server) as work:
        session = session_of(work.client)
        async with work.worker(app(), model):
            first = await session.say("first", id="1")
            await model.begun.acquire()
        waiting = asyncio.create_task(session.say("second", id="2"))
        async with work.worker(app(), model):
            model.let_go(3)
            second = await waiting
            await first.result()
            await (await session.turn_of("2")).result()
            again = await session.say("second", id="2")
        turns = await session.turns()

    assert again.turn_id == second.turn_id
    assert sum(turn.messages.count("2") for turn in turns) == 1


@pytest.mark.slow
@pytest.mark.accepts("E51")
async def test_readers_of_a_session_agree_with_it(runtime: Runtime) -> None:
    """Events can be resumed at any cursor; their fold is what the next turn begins with."""
    model = ScriptedModel(says("one"), says("two"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        for text in ("first", "second"):
            await (await session.say(text)).result()
        await until_recorded(session, 2)
        await session.close()
        events = [event async for event in session.events()]
        for place in range(len(events)):
            rest = [event async for event in session.events(after=events[place].cursor)]
            assert rest == events[place + 1 :]
        with pytest.raises(errors.InvalidRequestError):
            await anext(session.events(after="nonsense"))

    state = fold(event.fact for event in events)
    assert [turn.number for turn in state.turns] == [1, 2]
    assert texts(state.messages) == ["first", "one", "second", "two"]


async def until_recorded_turns(session: Session, turns: int) -> Any:
    """The turns of a session, when so many are recorded."""
    await until_recorded(session, turns)
    return await session.turns()


@pytest.mark.slow
@pytest.mark.accepts("E51")
async def test_sessions_are_listed_and_are_no_turns(runtime: Runtime) -> None:
    label = secrets.token_hex(4)
    model = ScriptedModel(says("one"), says("two"))
    async with runtime(app(), model=model) as client:
        opened = session_of(client, labels={"test": label})
        closed = session_of(client, labels={"test": label})
        for session in (opened, closed):
            await (await session.say("hello")).result()
        await closed.close()
        await _closed(closed)

        async def listed() -> list[SessionEntry]:
            return [one async for one in client.sessions("spender", labels={"test": label})]

        async with asyncio.timeout(SOON_S):
            while [one.is_open for one in await listed()] != [True, False]:  # noqa: ASYNC110 - the list lags
                await asyncio.sleep(0.1)
        entries = await listed()
        turns = [one.id async for one in client.turns(labels={"test": label})]
        others = [one async for one in client.sessions("nobody", labels={"test": label})]

    assert [one.id for one in entries] == [opened.id, closed.id]
    assert entries[0].agent == "spender"
    assert entries[1].ended_at is not None
    assert sorted(turns) == sorted([f"{opened.id}/1", f"{closed.id}/1"])
    assert others == []


@pytest.mark.slow
@pytest.mark.accepts("Y51")
async def test_session_goes_on_in_new_runs(runtime: Runtime) -> None:
    """Requests fill two runs; each message is read once, in order, also one that is sent again to a
    later run.
    """
    model = ScriptedModel(*[says(f"answer {number}") for number in range(6)])
    async with runtime(app(), model=model) as client:
        session = session_of(client, budget=Budget(model_calls=6))
        firsts = []
        for run in range(3):
            for number in (2 * run, 2 * run + 1):
                sent = await session.say(f"message {number}", id=f"m-{number}")
                await sent.result()
                firsts.append(sent.turn_id)
            again = [
                await session.say("other words", id=f"m-{number}") for number in range(2 * run)
            ]
            assert [one.turn_id for one in again] == firsts[: 2 * run]
            if run < 2:
                await fill(client, session)
        await until_idle(session)
        turns = await session.turns()
        with pytest.raises(errors.TurnBudgetExceededError):
            await session.say("one too many")

    said = [one for one in texts(model.requests[-1].messages) if not one.startswith("answer")]
    assert said == [f"message {number}" for number in range(6)]
    assert [turn.number for turn in turns] == [1, 2, 3, 4, 5, 6]


async def fill(client: RecordingClient, session: Session) -> None:
    """Ask a session for so much that it goes on in a new run."""
    free = asyncio.Semaphore(8)
    before = await _run_of(client, session)

    async def ask() -> None:
        async with free:
            await session.unqueue("none")

    while await _run_of(client, session) == before:
        await asyncio.gather(*(ask() for _ in range(100)))


async def _run_of(client: RecordingClient, session: Session) -> str:
    found = await client.temporal.get_workflow_handle(session.id).describe()
    assert found.run_id is not None
    return found.run_id


@pytest.mark.slow
@pytest.mark.accepts("E150")
async def test_what_a_turn_has_answered_is_in_the_next_read(runtime: Runtime) -> None:
    """From any client, before the session has recorded it; also of a turn that has failed."""
    model = ScriptedModel(
        says("one"), says("two"), says("three"), fails(errors.LLMBudgetExceededError("spent"))
    )
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        counts, outcomes, known = [], [], []
        for text in ("first", "second", "third", "fourth"):
            sent = await session.say(text)
            with contextlib.suppress(errors.PerdureError):
                await sent.result()
            read = client.session(session.id)
            conversation, status = await asyncio.gather(read.conversation(), read.status())
            counts.append((len(conversation.parts), status.state, status.turn))
            spent = status.spent.model_calls
            outcomes.append(conversation.turns[-1].outcome)
            known.append(texts(await read.messages()))
        recorded = await until_recorded(session, 4)

    assert counts == [(number, "idle", None) for number in (1, 2, 3, 4)]
    assert spent >= 3
    assert outcomes == [*[Outcome.COMPLETED] * 3, Outcome.BUDGET_EXHAUSTED]
    assert known[2] == ["first", "one", "second", "two", "third", "three"]
    assert known[3] == texts(recorded)


@pytest.mark.slow
@pytest.mark.accepts("E150")
async def test_turn_that_no_session_records_is_in_the_conversation(runtime: Runtime) -> None:
    """A terminated session cannot record the turn that ends after it."""
    model = Paced(says("never"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        sent = await session.say("first")
        await model.begun.acquire()
        await client.temporal.get_workflow_handle(session.id).terminate("by an operator")
        with pytest.raises(errors.TurnCancelledError):
            await sent.result()
        model.let_go()
        conversation = await session.conversation()

    assert [turn.outcome for turn in conversation.turns] == [Outcome.CANCELLED]
    assert texts(conversation.parts[0].messages) == ["first"]


@pytest.mark.slow
@pytest.mark.accepts("E151")
async def test_message_after_the_answer_is_started(runtime: Runtime) -> None:
    """Also after a cancelled turn, whose session parks only what was sent before the end. The same
    message sent again has the same disposition.
    """
    replies = [says(f"answer {number}") for number in range(12)]
    model = Paced(*replies)
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        model.let_go(9)
        sent = [await session.say("first")]
        for number in range(8):
            await sent[-1].result()
            sent.append(await session.say("next", id=f"next-{number}"))
        await sent[-1].result()
        running = await session.say("never answered")
        turn = await running.turn()
        waits = await session.say("waits", id="waits")
        await turn.cancel("enough")
        with pytest.raises(errors.TurnCancelledError):
            await turn.result()
        again = await session.say("waits", id="waits")
        last = await session.say("after the cancel")
        model.let_go(2)
        report = await last.result()

    assert {one.disposition for one in sent} == {"started"}
    assert (waits.disposition, again.disposition) == ("queued", "queued")
    assert (last.disposition, last.turn_id) == ("started", report.turn_id)


@pytest.mark.table(1)
@pytest.mark.accepts("E134")
@pytest.mark.parametrize("agent", [None, "nobody"], ids=["model fails", "no model is called"])
async def test_end_of_a_turn_answers_its_first_message_alone(
    runtime: Runtime, agent: str | None
) -> None:
    """The others get a turn each, and the next model reads all of them."""
    refusal = fails(errors.LLMAuthError("no key"))
    model = Paced(says("one"), *([refusal] * 3 if agent is None else []), says("at last"))
    async with runtime(app(), model=model) as client:
        session = session_of(client)
        await session.say("first", id="1")
        await model.begun.acquire()
        for text in ("second", "third", "fourth"):
            await session.say(text, id=text, agent=agent)
        model.let_go(5)
        turns = await until_recorded_turns(session, 4)
        status = await session.status()
        await (await session.say("fifth", agent="spender")).result()

    assert [(turn.outcome, turn.messages, turn.unread) for turn in turns[1:]] == [
        (Outcome.FAILED, ("second", "third", "fourth"), ("third", "fourth")),
        (Outcome.FAILED, ("third", "fourth"), ("fourth",)),
        (Outcome.FAILED, ("fourth",), ()),
    ]
    assert (status.queue, status.state) == ((), "idle")
    assert texts(model.requests[-1].messages) == [
        *("first", "one", "second", "third", "fourth", "fifth")
    ]


async def accepted(client: RecordingClient, session: Session, name: str) -> list[bool]:
    """Whether each accepted update of this name is completed."""
    history = await client.temporal.get_workflow_handle(session.id).fetch_history()
    ends = {
        event.workflow_execution_update_completed_event_attributes.accepted_event_id
        for event in history.events
    }
    return [
        event.event_id in ends
        for event in history.events
        if event.workflow_execution_update_accepted_event_attributes.accepted_request.input.name
        == name
    ]


@pytest.mark.slow
@pytest.mark.accepts("E168")
async def test_cancel_while_a_turn_is_recorded_ends_the_session(runtime: Runtime) -> None:
    """Also a second time, and at once: it does not wait for the record."""
    model, codec = Paced(says("one")), HeldRecords()
    converter = DataConverter(payload_codec=codec)
    async with runtime(app(), model=model, data_converter=converter) as client:
        session = session_of(client)
        first = await session.say("first")
        turn = await first.turn()
        await model.begun.acquire()
        codec.let_go.clear()
        await turn.cancel("enough")
        await codec.is_held.wait()
        was_open = await session.cancel("over", by="anna@example.com")
        async with asyncio.timeout(SOON_S):
            await _closed(session)
        status = await session.status()
        codec.let_go.set()
        model.let_go()

    assert was_open
    assert status.state == "closed"


@pytest.mark.accepts("E154")
async def test_close_after_the_end_of_a_turn_returns_what_it_left_unread(runtime: Runtime) -> None:
    """While the session records the turn, it waits: its queue has no other message later."""
    model, codec = Paced(says("one"), says("never")), HeldRecords()
    converter = DataConverter(payload_codec=codec)
    async with runtime(app(), model=model, data_converter=converter) as client:
        session = session_of(client)
        first = await session.say("first")
        await model.begun.acquire()
        second = await session.say("second", id="2")
        await session.say("third", id="3")
        model.let_go()
        await first.result()
        turn = await second.turn()
        await model.begun.acquire()
        codec.let_go.clear()
        await turn.cancel("enough")
        await codec.is_held.wait()
        closing = asyncio.create_task(session.close("over"))
        async with asyncio.timeout(SOON_S):
            while not (before := await accepted(client, session, CLOSE)):  # noqa: ASYNC110 - asked
                await asyncio.sleep(0.05)
        codec.let_go.set()
        unread = await closing
        model.let_go()
        await _closed(session)
        status = await session.status()

    assert before == [False]
    assert [one.id for one in unread] == ["3"]
    assert status.queue == unread
