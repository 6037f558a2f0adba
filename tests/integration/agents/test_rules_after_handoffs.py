"""The rules of the agent that a caller named hold after a handoff, on every way that goes on."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from perdure import Agent, Budget, Delegate, OutputGuardrail, Price, Registry, TurnInfo, errors
from perdure.activities.provider import ModelRequest
from perdure.clients import Session, Turn
from perdure.session.wire import Queued, SessionRequest, SessionSnapshot
from perdure.temporal.histories.runs import describe, runs_up_to
from perdure.temporal.names import SESSION
from perdure.temporal.payloads import pack
from perdure.testing import FunctionModel, call, calls, local_runtime, says
from perdure.testing.scripted import Reply
from perdure.turn.facts import HandedOver
from perdure.values.messages import UserMessage
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime
from ...support.carrying import continued
from ...support.conversing import until_recorded
from ...support.delegating import delegate
from ...support.gateway.responses import by_name, openai_of
from ...support.gateway.served import served
from ...support.long_turns import MANY, begin, runs_of
from ...support.scheduling import DAILY
from ...support.session_runs import short_runs
from ...support.spending import SOON_S, ended, look, until

SECRET = "the PASSWORD is hunter2"
"""What the guardrail of the first agent refuses."""
GUARD = OutputGuardrail(lambda report: "PASSWORD" not in str(report.output))
MOST = 4
"""The iterations that the first agent allows; the second one allows many more."""


def hands_over(request: ModelRequest) -> Reply:
    """The model of the first agent."""
    return calls(call("hand_over", agent="billing", message="you"))


def billing(request: ModelRequest) -> Reply:
    """The model of the second agent: it says the secret, or works as it was last told to."""
    said = [one for one in request.messages if isinstance(one, UserMessage)]
    task, steps = said[-1].text, len(request.messages)
    if task.endswith("wait"):
        return says("late", delay=timedelta(minutes=5))
    works = task.endswith("work") or (task.endswith("fill") and steps < 2 * MOST - 2)
    if not works:
        return says(SECRET)
    count = MANY if task.endswith("fill") else 1
    return calls(*(call("look", number=MANY * steps + one) for one in range(count)))


def boss(request: ModelRequest) -> Reply:
    """A model that passes its task on, and tells what it got."""
    last, first = request.messages[-1], request.messages[0]
    assert isinstance(first, UserMessage)
    return says(last.results[0].content) if last.role == "tool" else delegate("front", first.text)


MODELS = {
    "front": FunctionModel(hands_over),
    "billing": FunctionModel(billing),
    "boss": FunctionModel(boss),
}


FRONT = Agent(
    name="front",
    model="scripted:front",
    handoffs=["billing"],
    middleware=[GUARD],
    max_iterations=MOST,
)
BILLING = Agent(
    name="billing",
    model="scripted:billing",
    description="Bills.",
    tools=[look],
    parallel_tools=True,
    max_iterations=40,
)
BOSS = Agent(
    name="boss",
    model="scripted:boss",
    delegates=[Delegate("front", budget=Budget(model_calls=3))],
)


def factory(agent: Agent) -> Callable[[TurnInfo], Agent]:
    """A factory that makes this agent."""

    def make(turn: TurnInfo) -> Agent:
        return agent

    make.__name__, make.__doc__ = agent.name, agent.description
    return make


def worker(*, made: bool) -> AgentWorker:
    """A worker whose agents are made by factories, or are values."""
    agents = [FRONT, BILLING]
    known = Registry([BOSS, *(map(factory, agents) if made else agents)])
    return AgentWorker(known, prices={"scripted:*": Price.free()})


async def ends(*turns: Turn) -> list[str]:
    """What ended the turns, one after another; with the limit, if it was one of iterations."""
    found = [await ended(turn) for turn in turns]
    return [
        f"{type(one).__name__} {one.context['max_iterations']}"
        if isinstance(one, errors.MaxIterationsError)
        else type(one).__name__
        for one in found
    ]


async def _fork_and_resume(client: RecordingClient) -> list[str]:
    turn = await client.start("front", "say")
    found = await ends(turn)
    others = [await turn.fork(1), await turn.resume(), await turn.fork(1, say="work")]
    return [*found, *await ends(*others)]


async def _limit_of_the_caller(client: RecordingClient) -> list[str]:
    turn = await client.start("front", "work", max_iterations=2)
    found = await ends(turn)
    again = await turn.resume()
    found += await ends(again)
    return found


async def _session(client: RecordingClient) -> list[str]:
    session = client.session(_id(), "front")
    return await _say(session, 1, "say", "say", "work")


async def _fork_of_a_session(client: RecordingClient) -> list[str]:
    session = client.session(_id(), "front")
    found = await _say(session, 1, "say")
    return [*found, *await _say(await session.fork(1, id=_id()), 1, "say", "work")]


async def _say(session: Session, number: int, *texts: str) -> list[str]:
    """What ends the turns of messages, the first of which is turn `number` of the session."""
    found = []
    for place, text in enumerate(texts, number):
        found += await ends(await (await session.say(text)).turn())
        await until_recorded(session, place)
    return found


async def _other_agent_of_a_session(client: RecordingClient) -> list[str]:
    """The agent that a message names, in a session of the agent that is handed over to."""
    session = client.session(_id(), "billing")
    found = await ends(await (await session.say("say", agent="front")).turn())
    await until_recorded(session, 1)
    forked = await session.fork(1, id=_id())
    return [*found, *await _say(session, 2, "say"), *await _say(forked, 1, "say", "work")]


async def _interrupted(client: RecordingClient) -> list[str]:
    """The same, if the turn is cancelled by the next message after it was handed over."""
    session = client.session(_id(), "billing")
    turn = await (await session.say("wait", agent="front")).turn()
    await until(turn, HandedOver)
    following = await (await session.say("say", if_busy="interrupt")).turn()
    found = await ends(turn, following)
    await until_recorded(session, 2)
    return [*found, *await _say(session, 3, "work")]


async def _schedule_of_a_session(client: RecordingClient) -> list[str]:
    session, found = client.session(_id()), []
    schedule = await client.create_schedule(_id(), "front", "say", **DAILY, session=session.id)
    for number in (1, 2):
        await schedule.run_now()
        found += await ends(await _begun(client, f"{session.id}/{number}"))
        await until_recorded(session, number)
    await schedule.change(task="work")
    await schedule.run_now()
    found += await ends(await _begun(client, f"{session.id}/3"))
    await schedule.delete()
    return found


async def _begun(client: RecordingClient, turn_id: str) -> Turn:
    """A turn, once it exists."""
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                await client.turn(turn_id).first_run()
                return client.turn(turn_id)
            except errors.TurnNotFoundError:
                await asyncio.sleep(0.05)


async def _session_of_an_earlier_release(client: RecordingClient) -> list[str]:
    """Its snapshot does not say whom the caller named."""
    session = client.session(_id())
    snapshot = SessionSnapshot(
        session=SessionRequest(agent="front"),
        count=1,
        agent="billing",
        queue=(Queued(id="1", text="say"),),
    )
    await continued(client, session.id, pack(snapshot), kind=SESSION)
    found = await ends(await _begun(client, f"{session.id}/2"))
    await until_recorded(session, 1)
    return [*found, *await _say(session, 2, "work")]


def _id() -> str:
    return f"rules-{secrets.token_hex(4)}"


GUARDED, LIMITED = "GuardrailError", f"MaxIterationsError {MOST}"
WAYS: dict[Callable[[RecordingClient], Awaitable[list[str]]], list[str]] = {
    _fork_and_resume: [GUARDED, GUARDED, GUARDED, LIMITED],
    _limit_of_the_caller: ["MaxIterationsError 2"] * 2,
    _session: [GUARDED, GUARDED, LIMITED],
    _fork_of_a_session: [GUARDED, GUARDED, LIMITED],
    _other_agent_of_a_session: [GUARDED, GUARDED, GUARDED, LIMITED],
    _interrupted: ["TurnCancelledError", GUARDED, LIMITED],
    _schedule_of_a_session: [GUARDED, GUARDED, LIMITED],
    _session_of_an_earlier_release: [GUARDED, LIMITED],
}


@pytest.mark.slow
@pytest.mark.accepts("U31")
@pytest.mark.parametrize("made", [False, True], ids=["values", "factories"])
async def test_rules_hold_on_every_way_that_goes_on_after_a_handoff(
    runtime: Runtime, made: bool
) -> None:
    async with runtime(worker(made=made), model=MODELS) as client:
        found = await asyncio.gather(*(way(client) for way in WAYS))

    assert {way.__name__: one for way, one in zip(WAYS, found, strict=True)} == {
        way.__name__: wanted for way, wanted in WAYS.items()
    }


@pytest.mark.accepts("U31")
@pytest.mark.slow
async def test_rules_hold_in_a_later_run_of_a_session() -> None:
    """Those of the agent that a message names, in a session of another agent."""
    async with (
        short_runs() as address,
        local_runtime(worker(made=False), model=MODELS, address=address) as client,
    ):
        session = client.session(_id(), "billing")
        found = await ends(await (await session.say("say", agent="front")).turn())
        for text in ("say", "work"):
            found += await ends(await (await session.say(text)).turn())
        described = await describe(client.temporal, session.id)
        runs = await runs_up_to(client.temporal, described)
        await session.close()

    assert len(runs) > 1
    assert found == [GUARDED, GUARDED, LIMITED]


@pytest.mark.accepts("U31")
async def test_response_after_a_handoff_may_name_either_agent(runtime: Runtime) -> None:
    """A client that repeats the model of the response before it names the agent that has the turn
    now: the rules are those of the agent that it began with.
    """
    async with (
        runtime(worker(made=False), model=MODELS) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        first = await ai.responses.create(model="front", input="say")
        after = [
            await ai.responses.create(model=name, input="say", previous_response_id=first.id)
            for name in ("front", "billing")
        ]

    assert [one.status for one in (first, *after)] == ["failed"] * 3
    assert [SECRET in one.to_json() for one in (first, *after)] == [False] * 3


@pytest.mark.accepts("U32")
async def test_rules_hold_in_a_later_run_after_a_handoff(runtime: Runtime) -> None:
    """Also if the turn is resumed from there."""
    async with runtime(worker(made=True), model=MODELS) as client:
        turn = await begin(client, "front", "fill")
        found = await ends(turn)
        runs = await runs_of(client, turn)
        resumed = await turn.resume()
        found += await ends(resumed, await turn.fork(say="work"))
        status = await resumed.status()

    assert len(runs) == 2
    assert found == [GUARDED, GUARDED, LIMITED]
    assert (status.agent, status.last_agent, status.max_iterations) == ("front", "billing", MOST)


@pytest.mark.accepts("U32")
@pytest.mark.slow
async def test_limit_of_the_caller_holds_in_a_later_run_after_a_handoff(runtime: Runtime) -> None:
    """It is lower than that of the agent."""
    async with runtime(worker(made=True), model=MODELS) as client:
        turn = await begin(client, "front", "fill", max_iterations=MOST - 1)
        found = await ends(turn)
        runs = await runs_of(client, turn)

    assert len(runs) == 2
    assert found == [f"MaxIterationsError {MOST - 1}"]


@pytest.mark.accepts("U33")
async def test_rules_of_a_delegate_hold_after_it_has_handed_over(runtime: Runtime) -> None:
    """Its guardrail and what its parent has lent it; its parent is told no secret."""
    async with runtime(worker(made=True), model=MODELS) as client:
        said, worked = [await client.run("boss", task) for task in ("say", "work")]

    assert "PASSWORD" not in said.output
    assert said.output.startswith("front: GUARDRAIL")
    assert worked.output.startswith("front: TURN_BUDGET_EXCEEDED")
    assert [child.steps for child in worked.children] == [3]
