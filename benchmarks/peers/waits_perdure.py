"""The phases of `benchmarks.peers.waits` on Perdure, with the Temporal server at `address`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from temporalio.client import Client

from benchmarks.job import PROMPT
from perdure import Agent, AssistantMessage, Text, ToolCall, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient
from perdure.values.answers import ModelAnswer
from perdure.values.reports import StopReason
from perdure.worker import AgentWorker

EUROS = (300, 900)


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay it back."""
    print(f"refunded {euros}", flush=True)
    return "done"


class RefundModel:
    """Requests one refund after the other."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        asked = sum(message.role == "assistant" for message in request.messages)
        if asked == len(EUROS):
            return ModelAnswer(
                message=AssistantMessage(parts=(Text(text="done"),)),
                stop=StopReason.END,
                model="job",
            )
        call = ToolCall(id=f"call_{asked}", name="refund", arguments=f'{{"euros": {EUROS[asked]}}}')
        return ModelAnswer(
            message=AssistantMessage(parts=(call,)), stop=StopReason.TOOL_CALLS, model="job"
        )

    async def close(self) -> None:
        pass


async def perdure(phase: str, folder: str) -> None:
    """One phase; `look` needs no worker."""
    address = (Path(folder) / "address").read_text(encoding="utf-8")
    client = await AgentClient.connect(address)
    agent = Agent(name="refunds", model="job:job", instructions=PROMPT, tools=[refund])
    worker = AgentWorker([agent], providers={"job": RefundModel()}).build(
        await Client.connect(address)
    )
    if phase == "look":
        await tell(client)
        return
    async with worker:
        if phase == "begin":
            await client.start("refunds", "go", id="ticket-1")
            # the list lags, so it is polled
            while not [found async for found in client.pending_approvals()]:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
            print("waits", flush=True)
            await asyncio.sleep(60)
        try:
            await client.turn("ticket-1").approve("call_0")
        except errors.PerdureError as error:
            print(f"{type(error).__name__}: {error}"[:120], flush=True)
        await asyncio.sleep(4)
        await tell(client)


async def tell(client: AgentClient) -> None:
    """Print the waiting calls."""
    waiting = [
        (pending.call_id, pending.arguments) async for _, pending in client.pending_approvals()
    ]
    print(f"waits for {waiting}", flush=True)
