"""Calls whose result comes later, where other features meet them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from perdure import Agent, AgentReport, Budget, Delegate, ToolContext, ToolOutcome, errors, tool
from perdure.events import CallFinished, WaitBegan
from perdure.testing import FunctionModel, ModelRequest, Reply, ScriptedModel, call, calls, says
from perdure.values.messages import ToolMessage, ToolResult

from ...conftest import Runtime
from ...support.gateway.served import served
from ...support.jobs import Service, deployer, until_waiting
from ...support.long_turns import SHORT_TASK, begin, runs_of
from ...support.resets import reset, task_ends
from ...support.scheduling import new_id
from ...support.spending import app, ended, look, queue

DEPLOY = call("deploy", target="shop")


def results(report: AgentReport) -> list[ToolResult]:
    """The results of all calls of a turn."""
    return [result for step in report.steps for result in step.results]


def deploys_once(request: ModelRequest) -> Reply:
    """Deploy, and then say what came of it."""
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return says(last.results[0].content)
    return calls(DEPLOY)


@pytest.mark.accepts("F11")
async def test_job_goes_on_in_a_new_run_of_its_turn(runtime: Runtime) -> None:
    """With its polls, and its token; what was refused before the new run is refused there."""
    service = Service()
    start = service.tool(poll=service.poll, poll_every=timedelta(seconds=0.2))
    agent = deployer(service, [start, look], parallel_tools=True)
    model = ScriptedModel(
        calls(*(call("look", number=n) for n in range(60))), calls(DEPLOY), says("done")
    )
    async with runtime(agent, model=model) as client:
        turn = await begin(client, "deployer", timeout=SHORT_TASK)
        await until_waiting(turn)
        before = len(await runs_of(client, turn))
        for number in range(200):
            await turn.add_budget(iterations=1, by=f"{number}")
            if len(await runs_of(client, turn)) > before:
                break
        assert len(await runs_of(client, turn)) > before
        await until_waiting(turn)
        polls = len(service.polled)
        await service.until_polled(polls + 1)
        with pytest.raises(errors.InvalidRequestError):
            await client.finish_call(service.tokens[0][:-6] + "AAAAAA", "no")
        await client.finish_call(service.tokens[0], "ok")
        report = await turn.result()

    assert len(service.started) == 1
    assert results(report)[-1].content == "ok"
    assert report.spent.tool_calls == 61


@pytest.mark.slow
@pytest.mark.accepts("S47")
async def test_poll_that_does_not_stop_stays_behind_in_its_run(runtime: Runtime) -> None:
    """The turn does not fail: the next run polls anew."""
    service, released = Service(), asyncio.Event()

    async def poll(handle: str, target: str) -> Any:
        service.poll(handle, target)
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    start = service.tool(poll=poll, poll_every=timedelta(seconds=0.2))
    agent = deployer(service, [start, look], parallel_tools=True)
    model = ScriptedModel(
        calls(*(call("look", number=n) for n in range(60))), calls(DEPLOY), says("done")
    )
    async with runtime(agent, model=model) as client:
        turn = await begin(client, "deployer", timeout=SHORT_TASK)
        await until_waiting(turn)
        await service.until_polled(1)
        before = len(await runs_of(client, turn))
        async with asyncio.timeout(60):
            while len(await runs_of(client, turn)) == before:
                await turn.add_budget(iterations=1)
        await service.until_polled(2)
        released.set()
        await client.finish_call(await service.token(), "up")
        report = await turn.result()

    assert report.output == "done"
    assert results(report)[-1].content == "up"


@pytest.mark.slow
@pytest.mark.accepts("F10", "F11")
async def test_time_of_a_turn_is_up_in_the_new_run_that_waits_for_a_job(runtime: Runtime) -> None:
    """Nothing else wakes that run: no tool was called there, and nobody polls."""
    service = Service()
    start = service.tool(cancel=service.cancel, timeout=timedelta(hours=1))
    agent = deployer(service, [start, look], parallel_tools=True, on_exhausted="finish")
    model = ScriptedModel(
        calls(*(call("look", number=n) for n in range(60))), calls(DEPLOY), says("I stop here.")
    )
    limit = Budget(time=timedelta(seconds=20))
    async with runtime(agent, model=model) as client:
        turn = await begin(client, "deployer", timeout=SHORT_TASK, budget=limit)
        await until_waiting(turn)
        before = len(await runs_of(client, turn))
        for number in range(200):
            await turn.add_budget(iterations=1, by=f"{number}")
            if len(await runs_of(client, turn)) > before:
                break
        assert len(await runs_of(client, turn)) > before
        report = await turn.result()

    assert report.output == "I stop here."
    assert service.cancelled == ["job-shop"]


@pytest.mark.accepts("F11")
async def test_turn_is_reset_into_the_wait_for_a_job(runtime: Runtime) -> None:
    """The new run has the result that was sent to the run before, and no second job."""
    service = Service()
    model = ScriptedModel(calls(DEPLOY), says("done"), says("again"))
    async with runtime(deployer(service), model=model) as client:
        turn = await client.start("deployer", "go")
        await until_waiting(turn)
        await client.finish_call(service.tokens[0], "first")
        await turn.result()
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
        started = next(
            event
            for event in history.events
            if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED
        )
        again = await reset(
            client, turn, max(end for end in task_ends(history) if end < started.event_id)
        )
        report = await again.result()

    assert report.output == "again"
    assert [result.content for result in results(report)] == ["first"]
    assert len(service.started) == 1


@pytest.mark.accepts("F11")
async def test_call_made_again_after_a_reset_has_another_token(runtime: Runtime) -> None:
    """If its arguments are others: the result of the job before is not that of this call."""
    service = Service()
    other = call("deploy", target="site")
    model = ScriptedModel(calls(DEPLOY), says("done"), calls(other), says("again"))
    async with runtime(deployer(service), model=model) as client:
        turn = await client.start("deployer", "go")
        await client.finish_call(await service.token(), "first")
        await turn.result()
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
        again = await reset(client, turn, task_ends(history)[0])
        new = await service.token(2)
        await until_waiting(again)
        with pytest.raises((errors.CallFinishedError, errors.InvalidRequestError)):
            await client.finish_call(service.tokens[0], "of the run before")
        await client.finish_call(new, "second")
        report = await again.result()

    assert results(report)[0].content == "second"


@pytest.mark.accepts("F12")
async def test_cancelled_turn_with_a_job_goes_on_by_a_resume(runtime: Runtime) -> None:
    """The new turn knows that the call may have taken effect, and has a token of its own."""
    service = Service()
    start = service.tool(effect=["target"], cancel=service.cancel)
    model = ScriptedModel(calls(DEPLOY), calls(DEPLOY), says("done"))
    async with runtime(deployer(service, [start]), model=model) as client:
        turn = await client.start("deployer", "go")
        await until_waiting(turn)
        await turn.cancel("a break")
        await ended(turn)
        resumed = await turn.resume()
        report = await resumed.result()
        with pytest.raises(errors.TurnOverError):
            await client.finish_call(service.tokens[0], "late")

    assert report.output == "done"
    assert len(service.started) == 1
    [result] = results(report)
    assert "this call was not made" in result.content


@pytest.mark.accepts("F12")
async def test_delegate_waits_for_a_job_and_a_cancel_of_its_parent_cancels_it(
    runtime: Runtime,
) -> None:
    """The token is that of the delegate's own turn."""
    service = Service()
    boss = Agent(name="boss", model="scripted:boss", delegates=[Delegate("deployer")])
    asked = call("delegate_to_agent", agent="deployer", task="deploy")
    agent = deployer(service, [service.tool(cancel=service.cancel)])
    model = ScriptedModel(
        calls(asked), calls(DEPLOY), says("deployed"), says("done"), calls(asked), calls(DEPLOY)
    )
    async with runtime([boss, agent], model=model) as client:
        first = await client.start("boss", "go")
        child = await client.finish_call(await service.token(), "ok")
        report = await first.result()
        second = await client.start("boss", "go")
        await service.token(2)
        await until_waiting(second)
        await second.cancel("enough")
        end = await ended(second)

    assert child.startswith(f"{first.id}/")
    assert report.output == "done"
    assert isinstance(end, errors.TurnCancelledError)
    assert service.cancelled == ["job-shop"]


@pytest.mark.accepts("F12")
async def test_turns_of_sessions_batches_and_schedules_wait_for_jobs(runtime: Runtime) -> None:
    """An interrupt of a session cancels the job, and the next turn may start another one."""
    service = Service()
    agent = deployer(service, [service.tool(cancel=service.cancel)])
    mondays: dict[str, Any] = {"cron": "30 6 * * MON", "timezone": "America/New_York"}
    async with runtime(agent, model=FunctionModel(deploys_once)) as client:
        session = client.session(new_id("chat"), "deployer")
        first = await session.say("first")
        await until_waiting(await first.turn())
        second = await session.say("second", if_busy="interrupt")
        await client.finish_call(await service.token(2), "second")
        in_session = await second.result()
        with pytest.raises(errors.TurnCancelledError):
            await first.result()
        batch = await client.start_batch(new_id("jobs"), "deployer", ["one"])
        await client.finish_call(await service.token(3), "in a batch")
        status = await batch.wait()
        weekly = await client.create_schedule(new_id("jobs"), "deployer", "Go.", **mondays)
        scheduled = client.turn(await weekly.run_now())
        await client.finish_call(await service.token(4), "scheduled")
        by_schedule = await scheduled.result()
        await weekly.delete()

    assert (in_session.output, by_schedule.output) == ("second", "scheduled")
    assert service.cancelled == ["job-shop"]
    assert status.done == 1


@pytest.mark.accepts("F13")
async def test_job_is_started_after_its_approval(runtime: Runtime) -> None:
    """A denied call starts none."""
    service = Service()
    agent = deployer(service, [service.tool(requires_approval=True)])
    model = ScriptedModel(calls(DEPLOY), calls(DEPLOY), says("done"))
    async with runtime(agent, model=model) as client:
        turn = await client.start("deployer", "go")
        await until_waiting(turn, "approval")
        await turn.deny("call_1_1", "not now")
        await until_waiting(turn, "approval")
        assert not service.started
        await turn.approve("call_2_1")
        await client.finish_call(await service.token(), "ok")
        report = await turn.result()

    assert [result.outcome for result in results(report)] == [ToolOutcome.DENIED, ToolOutcome.DONE]
    assert results(report)[1].content == "ok"


@pytest.mark.accepts("F14")
async def test_job_that_is_given_up_is_looked_up(runtime: Runtime) -> None:
    """`verify=` says what became of it, as of any call without an answer."""
    service, looked = Service(), []

    def verify(target: str) -> str:
        """Look the deploy up."""
        looked.append(target)
        return f"{target} is deployed"

    start = service.tool(later=timedelta(seconds=0.5), verify=verify)
    model = ScriptedModel(calls(DEPLOY), says("done"))
    async with runtime(deployer(service, [start]), model=model) as client:
        report = await client.run("deployer", "go")

    [result] = results(report)
    assert result.outcome is ToolOutcome.VERIFIED
    assert "shop is deployed" in result.content
    assert looked == ["shop"]
    assert not report.unsettled


@pytest.mark.accepts("F14")
async def test_job_that_was_given_up_and_is_not_there_is_started_again(runtime: Runtime) -> None:
    """With the same token, if the tool may be repeated; its result is that of the call."""
    service = Service()

    def verify(target: str) -> None:
        """Find nothing."""

    start = service.tool(later=timedelta(seconds=1), verify=verify, idempotent=True)
    model = ScriptedModel(calls(DEPLOY), says("done"))
    async with runtime(deployer(service, [start]), model=model) as client:
        turn = await client.start("deployer", "go")
        await client.finish_call(await service.token(2), "second")
        report = await turn.result()

    assert results(report)[0].content == "second"
    assert len(set(service.tokens)) == 1


@pytest.mark.accepts("F14")
async def test_calls_of_a_tool_with_effect_keys_wait_for_its_job(runtime: Runtime) -> None:
    """The second of two equal calls gets the result of the first, and starts nothing."""
    service = Service()
    agent = deployer(service, [service.tool(effect=["target"])], parallel_tools=True)
    model = ScriptedModel(calls(DEPLOY, DEPLOY), says("done"))
    async with runtime(agent, model=model) as client:
        turn = await client.start("deployer", "go")
        token = await service.token()
        await until_waiting(turn)
        await client.finish_call(token, "v42")
        report = await turn.result()

    first, second = results(report)
    assert first.content == "v42"
    assert "Done before" in second.content
    assert second.content.endswith("v42")
    assert service.started == ["shop"]


@pytest.mark.accepts("F15")
async def test_call_that_fails_beside_a_job_is_made_again_meanwhile(runtime: Runtime) -> None:
    """The job goes on, and its call keeps its time."""
    service, tried = Service(), []

    @tool(idempotent=True)
    def flaky() -> str:
        """Fail."""
        tried.append(1)
        raise ValueError("no")

    agent = deployer(service, [service.tool(), flaky], parallel_tools=True)
    model = ScriptedModel(calls(DEPLOY, call("flaky")), says("done"))
    async with runtime(agent, model=model) as client:
        turn = await client.start("deployer", "go")
        await until_waiting(turn)
        await client.finish_call(await service.token(), "ok")
        report = await turn.result()
        began = [event.fact async for event in turn.events() if isinstance(event.fact, WaitBegan)]

    assert [result.content for result in results(report)] == ["ok", "flaky failed: ValueError: no"]
    assert len(began) == 1


@pytest.mark.accepts("F16")
async def test_result_is_sent_over_http_by_its_own_tenant_alone(runtime: Runtime) -> None:
    """Another tenant, and one without the permission, learn nothing of the call."""
    service = Service()
    turn_id = f"deploy-{secrets.token_hex(4)}"
    async with (
        runtime(deployer(service), model=FunctionModel(deploys_once)) as client,
        served(client) as http,
    ):
        foreign = await client.start("deployer", "go", id=f"@other/{turn_id}")
        of_foreign = await service.token()
        begun = {"agent": "deployer", "task": "go", "id": turn_id}
        assert (await http.post("/v1/turns", json=begun)).status_code == 202
        token = await service.token(2)
        await until_waiting(client.turn(f"@acme/{turn_id}"))
        wrong = [
            await http.post(f"/v1/calls/{of_foreign}", json={"result": "no"}),
            await http.post("/v1/calls/call_x", json={"result": "no"}),
            await http.post(f"/v1/calls/{token}", json={"result": "no", "more": 1}),
            await http.post(f"/v1/calls/{token}", json={"result": "x" * 70_000}),
        ]
        sent = [await http.post(f"/v1/calls/{token}", json={"result": {"v": 1}}) for _ in range(2)]
        other = await http.post(f"/v1/calls/{token}", json={"result": "another"})
        result = (await http.get(f"/v1/turns/{turn_id}/result", params={"wait": 30})).json()
        turn = client.turn(f"@acme/{turn_id}")
        facts = [event.fact async for event in turn.events()]
        await client.finish_call(of_foreign, "done")
        await foreign.result()

    assert [answer.status_code for answer in wrong] == [422, 422, 422, 413]
    assert sent[0].status_code == 200
    assert sent[0].json() == {"turn": f"@acme/{turn_id}"}
    assert sent[1].status_code in (200, 409)
    assert other.status_code == 409
    assert result["output"] == '{"v":1}'
    [finished] = [fact for fact in facts if isinstance(fact, CallFinished)]
    assert finished.by == "anna@example.com"


@pytest.mark.slow
@pytest.mark.accepts("F20")
@pytest.mark.parametrize("is_later", [True, False])
async def test_tool_changes_between_the_start_and_the_call(
    perdure_server: str, is_later: bool
) -> None:
    """Since a deploy, its result comes later, or at once."""
    service = Service()
    later = service.tool(requires_approval=True)

    @tool(requires_approval=True)
    async def deploy(target: str, ctx: ToolContext[None]) -> str:
        """Deploy something."""
        return f"{target} is deployed"

    first, second = (deploy, later) if is_later else (later, deploy)
    model = ScriptedModel(calls(DEPLOY), says("done"))
    async with queue(perdure_server) as line:
        async with line.worker(app(deployer(service, [first])), model):
            turn = await line.client.start("deployer", "go")
            await until_waiting(turn, "approval")
        async with line.worker(app(deployer(service, [second])), model):
            await turn.approve("call_1_1")
            report = await turn.result()

    [result] = results(report)
    if is_later:
        assert "since a deploy, its result comes later" in result.content
        assert (result.outcome, service.started) == (ToolOutcome.FAILED, [])
    else:
        assert (result.content, result.outcome) == ("shop is deployed", ToolOutcome.DONE)
