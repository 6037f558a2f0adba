"""`kill -9` in the middle of a model call, and of a tool call that has an effect: three minutes.

`.venv-peers/bin/python -m benchmarks.peers.kills`, after `make -C benchmarks peers` has set it up.

Another process of the same kind is running when the first one is killed. The benchmark waits for an
automatic recovery: ten seconds with a library, which does not supervise its processes, and without
a limit on Temporal. Then the killed process is started again, and if that is not enough, the turn
is continued as documented. A DBOS workflow is also resumed by hand, without starting the killed
process.

All settings are defaults. The processes of the cases start one after the other, and the cases then
run concurrently, since they mostly wait; so the accuracy is about half a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from benchmarks.bench import Kind
from benchmarks.peers.processes import Told, telling
from benchmarks.peers.with_dbos_client import resume
from perdure.worker.dev.server import DevServer

PATIENCE, LONGEST = 10.0, 400.0
IN_MODEL, IN_TOOL = "model call", "tool call"
CASES = {IN_MODEL: ("2 5000 15", "0", "asked", 2), IN_TOOL: ("2 5000 0", "15", "ran", 1)}
"""The task, how long a tool takes, and in which line the kill comes: the second model call, or the
first tool call.
"""

ON_TEMPORAL = (
    Kind(
        "perdure",
        "benchmarks.peers.with_perdure_effect",
        "AgentTurn",
        lambda task: {"agent": "job", "task": task},
    ),
    Kind(
        "perdure, read_only",
        "benchmarks.peers.with_perdure_effect",
        "AgentTurn",
        lambda task: {"agent": "job-read-only", "task": task},
    ),
    Kind("pydantic-ai", "benchmarks.peers.with_pydantic_ai", "Job"),
    Kind("openai-agents", "benchmarks.peers.with_openai_agents", "Job"),
)
LANGGRAPH, DBOS = "benchmarks.peers.with_langgraph:sync", "benchmarks.peers.with_dbos:job"


def story(name: str, case: str, processes: list[Told], **facts: Any) -> dict[str, Any]:
    """The observations: model calls of a turn that needs three, runs of the interrupted tool call,
    and runs of its two calls.
    """
    ran = [line[1] for told in processes for line in told.of("ran")]
    asked = sum(len(told.of("asked")) for told in processes)
    return {
        "name": name,
        "killed in": case,
        **facts,
        "model calls": asked,
        "runs of call 0": ran.count("0"),
        "runs of call 1": ran.count("1"),
    }


async def on_temporal(
    address: str, kind: Kind, case: str, starting: asyncio.Lock
) -> dict[str, Any]:
    """A turn whose worker is killed while another one polls the same queue."""
    task, tool_s, word, count = CASES[case]
    queue = f"{kind.name}-{case}".replace(" ", "-")
    client = await Client.connect(address)
    async with contextlib.AsyncExitStack() as stack:
        async with starting:
            first = await stack.enter_async_context(
                telling("benchmarks.job", kind.module, address, queue, JOB_TOOL_S=tool_s)
            )
            handle = await client.start_workflow(
                kind.workflow, kind.start(task), id=queue, task_queue=queue
            )
            await first.until(word, count)
            second = await stack.enter_async_context(
                telling("benchmarks.job", kind.module, address, queue, JOB_TOOL_S=tool_s)
            )
            await polled_by_two(client, queue)
            assert len(first.of(word)) == count, "the call ended before the other worker polled"
            killed = time.time()
            first.process.kill()
        await handle.result()
        return story(
            kind.name,
            case,
            [first, second],
            **{"by itself, s": round(await second.next_call() - killed, 1)},
        )


async def polled_by_two(client: Client, queue: str) -> None:
    """Wait until both workers poll."""
    kind = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    request = DescribeTaskQueueRequest(
        namespace="default", task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    while (  # noqa: ASYNC110 - the server does not tell
        len(
            {
                poller.identity
                for poller in (await client.workflow_service.describe_task_queue(request)).pollers
            }
        )
        < 2
    ):
        await asyncio.sleep(0.1)


async def with_library(
    folder: Path,
    name: str,
    module: str,
    case: str,
    starting: asyncio.Lock,
    *,
    by_hand: bool = False,
) -> dict[str, Any]:
    """A turn whose process is killed while another one uses the same database."""
    task, tool_s, word, count = CASES[case]
    turn_id = f"{name}-{case}".replace(" ", "-").replace(",", "")
    url = f"sqlite:///{folder / turn_id}.db"
    job = ("benchmarks.peers.library_job", f"{module}:sqlite", url)
    async with contextlib.AsyncExitStack() as stack:
        async with starting:
            first, other = [
                await stack.enter_async_context(
                    telling(*job, JOB_TOOL_S=tool_s, JOB_EXECUTOR=executor)
                )
                for executor in "ab"
            ]
            await other.until("ready")
            await first.until("ready")
            await first.say(f"run {turn_id} {task}")
            await first.until(word, count)
        await asyncio.sleep(0.5)
        first.process.kill()
        seen: dict[str, Any] = {"by itself, s": await within(PATIENCE, time.time(), other)}
        if by_hand:
            began = time.time()
            await asyncio.to_thread(resume, url, turn_id)
            seen["resumed by hand, s"] = await within(PATIENCE, began, other)
            await end(other, turn_id)
            return story(name, case, [first, other], **seen)
        third = await stack.enter_async_context(telling(*job, JOB_TOOL_S=tool_s, JOB_EXECUTOR="a"))
        await third.until("ready")
        seen["after a restart, s"] = await within(3, time.time(), other, third)
        began = time.time()
        await end(third, turn_id)
        if seen["after a restart, s"] is None:
            seen["continued by hand, s"] = await within(PATIENCE, began, third)
        return story(name, case, [first, other, third], **seen)


async def within(patience: float, since: float, *processes: Told) -> float | None:
    """Seconds until the first call in any of them; None if there was none within the limit."""
    calls = [asyncio.create_task(told.next_call()) for told in processes]
    done, waiting = await asyncio.wait(calls, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    for call in waiting:
        call.cancel()
    return round(min(call.result() for call in done) - since, 1) if done else None


async def end(told: Told, turn_id: str) -> None:
    """Continue a turn; if it is running again already, only wait for it."""
    await told.say(f"again {turn_id}")
    await told.until("done")


async def everything(folder: Path) -> list[dict[str, Any]]:
    """Run all cases."""
    starting = asyncio.Lock()
    async with DevServer(folder=None, port=0, ui=False) as server, asyncio.TaskGroup() as group:
        work = [
            group.create_task(asyncio.wait_for(story, LONGEST))
            for case in CASES
            for story in (
                *(
                    on_temporal(server.address.address, kind, case, starting)
                    for kind in ON_TEMPORAL
                ),
                with_library(folder, "langgraph", LANGGRAPH, case, starting),
                with_library(folder, "dbos", DBOS, case, starting),
                with_library(folder, "dbos, by hand", DBOS, case, starting, by_hand=True),
            )
        ]
    return [task.result() for task in work]


def line(seen: dict[str, Any]) -> str:
    facts = ", ".join(
        f"{name} {value}" for name, value in seen.items() if name not in ("name", "killed in")
    )
    return f"{seen['name']:<20} {seen['killed in']:<11} {facts}"


async def main() -> None:
    """Print the results."""
    with tempfile.TemporaryDirectory() as folder:
        for seen in sorted(await everything(Path(folder)), key=lambda seen: str(seen["killed in"])):
            print(line(seen))


if __name__ == "__main__":
    asyncio.run(main())
