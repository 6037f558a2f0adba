"""The baseline: a hand-written agent loop on Temporal, with the whole transcript in every model
call.

It is the simplest correct version: a model activity, a tool activity, a loop. No budgets, events,
typed errors, digests or heartbeats.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import Replayer, Worker

from benchmarks.job import PROMPT, next_call

ONCE = RetryPolicy(maximum_attempts=1)


class Activities:
    """The job's model and tool."""

    @activity.defn
    async def ask(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        asked = sum(message["role"] == "assistant" for message in messages)
        arguments = await next_call(str(messages[1]["content"]), asked)
        if arguments is None:
            return {"role": "assistant", "content": "done"}
        return {
            "role": "assistant",
            "calls": [{"id": f"call_{asked}", "name": "fetch", "arguments": arguments}],
        }

    @activity.defn
    def fetch(self, arguments: str) -> str:
        return "x" * int(json.loads(arguments)["size"])


@workflow.defn(sandboxed=False)
class HandwrittenLoop:
    """Ask, act, repeat."""

    @workflow.run
    async def run(self, task: str) -> str:
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": task},
        ]
        while True:
            answer: dict[str, Any] = await workflow.execute_activity(
                "ask", messages, start_to_close_timeout=timedelta(minutes=5), retry_policy=ONCE
            )
            messages.append(answer)
            if not answer.get("calls"):
                return str(answer["content"])
            for call in answer["calls"]:
                result = await workflow.execute_activity(
                    "fetch",
                    call["arguments"],
                    start_to_close_timeout=timedelta(minutes=1),
                    retry_policy=ONCE,
                )
                messages.append({"role": "tool", "call_id": call["id"], "content": result})


async def connect(address: str) -> Client:
    return await Client.connect(address)


def worker(client: Client, queue: str) -> Worker:
    does, threads = Activities(), ThreadPoolExecutor(100)
    return Worker(
        client,
        task_queue=queue,
        workflows=[HandwrittenLoop],
        activities=[does.ask, does.fetch],
        activity_executor=threads,
    )


def replayer() -> Replayer:
    return Replayer(workflows=[HandwrittenLoop])
