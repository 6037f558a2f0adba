"""Records histories of what is behind a patch.

`python -m tests.replay.record_patches FOLDER [NAME…]` writes them into a folder.
`patches/` has them as this release makes them, with patches; `patches/earlier/` as a release
without the patches made them, from the code of that release.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowHistory,
    WorkflowUpdateFailedError,
)
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from perdure import Agent, Budget, Price, Usage, tool
from perdure.activities.provider import Heard, ModelRequest
from perdure.batch.wire import PartNews, PartOrder, part_id
from perdure.clients import AgentClient
from perdure.clients.batches.handle import described
from perdure.delivery.push import PushCall
from perdure.errors import PerdureError
from perdure.session.wire import Queued, SessionReason, SessionRequest, SessionSnapshot
from perdure.temporal.names import ADD_BUDGET, BATCH_NEWS, BATCH_ORDER, CLOSE, PUSH, SESSION
from perdure.temporal.payloads import pack
from perdure.testing import FunctionModel, call, calls, local_runtime, says
from perdure.testing.scripted import Reply
from perdure.turn.facts import ChildScheduled, ChildTold
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import BudgetUpdate, Spending
from perdure.values.messages import UserMessage
from perdure.worker import AgentWorker

from ..support.gateway.a2a_push import cancelled_at_once
from ..support.held_records import HeldRecords
from ..support.resets import reset_to, task_ends
from .record import scrubbed

FOLDER = Path(__file__).parent / "patches"
EARLIER = FOLDER / "earlier"
TASKS = ["one", "two", "three", "four"]
SPENT = Usage(input_tokens=90, output_tokens=10)
AT_ONCE = 2

Histories = dict[str, WorkflowHistory]


def answer(request: ModelRequest) -> Reply:
    """Delegate the task "delegate", and have the task "post" posted; to all else say "done"."""
    last = request.messages[-1]
    text = last.text if isinstance(last, UserMessage) else ""
    if text == "delegate":
        return calls(call("delegate_to_agent", agent="poster", task="post"), usage=SPENT)
    if text == "post":
        return calls(call("post", text="hello"), usage=SPENT)
    return says("done", usage=SPENT)


class Holding:
    """A model that keeps the first requests until it is let go.

    Attributes:
        is_full: Set once as many requests wait as turns may run at once.
        let_go: Set when answers may be given.
    """

    def __init__(self) -> None:
        self._asked = 0
        self.is_full = asyncio.Event()
        self.let_go = asyncio.Event()
        self.records = HeldRecords()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer."""
        self._asked += 1
        if self._asked == AT_ONCE:
            self.is_full.set()
        await self.let_go.wait()
        return await FunctionModel(answer).complete(request)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Answer."""
        return await self.complete(request)

    async def close(self) -> None:
        """Do nothing."""


@tool(requires_approval=True)
def post(text: str) -> str:
    """Post a text."""
    return f"posted {text}"


def app() -> AgentWorker:
    """The worker."""
    agents = [
        Agent(name="classifier", model="scripted:classifier"),
        Agent(name="editor", model="scripted:editor", delegates=["poster"]),
        Agent(name="poster", model="scripted:poster", description="Posts.", tools=[post]),
    ]
    return AgentWorker(agents, prices={"scripted:*": Price(input="1", output="1")})


async def batch_with(
    client: AgentClient,
    model: Holding,
    batch_id: str,
    during: Callable[[WorkflowHandle[Any, Any], WorkflowHandle[Any, Any]], Awaitable[object]],
) -> Histories:
    """Run a batch, do something with it and its part while two turns run, and fetch both."""
    batch = await client.start_batch(
        batch_id, "classifier", TASKS, at_once=AT_ONCE, budget=Budget(usd="10")
    )
    await model.is_full.wait()
    _, note = await described(client.temporal, batch_id)
    there = part_id(batch_id, 1, note.rounds[0].digest, 1)
    handles = {
        name: client.temporal.get_workflow_handle(id)
        for name, id in (("batch", batch_id), ("part", there))
    }
    await during(handles["batch"], handles["part"])
    model.let_go.set()
    await batch.wait()
    await handles["part"].result()
    return {name: await handle.fetch_history() for name, handle in handles.items()}


async def reset(client: AgentClient, model: Holding) -> Histories:
    """A part that is reset to its first workflow task, while its first two turns run."""

    async def to_the_first(_: Any, part: WorkflowHandle[Any, Any]) -> None:
        [first, *_rest] = task_ends(await part.fetch_history())
        await reset_to(client.temporal, part.id, "", first)
        await until_count(part, "START_CHILD_WORKFLOW_EXECUTION_FAILED", AT_ONCE)

    return await batch_with(client, model, "reset", to_the_first)


async def reset_and_cancelled(client: AgentClient, model: Holding) -> Histories:
    """A part that is reset to its first workflow task, and then cancelled with its batch."""

    async def to_the_first(batch: WorkflowHandle[Any, Any], part: WorkflowHandle[Any, Any]) -> None:
        [first, *_rest] = task_ends(await part.fetch_history())
        await reset_to(client.temporal, part.id, "", first)
        await until_count(part, "START_CHILD_WORKFLOW_EXECUTION_FAILED", AT_ONCE)
        await batch.cancel()
        await until_count(part, "EXTERNAL_WORKFLOW_EXECUTION_CANCEL_REQUESTED", AT_ONCE)

    return await batch_with(client, model, "reset-cancelled", to_the_first)


async def added(client: AgentClient, model: Holding) -> Histories:
    """A batch whose budget is added to while its first two turns run."""

    async def add(batch: WorkflowHandle[Any, Any], part: WorkflowHandle[Any, Any]) -> None:
        await batch.execute_update(ADD_BUDGET, pack(BudgetUpdate(usd=Decimal(90))))
        await until_count(part, "WORKFLOW_EXECUTION_SIGNALED", 2)

    return await batch_with(client, model, "added", add)


async def recording(client: AgentClient, model: Holding) -> Histories:
    """A session that is cancelled while it records its first turn, and closed after that."""
    session = client.session("recording", "classifier")
    turn = await (await session.say("first", id="1")).turn()
    model.records.let_go.clear()
    await turn.cancel("enough")
    await model.records.is_held.wait()
    handle = client.temporal.get_workflow_handle(session.id)
    before = len(task_ends(await handle.fetch_history()))
    await handle.cancel()
    await until_count(handle, "WORKFLOW_TASK_COMPLETED", before + 1)
    model.records.let_go.set()
    with contextlib.suppress(PerdureError):  # this release has closed it
        await session.close()
    return await made_up("session", handle)


async def waiting(client: AgentClient, model: Holding) -> Histories:
    """A delegate that waits for an approval."""
    model.let_go.set()
    turn = await client.start("editor", "delegate", id="waiting")
    async for event in turn.events():
        if isinstance(event.fact, ChildScheduled):
            delegate = client.turn(event.fact.turn_id)
        if isinstance(event.fact, ChildTold):
            break
    [pending] = await delegate.pending_approvals()
    await delegate.approve(pending)
    await turn.result()
    handle = client.temporal.get_workflow_handle(delegate.id)
    return {"delegate": await handle.fetch_history()}


async def forgotten(client: AgentClient, model: Holding) -> Histories:
    """A part that is told it had given back nearly all of its money, as after a reset."""

    async def take_back(_: Any, part: WorkflowHandle[Any, Any]) -> None:
        order = PartOrder(
            slots=AT_ONCE,
            given=Spending(usd=Decimal(10)),
            taken=Spending(usd=Decimal("9.9")),
            budget=Budget(usd="10"),
        )
        await part.signal(BATCH_ORDER, pack(order))

    return await batch_with(client, model, "forgotten", take_back)


async def two_runs(client: AgentClient, model: Holding) -> Histories:
    """A batch with news of two runs of its part, of which the first of the second has a small
    number. The last one ends the batch.
    """

    async def report(batch: WorkflowHandle[Any, Any], _: Any) -> None:
        for run, fields in (
            ("a", {"number": 50, "running": 2}),
            ("b", {"number": 1, "running": 1}),
            ("b", {"number": 60, "done": 4, "over": True}),
        ):
            payload = pack(PartNews.model_validate({"part": 1, **fields})).payload
            # the earlier release knows no runs
            payload.data = json.dumps({**json.loads(payload.data), "run": run}).encode()
            count = len(task_ends(await batch.fetch_history()))
            await batch.signal(BATCH_NEWS, RawValue(payload))
            await until_count(batch, "WORKFLOW_TASK_COMPLETED", count + 1)

    return await batch_with(client, model, "two-runs", report)


async def made_up_session(client: AgentClient, _: Holding) -> Histories:
    """A session that is started with the input of a later run."""
    session = SessionRequest(agent="classifier")
    given = SessionSnapshot(session=session, count=0, queue=(Queued(id="1", text="go"),))
    handle = await client.temporal.start_workflow(
        SESSION, pack(given), id="made-up-session", task_queue=client.task_queue
    )
    await until_count(handle, "WORKFLOW_TASK_COMPLETED", 1)
    with contextlib.suppress(RPCError, WorkflowUpdateFailedError):  # this release has refused it
        await handle.execute_update(CLOSE, pack(SessionReason()))
    return await made_up("run", handle)


async def made_up_push(client: AgentClient, _: Holding) -> Histories:
    """Push notifications that begin after a change. Their receiver is not allowed."""
    given = PushCall(id="1", url="https://x.example/", told="9")
    handle = await client.temporal.start_workflow(
        PUSH, pack(given), id="made-up-push", task_queue=client.task_queue
    )
    return await made_up("run", handle)


async def cancelled_push(client: AgentClient, model: Holding) -> Histories:
    """Push notifications that are cancelled while a client waits for their beginning."""
    given = PushCall(id="1", url="https://x.example/")
    cancelled = cancelled_at_once(client, given, "cancelled-push", "late")
    poster = Agent(name="poster", model="scripted:poster")
    late = AgentWorker([poster], providers={"scripted": model}, task_queue="late")
    async with cancelled as (_asking, handle), late.running(client.temporal):
        return await made_up("run", handle)


async def made_up(name: str, handle: WorkflowHandle[Any, Any]) -> Histories:
    with contextlib.suppress(WorkflowFailureError):
        await handle.result()
    return {name: await handle.fetch_history()}


async def until_count(handle: WorkflowHandle[Any, Any], kind: str, count: int) -> None:
    """Wait until a run has so many events of a kind."""
    wanted = EventType.Value(f"EVENT_TYPE_{kind}")
    async for event in handle.fetch_history_events(wait_new_event=True):
        count -= event.event_type == wanted
        if not count:
            return


SCENARIOS = {
    "reset": (reset, ("batch", "part")),
    "reset-cancelled": (reset_and_cancelled, ("part",)),
    "added": (added, ("batch", "part")),
    "recording": (recording, ("session",)),
    "waiting": (waiting, ("delegate",)),
    "forgotten": (forgotten, ("part",)),
    "two-runs": (two_runs, ("batch",)),
    "made-up-session": (made_up_session, ("run",)),
    "made-up-push": (made_up_push, ("run",)),
    "cancelled-push": (cancelled_push, ("run",)),
}
"""What is recorded, and which of its histories are stored."""


async def main(folder: Path, names: Sequence[str]) -> None:
    """Record all of them, or those of these names."""
    for name in names or SCENARIOS:
        scenario, stored = SCENARIOS[name]
        model = Holding()
        if name.startswith("made-up"):
            model.let_go.set()
        converter = DataConverter(payload_codec=model.records)
        async with local_runtime(app(), model=model, data_converter=converter) as client:
            histories = await scenario(client, model)
        for kind in stored:
            path = folder / f"{name}-{kind}.json"
            path.write_text(scrubbed(histories[kind]), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
