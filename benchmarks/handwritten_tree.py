"""The baseline of a tree: a hand-written parent that starts hand-written loops as child workflows,
and adds their answers to its transcript.

No leases, guards, reasons of a cancel, traces, lists or cards, except what Temporal has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Replayer, Worker

from benchmarks.errands import next_errands
from benchmarks.handwritten import ONCE, Activities, HandwrittenLoop
from benchmarks.job import PROMPT


@activity.defn
async def ask_parent(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The parent's model."""
    asked = sum(message["role"] == "assistant" for message in messages)
    errands = await next_errands(str(messages[1]["content"]), asked)
    if errands is None:
        return {"role": "assistant", "content": "done"}
    return {
        "role": "assistant",
        "calls": [
            {"id": f"call_{asked}_{place}", "task": task} for place, task in enumerate(errands)
        ],
    }


async def ask_and_delegate(task: str, delegate: Callable[[str, str], Awaitable[str]]) -> str:
    """Ask, delegate, repeat."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": PROMPT},
        {"role": "user", "content": task},
    ]
    while True:
        answer: dict[str, Any] = await workflow.execute_activity(
            "ask_parent", messages, start_to_close_timeout=timedelta(minutes=5), retry_policy=ONCE
        )
        messages.append(answer)
        if not answer.get("calls"):
            return str(answer["content"])
        child = f"{workflow.info().workflow_id}/{len(messages)}"
        results = await asyncio.gather(
            *(delegate(call["task"], f"{child}-{call['id']}") for call in answer["calls"])
        )
        messages += [
            {"role": "tool", "call_id": call["id"], "content": result}
            for call, result in zip(answer["calls"], results, strict=True)
        ]


@workflow.defn(sandboxed=False)
class HandwrittenParent:
    """A parent of hand-written loops."""

    @workflow.run
    async def run(self, task: str) -> str:
        return await ask_and_delegate(task, _loop)


async def _loop(task: str, child: str) -> str:
    return str(await workflow.execute_child_workflow("HandwrittenLoop", task, id=child))


async def connect(address: str) -> Client:
    return await Client.connect(address)


def worker(client: Client, queue: str) -> Worker:
    does, threads = Activities(), ThreadPoolExecutor(100)
    return Worker(
        client,
        task_queue=queue,
        workflows=[HandwrittenParent, HandwrittenLoop],
        activities=[ask_parent, does.ask, does.fetch],
        activity_executor=threads,
    )


def replayer() -> Replayer:
    return Replayer(workflows=[HandwrittenParent])
