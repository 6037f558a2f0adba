"""A provider is down for a while, and its turns outlast that."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from temporalio import activity

from perdure import (
    Agent,
    Budget,
    ModelRetryPolicy,
    Observer,
    Outcome,
    Price,
    RequestOptions,
    TurnInfo,
    errors,
)
from perdure.__main__ import run
from perdure.activities.provider import ModelRequest
from perdure.activities.providers import OpenAIChat
from perdure.clients import Turn
from perdure.testing import FunctionModel, ScriptedModel, call, calls, fails, says
from perdure.testing.scripted import Reply
from perdure.testing.stub_provider import StubProvider
from perdure.turn.facts import CallFailed, Resumed, WaitBegan, WaitEnded
from perdure.values.states import State
from perdure.worker import AgentWorker
from perdure.worker.telemetry import Telemetry

from ...conftest import ONCE_MORE, RecordingClient, Runtime, check_history
from ...support.ports import free_port
from ...support.spending import SOON_S, Queue, app, ended, look, queue, report_of, skipping, until
from ...support.waiting import memo_of

BUSY = fails(errors.LLMUnavailableError("overloaded", context={"status": 503}))
LATER = fails(errors.LLMRateLimitError("slow down", context={"status": 429, "retry_after_s": 3600}))
QUICK = ModelRetryPolicy(
    initial_interval=timedelta(milliseconds=20), maximum_interval=timedelta(milliseconds=200)
)
PATIENT = ModelRetryPolicy(
    initial_interval=timedelta(hours=1),
    maximum_interval=timedelta(hours=1),
    maximum_elapsed=timedelta(days=1),
)
"""A test does not sit such a pause out."""
GIVES_UP = ONCE_MORE.model_copy(update={"on_exhausted": "pause"})


async def listed(client: RecordingClient, turn: Turn, state: State, waits_for: str) -> None:
    """Wait until the list shows a turn in this state; Temporal's list lags."""
    async with asyncio.timeout(SOON_S):
        while True:
            async for entry in client.turns(state=state):
                if (entry.id, entry.waits_for) == (turn.id, waits_for):
                    return
            await asyncio.sleep(0.1)


async def facts_of(turn: Turn) -> list[Any]:
    """Every fact of a turn that has ended."""
    return [event.fact async for event in turn.events()]


class Sees(Observer):
    """Records what a turn waited for."""

    def __init__(self) -> None:
        self.waits: list[str] = []

    async def on_wait(self, turn: TurnInfo, kind: str, reason: str) -> None:
        self.waits.append(kind)


@pytest.mark.accepts("M10", "M15", "M16")
async def test_turn_outlasts_a_provider_that_refuses_connections(runtime: Runtime) -> None:
    """The wait is visible everywhere, each pause is reported, and requests that reached no server
    are not charged.
    """
    port, seen, metrics = free_port(), Sees(), InMemoryMetricReader()
    agent = Agent(
        name="asker",
        model="stub:m",
        tools=[look],
        model_retry=QUICK,
        observers=[seen],
        budget=Budget(model_calls=2, usd="5"),
    )
    stub = OpenAIChat(base_url=f"http://127.0.0.1:{port}/v1", api_key_env=None, name="stub")
    telemetry = Telemetry(meter_provider=MeterProvider([metrics], shutdown_on_exit=False))
    made = AgentWorker(
        agent,
        providers={"stub": stub},
        prices={"stub:*": Price(input="1", output="1")},
        telemetry=telemetry,
    )
    async with runtime(made) as client:
        turn = await client.start("asker", "go")
        began = await until(turn, WaitBegan)
        await listed(client, turn, State.WAITING, "provider")
        waiting = (await memo_of(client, turn))["perdure_waits_for"]
        card = await client.temporal.get_workflow_handle(turn.id).query(
            "__temporal_workflow_metadata"
        )
        with StubProvider([{"text": "here"}], port=port) as server:
            report = await turn.result()
        memo, facts = await memo_of(client, turn), await facts_of(turn)

    wait = began.fact
    assert isinstance(wait, WaitBegan)
    assert (
        wait.reason
        == f"stub: the server at 127.0.0.1:{port} cannot be reached: the connection was refused"
    )
    assert wait.since is not None
    assert wait.until is not None
    assert wait.since < began.at
    assert wait.since < wait.until
    assert (wait.kind, wait.attempt) == ("provider", 4)
    assert (waiting["kind"], "since" in waiting, "until" in waiting) == ("provider", True, True)
    assert "Asked again at" in str(card)
    assert (report.output, report.spent.model_calls, report.model_calls, len(server.requests)) == (
        "here",
        1,
        1,
        1,
    )
    assert "perdure_waits_for" not in memo
    assert [type(fact) for fact in facts].count(WaitEnded) == 1
    assert len([fact for fact in facts if isinstance(fact, CallFailed)]) >= 3
    assert seen.waits == ["provider"]
    assert counted(metrics, "perdure.waits") == [("provider", 1)]


def counted(metrics: InMemoryMetricReader, name: str) -> list[tuple[Any, int]]:
    """The value of a counter by its attributes: the reason of the wait, and its number."""
    data: Any = metrics.get_metrics_data()
    found = [
        one
        for by in data.resource_metrics
        for scope in by.scope_metrics
        for one in scope.metrics
        if one.name == name
    ]
    return [
        (point.attributes["perdure.waits_for"], point.value)
        for one in found
        for point in one.data.data_points
    ]


@pytest.mark.accepts("M11", "M17")
async def test_cancel_ends_a_wait_for_a_provider(runtime: Runtime) -> None:
    """Of an hour, for which the provider asked."""
    async with runtime(app(model_retry=PATIENT), model=ScriptedModel(LATER)) as client:
        turn = await client.start("spender", "go")
        began = await until(turn, WaitBegan)
        await turn.cancel("enough")
        error = await ended(turn)
        memo = await memo_of(client, turn)

    assert isinstance(began.fact, WaitBegan)
    assert began.fact.until is not None
    assert timedelta(hours=1) <= began.fact.until - began.at < timedelta(hours=1, minutes=16)
    assert isinstance(error, errors.TurnCancelledError)
    assert (memo["perdure"]["outcome"], "perdure_waits_for" in memo) == ("cancelled", False)


@pytest.mark.slow
@pytest.mark.accepts("M13", "M17")
async def test_wait_survives_a_top_up_and_a_restart_and_is_cut_short_by_resume(
    perdure_server: str,
) -> None:
    """Its first worker has stopped; the next one retries at once when a person resumes the turn."""
    model = ScriptedModel(calls(call("look")), BUSY, says("done"))
    by = app(model_retry=PATIENT, options=RequestOptions(max_output_tokens=100))
    async with queue(perdure_server) as work:
        async with work.worker(by, model):
            turn = await work.client.start(
                "spender", "go", budget=Budget(usd="8", time=timedelta(hours=3))
            )
            await until(turn, WaitBegan)
        async with work.worker(app(), model):
            left = await turn.add_budget(Budget(usd="1"))
            before = model.call_count
            await work.client.turn(turn.id).resume()
            report = await report_of(turn)
            with pytest.raises(errors.InvalidRequestError, match="completed, so there is nothing"):
                await turn.resume()
        facts = await facts_of(turn)

    assert left.usd is not None
    assert left.usd > Decimal("6")
    assert (before, report.output, report.outcome) == (2, "done", Outcome.COMPLETED)
    assert [type(fact) for fact in facts if isinstance(fact, WaitBegan | Resumed | WaitEnded)] == [
        WaitBegan,
        Resumed,
        WaitEnded,
    ]


@pytest.mark.accepts("M12", "M13")
@pytest.mark.slow
async def test_turn_that_pauses_waits_until_it_is_resumed(
    runtime: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client or the command line resumes it, and the model is called again; until then it is
    listed as paused, with its error as the reason.
    """
    model = ScriptedModel(BUSY, BUSY, BUSY, BUSY, says("done"))
    async with runtime(app(model_retry=GIVES_UP), model=model) as client:
        turn = await client.start("spender", "go")
        began = await until(turn, WaitBegan)
        await listed(client, turn, State.PAUSED, "resume")
        await turn.resume()
        await until(turn, WaitBegan, times=2)
        asked = await asyncio.to_thread(
            run,
            [
                "resume",
                turn.id,
                "--json",
                "--address",
                client.temporal.service_client.config.target_host,
            ],
        )
        report = await turn.result()

    assert isinstance(began.fact, WaitBegan)
    assert began.fact.reason.startswith("overloaded; it was tried 2 times in ")
    assert (report.output, model.call_count) == ("done", 5)
    assert (asked, capsys.readouterr().out) == (0, f'{{"turn":"{turn.id}","resumed":true}}\n')


@pytest.mark.accepts("M13")
async def test_turn_that_pauses_goes_on_when_time_is_added(runtime: Runtime) -> None:
    """If its time is over before the next attempt, it waits for budget."""
    model = ScriptedModel(LATER, says("done"))
    async with runtime(
        app(model_retry=ModelRetryPolicy(on_exhausted="pause")), model=model
    ) as client:
        turn = await client.start("spender", "go", budget=Budget(time=timedelta(minutes=5)))
        began = await until(turn, WaitBegan)
        with pytest.raises(errors.InvalidRequestError, match="it waits for budget"):
            await turn.resume()
        await turn.add_budget(Budget(time=timedelta(minutes=1)))
        report = await turn.result()

    assert isinstance(began.fact, WaitBegan)
    assert began.fact.kind == "budget"
    assert "would come after the time of the turn is up" in began.fact.reason
    assert report.output == "done"


@pytest.mark.slow
async def test_policy_of_an_agent_overrides_that_of_its_worker(runtime: Runtime) -> None:
    """Each turn is pinned to its own policy."""
    agents = [
        Agent(name="own", model="scripted:own", model_retry=ONCE_MORE),
        Agent(name="none", model="scripted:none"),
    ]
    model = {
        "own": ScriptedModel(BUSY, BUSY),
        "none": ScriptedModel(BUSY, BUSY, BUSY, says("done")),
    }
    async with runtime(AgentWorker(agents, model_retry=QUICK), model=model) as client:
        own, other = await asyncio.gather(client.start("own", "go"), client.start("none", "go"))

        assert isinstance(await ended(own), errors.LLMUnavailableError)
        assert (await other.result()).output == "done"


def down_for(time: timedelta) -> Callable[[ModelRequest], Reply]:
    """A provider that is down for this long by the server's clock, and then answers."""
    began: list[datetime] = []

    def reply(_: ModelRequest) -> Reply:
        now = activity.info().scheduled_time
        began.append(now)
        return BUSY if now < began[0] + time else says("here")

    return reply


@pytest.mark.slow
@pytest.mark.accepts("M10")
@pytest.mark.parametrize("time", [timedelta(minutes=10), timedelta(hours=6)], ids=["10 min", "6 h"])
async def test_long_outage_on_a_real_server(time: timedelta) -> None:
    """The server skips the pauses, which takes a second each; the history stays small."""
    policy = ModelRetryPolicy(
        maximum_interval=timedelta(minutes=10), maximum_elapsed=timedelta(hours=8)
    )
    async with skipping(by_hand=False) as environment:
        work = Queue(environment.client)
        async with work.worker(app(model_retry=policy), FunctionModel(down_for(time))):
            turn = await work.client.start("spender", "go")
            async with asyncio.timeout(100):
                report = await turn.result()
        await check_history(environment.client, turn.id, await turn.first_run())
        length = len((await environment.client.get_workflow_handle(turn.id).fetch_history()).events)

    assert report.output == "here"
    assert time <= report.duration < time * 2
    assert length < 1_000


@pytest.mark.slow
@pytest.mark.accepts("M10")
async def test_outage_of_twelve_seconds_with_the_default_policy(runtime: Runtime) -> None:
    """The turn completes within seconds after the provider is back."""
    port = free_port()
    agent = Agent(name="asker", model="stub:m")
    stub = OpenAIChat(base_url=f"http://127.0.0.1:{port}/v1", api_key_env=None, name="stub")
    named = ModelRetryPolicy(maximum_elapsed=timedelta(minutes=30))  # tests give up early
    async with runtime(AgentWorker(agent, providers={"stub": stub}, model_retry=named)) as client:
        turn = await client.start("asker", "go")
        await asyncio.sleep(12)
        with StubProvider([{"text": "here"}], port=port):
            report = await turn.result()

    assert report.output == "here"
    assert report.duration < timedelta(seconds=30)
