"""Webhooks: real turns, a real worker, and a receiver on loopback that verifies them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from perdure import Agent, Budget, Price, Usage, errors, tool
from perdure.__main__ import run as command
from perdure.temporal.names import TURN
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.worker import AgentWorker
from perdure.worker.settings import WorkerSettings

from ...conftest import Runtime, eventually
from ...support import encrypting
from ...support.gateway.served import served
from ...support.long_turns import begin, filling, reader, runs_of
from ...support.receiver import OLD_SECRET, Answer, Receiver
from ...support.resets import reset, task_ends
from ...support.scheduling import DAILY, new_id
from ...support.spending import ended, queue
from ...support.webhooks import delivered, delivery
from ..conftest import HOST


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


def desk(**fields: Any) -> AgentWorker:
    """A worker of an agent, and of one that it delegates to."""
    agent = Agent(**{"name": "desk", "model": "main", "tools": [refund], **fields})
    clerk = Agent(name="clerk", model="main", description="Looks things up.")
    return AgentWorker(
        [agent, clerk], prices={"scripted:*": Price(input="1", output="1")}, models={"main": "x:y"}
    )


@pytest.mark.slow
@pytest.mark.accepts("H80")
async def test_receiver_is_told_of_each_outcome_once(runtime: Runtime, receiver: Receiver) -> None:
    """The signature is that of Standard Webhooks, with each secret; the data are those of the
    report. Neither a delegate nor a fork sends anything.
    """
    look = call("delegate_to_agent", agent="clerk", task="look")
    model = ByTask(
        {
            "good": ScriptedModel(
                calls(look), says("Done.", usage=Usage(input_tokens=20, output_tokens=3))
            ),
            "look": ScriptedModel(says("seen")),
            "bad": ScriptedModel(fails(errors.LLMRefusedError("no"))),
            "long": ScriptedModel(*(calls(call("unknown", n=n)) for n in range(3))),
            "dear": ScriptedModel(calls(call("unknown")), says("never")),
            "waits": ScriptedModel(calls(call("refund", euros=1))),
            "late": ScriptedModel(calls(call("refund", euros=2))),
        }
    )
    start: dict[str, dict[str, Any]] = {
        "good": {"labels": {"ticket": "4711"}},
        "long": {"max_iterations": 2},
        "dear": {"budget": Budget(model_calls=1)},
        "late": {"deadline": timedelta(seconds=1)},
    }
    async with runtime(desk(delegates=["clerk"]), model=model) as client:
        turns = {
            task: await client.start(
                "desk", task, id=new_id("hook"), on_done=receiver.url(f"/{task}"), **more
            )
            for task in ("good", "bad", "long", "dear", "waits", "late")
            for more in [start.get(task, {})]
        }
        await turns["waits"].wait(20)
        await turns["waits"].cancel("not needed")
        reports = {task: await ended(turn) for task, turn in turns.items()}
        told = {task: (await receiver.until(f"/{task}"))[0] for task in turns}
        memos = [await delivered(client, turn) for turn in turns.values()]
        fork = await turns["good"].fork(say="And now?")
        await ended(fork)
        with pytest.raises(ValueError, match="not enough values"):
            await delivery(client, fork)

    messages = {task: hook.verified() for task, hook in told.items()}
    assert messages == {task: hook.verified(OLD_SECRET) for task, hook in told.items()}
    assert {task: one["type"] for task, one in messages.items()} == {
        "good": "turn.completed",
        "bad": "turn.failed",
        "long": "turn.max_iterations",
        "dear": "turn.budget_exhausted",
        "waits": "turn.cancelled",
        "late": "turn.timed_out",
    }
    for task, one in messages.items():
        report = reports[task]
        error = report if isinstance(report, errors.PerdureError) else None
        data = one["data"]
        assert data["error"] == (error and {"code": error.code, "message": error.message})
        kept = report.report if isinstance(report, errors.PerdureError) else report
        assert kept is not None
        assert (data["id"], data["outcome"], data["output"]) == (
            turns[task].id,
            kept.outcome.value,
            kept.output or kept.last_text,
        )
        assert (data["cost"], data["steps"]) == (str(kept.cost), len(kept.steps))
        assert data["usage"]["input_tokens"] == kept.usage.input_tokens
    assert messages["good"]["data"]["labels"] == {"ticket": "4711"}
    assert messages["waits"]["data"]["error"]["message"].endswith("not needed")
    assert len({hook.headers["webhook-id"] for hook in told.values()}) == len(turns)
    assert memos == [{"state": "delivered", "status": 204, "attempts": 1}] * len(turns)
    assert len(receiver.hooks) == len(turns)


@pytest.mark.accepts("H81")
async def test_result_does_not_wait_for_the_receiver(runtime: Runtime, receiver: Receiver) -> None:
    """A receiver that asks for the turn finds it over; one that hangs holds nobody up."""
    held = threading.Event()
    async with runtime(desk(), model=ScriptedModel(says("Done."))) as client:
        url = receiver.url("/held", Answer(hold=held))
        turn = await client.start("desk", "go", id=new_id("hook"), on_done=url)
        report = await turn.result()
        await receiver.until("/held")
        status = await turn.status()
        handle = await delivery(client, turn)
        running = (await handle.describe()).status
        held.set()
        memo = await delivered(client, turn)

    assert (report.output, status.state) == ("Done.", "ended")
    assert running is WorkflowExecutionStatus.RUNNING
    assert memo == {"state": "delivered", "status": 204, "attempts": 1}


@pytest.mark.accepts("H82")
async def test_delivery_is_tried_again_as_the_receiver_asks(
    runtime: Runtime, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """503 with `Retry-After` is tried again then, with the same id and a new time; 410, another 4xx
    and a redirect end it. The body of an answer is not read.
    """
    caplog.set_level(logging.INFO, "perdure.turns")
    later = {"retry-after": "1"}
    urls = {
        "/busy": [Answer(503, later), Answer(429, later)],
        "/gone": [Answer(410)],
        "/wrong": [Answer(404, later)],
        "/moved": [Answer(307, {"location": receiver.url("/elsewhere")})],
        "/endless": [Answer(200, body=b"x" * 65536)],
    }
    began = time.monotonic()
    async with runtime(desk(), model=ByTask({path: says_done() for path in urls})) as client:
        turns = {
            path: await client.start(
                "desk", path, id=new_id("hook"), on_done=receiver.url(path, *answers)
            )
            for path, answers in urls.items()
        }
        memos = {path: await delivered(client, turn) for path, turn in turns.items()}

    busy = receiver.of("/busy")
    assert time.monotonic() - began >= 2
    assert [len(receiver.of(path)) for path in urls] == [3, 1, 1, 1, 1]
    assert receiver.of("/elsewhere") == []
    assert len({hook.headers["webhook-id"] for hook in busy}) == 1
    assert len({hook.headers["webhook-timestamp"] for hook in busy}) == 3
    assert len({str(hook.verified()) for hook in busy}) == 1
    assert memos["/busy"] == {"state": "delivered", "status": 204, "attempts": 3}
    assert memos["/endless"] == {"state": "delivered", "status": 200, "attempts": 1}
    assert [(memos[path]["state"], memos[path]["error"]) for path in ("/gone", "/wrong")] == [
        ("failed", "the webhook is not delivered: 127.0.0.1 wants no more webhooks (410)"),
        ("failed", "the webhook is not delivered: 127.0.0.1 answered 404"),
    ]
    assert "redirects elsewhere (307), which is not followed" in memos["/moved"]["error"]
    assert receiver.sent < 20_000_000
    lines = [record.getMessage() for record in caplog.records]
    [told] = [line for line in lines if turns["/busy"].id in line and "webhook_" in line]
    assert told == f"webhook_delivered task={turns['/busy'].id} status=204 attempts=3"
    gone = f"webhook_failed task={turns['/gone'].id}"
    [failed] = [one for one in caplog.records if one.getMessage().startswith(gone)]
    assert failed.levelno == logging.WARNING


def says_done() -> ScriptedModel:
    """A model that answers."""
    return ScriptedModel(says("Done."))


@pytest.mark.slow
@pytest.mark.accepts("H83")
async def test_url_that_no_worker_allows_is_refused_before_any_model_call(
    runtime: Runtime, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid one is refused by `start`. Nothing is sent to either."""
    model = says_done()
    wrong = (
        "",
        "hooks",
        "ftp://hooks.example.com/",
        "http://hooks.example.com/",
        "https://user:secret@hooks.example.com/",
        "https://hooks.example.com:x/",
        "https://hooks.example.com\\@127.0.0.1/",
        "https://h.example.com/" + "x" * 2000,
        7,
    )
    async with runtime(desk(), model=model) as client:
        for url in wrong:
            given: Any = url
            with pytest.raises(errors.InvalidRequestError, match="on_done"):
                await client.start("desk", "go", on_done=given)
        port = receiver.port + 1
        for url in (f"http://127.0.0.1:{port}/", "https://hooks.example.com/"):
            turn = await client.start("desk", "go", id=new_id("hook"), on_done=url)
            with pytest.raises(errors.WebhookRefusedError, match="sends no webhooks to") as caught:
                await turn.result()
            assert caught.value.report is not None
            with pytest.raises(ValueError, match="not enough values"):
                await delivery(client, turn)
    monkeypatch.delenv(HOST)
    with pytest.raises(errors.ConfigurationError, match="only one of them is set"):
        async with runtime(desk(), model=model):
            pass

    assert model.call_count == 0
    assert receiver.hooks == []


@pytest.mark.slow
@pytest.mark.accepts("H84")
async def test_all_ways_to_start_a_turn_take_a_webhook(
    runtime: Runtime, receiver: Receiver, perdure_server: str
) -> None:
    """The client, a fork, schedules, batches, HTTP, the command line, and JSON for Temporal."""
    paths = (
        *("/run", "/fork", "/schedule", "/batch", "/command", "/json"),
        *("/http", "/http-schedule", "/http-batch"),
    )
    async with runtime(desk(), model=ScriptedModel(*[says("Done.")] * 10)) as client:
        url = {path: receiver.url(path) for path in paths}
        await client.run("desk", "/run", id=new_id("hook"), on_done=url["/run"])
        first = await client.start("desk", "/fork", id=new_id("hook"))
        await first.result()
        await first.fork(0, on_done=url["/fork"])
        daily = await client.create_schedule(
            new_id("hook"), "desk", "/schedule", **DAILY, on_done=url["/schedule"]
        )
        await daily.run_now()
        await client.start_batch(new_id("hook"), "desk", ["one"], on_done=url["/batch"])
        async with served(client) as http:
            body = {"agent": "desk", "task": "/http", "on_done": url["/http"]}
            begun = await http.post("/v1/turns", json=body)
            weekly = {**DAILY, "id": new_id("hook"), "agent": "desk", "task": "go"}
            weekly["on_done"] = url["/http-schedule"]
            scheduled = await http.post("/v1/schedules", json=weekly)
            await http.post(f"/v1/schedules/{weekly['id']}/run")
            batch = {"agent": "desk", "tasks": ["one"], "on_done": url["/http-batch"]}
            batched = await http.post("/v1/batches", json={**batch, "id": new_id("hook")})
            wrong = await http.post("/v1/turns", json={**body, "on_done": "ftp://x/"})
        await asyncio.to_thread(
            command,
            [
                *("run", "desk", "/command", "--on-done", url["/command"]),
                *("--address", perdure_server, "--task-queue", client.task_queue),
            ],
        )
        await client.temporal.start_workflow(
            TURN,
            {"agent": "desk", "task": "/json", "on_done": url["/json"]},
            id=new_id("hook"),
            task_queue=client.task_queue,
        )
        for path in paths:
            await receiver.until(path)
        await daily.delete()

    assert [one.status_code for one in (begun, scheduled, batched)] == [202, 200, 202]
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["pointer"] == "#/on_done"
    assert [receiver.of("/http")[0].verified()["data"]["id"]] == [begun.json()["id"]]
    assert {path: len(receiver.of(path)) for path in paths} == dict.fromkeys(paths, 1)


@pytest.mark.slow
@pytest.mark.accepts("H84")
async def test_commands_for_batches_and_schedules_take_a_webhook(
    runtime: Runtime, receiver: Receiver, perdure_server: str, tmp_path: Path
) -> None:
    """Each turn of the batch, and of the schedule, sends its own; a change sets another URL."""
    tasks, batch_id, schedule_id = tmp_path / "tasks.jsonl", new_id("hook"), new_id("hook")
    tasks.write_text('"one"\n"two"\n', encoding="utf-8")
    url = {path: ("--on-done", receiver.url(path)) for path in ("/batch", "/create", "/change")}
    times = ("--cron", "0 7 * * *", "--timezone", "UTC")
    async with runtime(desk(), model=ScriptedModel(*[says("Done.")] * 4)) as client:
        connection = ("--address", perdure_server, "--task-queue", client.task_queue)
        for arguments in (
            ["batch", "run", str(tasks), "--agent", "desk", "--id", batch_id, *url["/batch"]],
            ["schedule", "create", schedule_id, "desk", "go", *times, *url["/create"]],
            ["schedule", "run", schedule_id],
            ["schedule", "change", schedule_id, *url["/change"]],
            ["schedule", "run", schedule_id],
        ):
            await asyncio.to_thread(command, [*arguments, *connection])
        for path in url:
            await receiver.until(path)
        await eventually(lambda: len(receiver.of("/batch")) == 2, "both turns of the batch")
        await asyncio.to_thread(command, ["schedule", "delete", schedule_id, *connection])

    assert {path: len(receiver.of(path)) for path in url} == {
        "/batch": 2,
        "/create": 1,
        "/change": 1,
    }


@pytest.mark.accepts("H88")
async def test_receivers_that_hang_keep_no_tool_from_running(
    perdure_server: str, receiver: Receiver
) -> None:
    """The worker has one slot for activities, and sends three webhooks."""

    @tool(read_only=True)
    def look() -> str:
        """Look."""
        return "seen"

    held, paths = threading.Event(), ("/1", "/2", "/3")
    settings = replace(
        WorkerSettings.from_environment(), grace=timedelta(seconds=0.1), max_activities=1
    )
    model = ScriptedModel(*[says("Done.")] * 3, calls(call("look")), says("Seen."))
    async with queue(perdure_server) as used:
        agent = Agent(name="desk", model="scripted:m", tools=[look])
        app = AgentWorker(agent, task_queue=used.client.task_queue, providers={"scripted": model})
        async with app.running(used.client.temporal, settings=settings):
            for path in paths:
                url = receiver.url(path, Answer(hold=held))
                await used.client.run("desk", "go", id=new_id("hook"), on_done=url)
                await receiver.until(path)
            report = await used.client.run("desk", "go", id=new_id("hook"))
            held.set()

    assert (report.output, report.tool_calls) == ("Seen.", 1)


@pytest.mark.slow
@pytest.mark.accepts("H89")
async def test_turn_that_was_reset_sends_a_message_about_its_new_end(
    runtime: Runtime, receiver: Receiver
) -> None:
    """It is another message. Where the start of the delivery is in history, there is none."""
    async with runtime(desk(), model=ScriptedModel(says("One."), says("Two."))) as client:
        turn = await client.start("desk", "go", id=new_id("hook"), on_done=receiver.url("/reset"))
        await turn.result()
        await receiver.until("/reset")
        ends = task_ends(await client.history(turn))
        again = await reset(client, turn, ends[0])
        report = await again.result()
        await receiver.until("/reset", 2)
        last = await reset(client, again, task_ends(await client.history(again))[-1])
        await last.result()
        await asyncio.sleep(1)  # nothing is to come

    first, second = receiver.of("/reset")
    assert (report.output, len(ends)) == ("Two.", 3)
    assert first.headers["webhook-id"] != second.headers["webhook-id"]
    outputs = [hook.verified()["data"]["output"] for hook in (first, second)]
    assert outputs == ["One.", "Two."]


@pytest.mark.slow
@pytest.mark.accepts("H85")
async def test_turn_of_several_runs_sends_one_webhook_at_its_end(
    runtime: Runtime, receiver: Receiver
) -> None:
    """With encryption, the body is plain, and history is not."""
    model = ScriptedModel(*filling(3), says("canary-4711"))
    async with runtime(
        reader(parallel_tools=True), model=model, data_converter=encrypting.converter
    ) as client:
        turn = await begin(client, on_done=receiver.url("/runs"))
        await turn.result()
        memo = await delivered(client, turn)
        runs = await runs_of(client, turn)

    [hook] = receiver.of("/runs")
    assert len(runs) > 1
    assert memo == {"state": "delivered", "status": 204, "attempts": 1}
    assert hook.verified()["data"]["output"] == "canary-4711"
