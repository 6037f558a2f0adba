"""Calls whose result comes later: who sends it, how often, and what the turn shows meanwhile."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import AgentReport, Budget, ToolOutcome, errors
from perdure.clients import Turn
from perdure.events import CallFinished, ToolReturned, WaitBegan, WaitEnded
from perdure.testing import ScriptedModel, call, calls, says
from perdure.values.messages import ToolResult
from perdure.values.states import State

from ...conftest import Runtime
from ...support.jobs import Service, deployer, until_waiting
from ...support.listing import entry_of
from ...support.spending import ended
from ...support.waiting import memo_of
from ...support.web_ui import card_of

DEPLOY = call("deploy", target="shop")


def results(report: AgentReport) -> list[ToolResult]:
    """The results of all calls of a turn."""
    return [result for step in report.steps for result in step.results]


@pytest.mark.accepts("F1", "F2")
async def test_call_stays_open_without_a_worker_until_its_result_is_sent(runtime: Runtime) -> None:
    """What it waits for is shown everywhere, and the token nowhere."""
    service, model = Service(), ScriptedModel(calls(DEPLOY), says("done"))
    async with runtime(deployer(service), model=model) as client:
        turn = await client.start("deployer", "go")
        token = await service.token()
        status = await until_waiting(turn)
        entry = await entry_of(client, turn.id, agent="deployer", state=State.WAITING)
        memo, card = await memo_of(client, turn), await card_of(client.temporal, turn.id)
        described = await client.temporal.get_workflow_handle(turn.id).describe()
        turn_id = await client.finish_call(token, {"version": 42}, by="ci@example.com")
        report = await turn.result()
        events = [event async for event in turn.events()]

    assert turn_id == turn.id
    [shown] = status.waits
    assert (status.state, shown.kind, shown.reason) == ("waiting", "job", "deploy: job-shop")
    assert shown.until is not None
    assert shown.since is not None
    assert shown.until - shown.since == timedelta(days=1)
    assert status.doing is not None
    assert status.doing.startswith("waits for the result of a job, until ")
    assert entry.waits_for == "job"
    assert "**Waits for the result of a job, until" in card
    assert "job-shop" in card
    assert not described.raw_description.pending_activities
    [result] = results(report)
    assert (result.content, result.outcome) == ('{"version":42}', ToolOutcome.DONE)
    assert (report.tool_calls, report.spent.tool_calls) == (1, 1)
    facts = [event.fact for event in events]
    [returned] = [fact for fact in facts if isinstance(fact, ToolReturned)]
    [finished] = [fact for fact in facts if isinstance(fact, CallFinished)]
    assert returned.output.handle == "job-shop"
    assert finished.by == "ci@example.com"
    told = [event.model_dump_json() for event in [status, entry]] + [card, str(memo), repr(facts)]
    assert not any(token in text for text in told)


@pytest.mark.accepts("F2")
async def test_result_may_be_a_text_nothing_or_a_failure(runtime: Runtime) -> None:
    """A failure is that of the call."""
    service = Service()
    model = ScriptedModel(
        calls(call("deploy", target="a"), call("deploy", target="b"), call("deploy", target="c")),
        says("done"),
    )
    async with runtime(deployer(service, parallel_tools=True), model=model) as client:
        turn = await client.start("deployer", "go")
        await service.token(3)
        tokens = dict(zip(service.started, service.tokens, strict=True))
        await client.finish_call(tokens["b"], "the disk is full", is_error=True)
        await client.finish_call(tokens["a"])
        await client.finish_call(tokens["c"], "fine")
        report = await turn.result()

    assert [(result.content, result.outcome) for result in results(report)] == [
        ("null", ToolOutcome.DONE),
        ("the disk is full", ToolOutcome.FAILED),
        ("fine", ToolOutcome.DONE),
    ]


@pytest.mark.accepts("F3")
async def test_result_counts_once(runtime: Runtime) -> None:
    """The same one may be sent again; another one is refused, and says who was first."""
    service = Service()
    model = ScriptedModel(calls(DEPLOY), calls(DEPLOY), says("done"))
    async with runtime(deployer(service), model=model) as client:
        turn = await client.start("deployer", "go")
        first = await service.token()
        sent = await asyncio.gather(
            *(client.finish_call(first, "ok", by="anna") for _ in range(3)),
        )
        second = await service.token(2)
        again = await client.finish_call(first, "ok", by="anna")
        with pytest.raises(errors.CallFinishedError):
            await client.finish_call(first, "no", by="ben")
        await until_waiting(turn)
        both = await asyncio.gather(
            client.finish_call(second, "one", by="anna"),
            client.finish_call(second, "two", by="ben"),
            return_exceptions=True,
        )
        report = await turn.result()
        with pytest.raises(errors.TurnOverError):
            await client.finish_call(second, "three")

    assert {*sent, again} == {turn.id}
    [refused] = [end for end in both if isinstance(end, BaseException)]
    assert isinstance(refused, errors.CallFinishedError | errors.TurnOverError)
    contents = [result.content for result in results(report)]
    assert contents[0] == "ok"
    assert contents[1] in ("one", "two")
    assert first != second


@pytest.mark.accepts("F4")
async def test_token_that_is_not_of_an_open_call_is_refused(runtime: Runtime) -> None:
    """Forged, cut off, or no token: nothing is recorded, and the turn waits."""
    service = Service()
    model = ScriptedModel(calls(DEPLOY), calls(DEPLOY), says("done"), says("done"))
    async with runtime(deployer(service), model=model) as client:
        other = await client.start("deployer", "go")
        of_other = await service.token()
        turn = await client.start("deployer", "go")
        token = await service.token(2)
        await until_waiting(turn)
        forged = token[:8] + ("A" if token[8] != "A" else "B") + token[9:]
        for wrong in (forged, token[:-4], token + "x", "call_", "x", token.removeprefix("call_")):
            with pytest.raises(errors.PerdureError) as refused:
                await client.finish_call(wrong, "no")
            assert isinstance(refused.value, errors.InvalidRequestError | errors.TurnNotFoundError)
        with pytest.raises(errors.TooLargeError, match="result of the call is 70000 bytes"):
            await client.finish_call(token, "x" * 70_000)
        no_json: Any = {"a": object()}
        with pytest.raises(errors.InvalidRequestError, match="no JSON value"):
            await client.finish_call(token, no_json)
        status = await turn.status()
        await client.finish_call(of_other, "one")
        await client.finish_call(token, "two")
        reports = [await other.result(), await turn.result()]
        facts = [event.fact async for event in turn.events()]

    assert status.state == "waiting"
    assert [results(report)[0].content for report in reports] == ["one", "two"]
    assert len([fact for fact in facts if isinstance(fact, CallFinished)]) == 1


@pytest.mark.accepts("F5")
async def test_result_that_comes_before_the_tool_returns_is_kept(runtime: Runtime) -> None:
    """A quick job is done while its tool still runs: the call does not wait then."""
    go_on, service = asyncio.Event(), Service()
    agent = deployer(service, [service.tool(hold=go_on.wait)])
    async with runtime(agent, model=ScriptedModel(calls(DEPLOY), says("done"))) as client:
        turn = await client.start("deployer", "go")
        await client.finish_call(await service.token(), "early")
        go_on.set()
        report = await turn.result()
        facts = [event.fact async for event in turn.events()]

    assert results(report)[0].content == "early"
    assert not any(isinstance(fact, WaitBegan) for fact in facts)
    assert any(isinstance(fact, WaitEnded) for fact in facts)


@pytest.mark.accepts("F5")
async def test_result_that_comes_before_the_tool_fails_counts(runtime: Runtime) -> None:
    """Its sender knows that it was taken, so the failure of the tool does not take its place."""
    go_on, service = asyncio.Event(), Service()

    async def fail() -> None:
        await go_on.wait()
        raise RuntimeError("the service did not say whether the job has begun")

    agent = deployer(service, [service.tool(hold=fail)])
    async with runtime(agent, model=ScriptedModel(calls(DEPLOY), says("done"))) as client:
        turn = await client.start("deployer", "go")
        await client.finish_call(await service.token(), "early")
        go_on.set()
        report = await turn.result()

    assert (results(report)[0].content, results(report)[0].outcome) == ("early", ToolOutcome.DONE)


@pytest.mark.accepts("F6")
async def test_message_and_other_calls_do_not_end_the_wait_for_a_job(runtime: Runtime) -> None:
    """The model reads the message with its next call, as beside any tool that runs."""
    service = Service()
    model = ScriptedModel(calls(DEPLOY), says("done"))
    async with runtime(deployer(service), model=model) as client:
        turn = await client.start("deployer", "go")
        token = await service.token()
        await until_waiting(turn)
        await turn.steer("hurry")
        status = await turn.status()
        await client.finish_call(token, "ok")
        report = await turn.result()

    assert status.state == "waiting"
    assert results(report)[0].content == "ok"
    assert "hurry" in model.requests[-1].messages[-1].model_dump_json()


@pytest.mark.accepts("F7")
async def test_time_of_a_job_is_over(runtime: Runtime) -> None:
    """The outcome is unknown, the report names it, and the job is cancelled."""
    service = Service()
    start = service.tool(later=timedelta(seconds=1), cancel=service.cancel)
    model = ScriptedModel(calls(DEPLOY), says("sorry"))
    async with runtime(deployer(service, [start]), model=model) as client:
        turn = await client.start("deployer", "go")
        report = await turn.result()
        late = await ended_as(client.finish_call(service.tokens[0], "late"))

    [result] = results(report)
    assert result.outcome is ToolOutcome.UNKNOWN
    assert "its job 'job-shop' has no result after 1 s, so it was cancelled" in result.content
    assert [(unsettled.tool, unsettled.call_id) for unsettled in report.unsettled] == [
        ("deploy", "call_1_1")
    ]
    assert service.cancelled == ["job-shop"]
    assert isinstance(late, errors.TurnOverError)


async def ended_as(sending: Any) -> BaseException | None:
    """The error of a request; None if there is none."""
    try:
        await sending
    except errors.PerdureError as error:
        return error
    return None


@pytest.mark.accepts("F7")
async def test_result_that_comes_while_the_job_is_cancelled_counts(runtime: Runtime) -> None:
    """The job was done when it was to be cancelled."""
    service, go_on, stopping = Service(), asyncio.Event(), asyncio.Event()

    async def cancel(handle: str) -> None:
        """Cancel too late."""
        stopping.set()
        await go_on.wait()

    start = service.tool(later=timedelta(milliseconds=300), cancel=cancel)
    model = ScriptedModel(calls(DEPLOY), says("done"))
    async with runtime(deployer(service, [start]), model=model) as client:
        turn = await client.start("deployer", "go")
        await stopping.wait()
        await client.finish_call(service.tokens[0], "just in time")
        go_on.set()
        report = await turn.result()

    assert results(report)[0].content == "just in time"
    assert not report.unsettled


@pytest.mark.accepts("F8")
async def test_job_of_a_cancelled_turn_is_cancelled(runtime: Runtime) -> None:
    """Once, and the report says so."""
    service = Service()
    agent = deployer(service, [service.tool(cancel=service.cancel)])
    async with runtime(agent, model=ScriptedModel(calls(DEPLOY))) as client:
        turn = await client.start("deployer", "go")
        await until_waiting(turn)
        await turn.cancel("enough")
        end = await ended(turn)

    assert isinstance(end, errors.TurnCancelledError)
    assert end.report is not None
    [unsettled] = end.report.unsettled
    assert unsettled.reason == "the job 'job-shop' has no result yet; it was cancelled"
    assert service.cancelled == ["job-shop"]


@pytest.mark.accepts("F8")
async def test_cancel_of_a_job_that_fails_is_tried_again_and_told(runtime: Runtime) -> None:
    """The turn ends in any case."""
    service, tried = Service(), []

    def cancel(handle: str) -> None:
        """Fail twice."""
        tried.append(handle)
        if len(tried) < 3:
            raise ConnectionError("away")

    agent = deployer(service, [service.tool(cancel=cancel)])
    async with runtime(agent, model=ScriptedModel(calls(DEPLOY))) as client:
        turn = await client.start("deployer", "go")
        await until_waiting(turn)
        await turn.cancel("enough")
        end = await ended(turn)

    assert isinstance(end, errors.TurnCancelledError)
    assert len(tried) == 3


@pytest.mark.accepts("F9")
async def test_result_is_polled_until_it_is_there(runtime: Runtime) -> None:
    """A poll that fails is repeated; history has one activity for all polls."""
    service = Service()
    every = timedelta(milliseconds=100)
    agent = deployer(service, [service.tool(poll=service.poll, poll_every=every)])
    async with runtime(agent, model=ScriptedModel(calls(DEPLOY), says("done"))) as client:
        turn = await client.start("deployer", "go")
        await until_waiting(turn)
        service.answers["shop"] = ConnectionError("away")
        await service.until_polled(len(service.polled) + 4)
        service.answers["shop"] = {"version": 42}
        report = await turn.result()
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()

    assert results(report)[0].content == '{"version":42}'
    scheduled = [
        event.activity_task_scheduled_event_attributes.activity_id
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    assert scheduled.count("step-1.call-1.poll") == 1
    assert set(service.polled) == {"job-shop"}


@pytest.mark.accepts("F9")
async def test_result_that_is_sent_ends_the_polls(runtime: Runtime) -> None:
    """No poll goes on after that."""
    service = Service()
    every = timedelta(milliseconds=100)
    agent = deployer(service, [service.tool(poll=service.poll, poll_every=every)])
    async with runtime(agent, model=ScriptedModel(calls(DEPLOY), says("done"))) as client:
        turn = await client.start("deployer", "go")
        await until_waiting(turn)
        await service.until_polled(1)
        await client.finish_call(service.tokens[0], "sent")
        report = await turn.result()
        polls = len(service.polled)
        await asyncio.sleep(0.5)

    assert results(report)[0].content == "sent"
    assert len(service.polled) <= polls + 1


@pytest.mark.slow
@pytest.mark.accepts("F10")
async def test_time_of_the_turn_is_up_while_a_job_runs(runtime: Runtime) -> None:
    """The turn fails, or finishes with the last answer, and the job is cancelled."""
    service = Service()
    start = service.tool(cancel=service.cancel)
    model = ScriptedModel(calls(DEPLOY), says("as far as I know"))
    agent = deployer(service, [start], on_exhausted="finish")
    async with runtime(agent, model=model) as client:
        limit = Budget(time=timedelta(seconds=15))  # a tenth of it is for the last answer
        turn = await client.start("deployer", "go", budget=limit)
        report = await turn.result()

    assert report.output == "as far as I know"
    [result] = results(report)
    assert result.outcome is ToolOutcome.UNKNOWN
    assert service.cancelled == ["job-shop"]


async def until_paused_in_its_job(turn: Turn[Any], service: Service) -> None:
    """Wait until the time of a turn is up while its job runs, with more time on a busy machine."""
    await until_waiting(turn, "budget")
    while not service.tokens:
        await turn.add_budget(Budget(time=timedelta(seconds=10)))
        await until_waiting(turn, "budget")


@pytest.mark.accepts("F10")
async def test_turn_that_pauses_for_time_takes_the_result_meanwhile(runtime: Runtime) -> None:
    """The call goes on waiting, and what came in the pause is not lost."""
    service = Service()
    model = ScriptedModel(calls(DEPLOY), says("done"))
    agent = deployer(service, on_exhausted="pause")
    async with runtime(agent, model=model) as client:
        turn = await client.start("deployer", "go", budget=Budget(time=timedelta(seconds=2)))
        await until_paused_in_its_job(turn, service)
        await client.finish_call(service.tokens[0], "meanwhile")
        await turn.add_budget(Budget(time=timedelta(minutes=5)))
        report = await turn.result()

    assert results(report)[0].content == "meanwhile"
    assert report.output == "done"


@pytest.mark.accepts("F10", "F2")
async def test_call_is_charged_once_although_a_pause_comes_between(runtime: Runtime) -> None:
    """It is shown again after the pause, and its job is the same."""
    service = Service()
    model = ScriptedModel(calls(DEPLOY), says("done"))
    agent = deployer(service, on_exhausted="pause")
    async with runtime(agent, model=model) as client:
        limit = Budget(time=timedelta(seconds=2), tool_calls=5)
        turn = await client.start("deployer", "go", budget=limit)
        await until_paused_in_its_job(turn, service)
        await turn.add_budget(Budget(time=timedelta(minutes=5)))
        await until_waiting(turn)
        await client.finish_call(service.tokens[0], "afterwards")
        report = await turn.result()

    assert results(report)[0].content == "afterwards"
    assert report.spent.tool_calls == 1
    assert len(service.started) == 1
