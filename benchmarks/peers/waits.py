"""A person approves a refund after a `kill -9`, and then approves it once more:
`.venv-peers/bin/python -m benchmarks.peers.waits`, a minute.

The model requests a refund of 300, and after that one of 900. Each phase is a separate process on
one SQLite file; that of `begin` is killed while it waits. `look` prints what another process sees,
`approve` sends the decision on the first refund, and `again` sends the same decision a second time,
while the second refund waits. LangGraph waits with `HumanInTheLoopMiddleware`, with decisions by
position, as by default, or by id; DBOS with `DBOS.recv` around pydantic-ai's deferred tools, and
Perdure on a Temporal server that keeps running.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSClient, DBOSConfig
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart

from benchmarks.peers.trees_libraries import BillingChat
from benchmarks.peers.waits_perdure import EUROS, perdure
from benchmarks.peers.with_pydantic_ai import JobModel
from perdure.worker.dev.server import DevServer

PHASES = ("begin", "look", "approve", "again")


def refund(euros: int) -> str:
    """Pay it back."""
    print(f"refunded {euros}", flush=True)
    return "done"


class Refunds(BillingChat):
    """Requests one refund after the other."""

    async def _agenerate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        asked = sum(message.type == "ai" for message in messages)
        calls = (
            [{"name": "refund", "args": {"euros": EUROS[asked]}, "id": f"call_{asked}"}]
            if asked < len(EUROS)
            else []
        )
        return ChatResult(
            generations=[
                ChatGeneration(message=AIMessage("" if calls else "done", tool_calls=calls))
            ]
        )


async def langgraph(phase: str, folder: str, *, by_id: bool = False) -> None:
    """One phase on LangGraph; the decision is by position, as by default, or by the id of the
    interrupt.
    """
    config, asked = {"configurable": {"thread_id": "ticket-1"}}, Path(folder) / "asked"
    async with AsyncSqliteSaver.from_conn_string(f"{folder}/langgraph-{by_id}.db") as saver:
        gate = HumanInTheLoopMiddleware(
            {"refund": True}, interrupt_mode="per_call" if by_id else "batched"
        )
        graph: Any = create_agent(
            Refunds(tool="refund", times=2), [refund], middleware=[gate], checkpointer=saver
        )
        if phase == "begin":
            await graph.ainvoke(
                {"messages": [{"role": "user", "content": "go"}]}, config, durability="sync"
            )
            asked.write_text((await graph.aget_state(config)).interrupts[0].id, encoding="utf-8")
            print("waits", flush=True)
            await asyncio.sleep(60)
        if phase in ("approve", "again"):
            answer: Any = (
                {asked.read_text(encoding="utf-8"): {"type": "approve"}}
                if by_id
                else {"decisions": [{"type": "approve"}]}
            )
            await graph.ainvoke(Command(resume=answer), config, durability="sync")
        state = await graph.aget_state(config)
        waiting = [
            value.get("args") or value["action_requests"][0]["args"]
            for value in (interrupt.value for interrupt in state.interrupts)
        ]
        print(
            f"next {state.next}, waits for {waiting}, {len(state.values['messages'])} messages",
            flush=True,
        )


async def langgraph_by_id(phase: str, folder: str) -> None:
    """The same with ids."""
    await langgraph(phase, folder, by_id=True)


class RefundModel(JobModel):
    """Requests one refund after the other."""

    async def request(self, messages: list[ModelMessage], *_: Any) -> ModelResponse:
        asked = sum(isinstance(message, ModelResponse) for message in messages)
        part = (
            ToolCallPart("refund", {"euros": EUROS[asked]}, tool_call_id=f"call_{asked}")
            if asked < len(EUROS)
            else TextPart("done")
        )
        return ModelResponse(parts=[part], model_name="refunds")


AGENT = Agent(
    RefundModel(),
    name="refunds",
    tools=[Tool(DBOS.step()(refund), requires_approval=True)],
    output_type=[str, DeferredToolRequests],
    capabilities=[DBOSDurability()],
)


@DBOS.workflow()
async def ticket(task: str) -> str:
    """A run for each decision of a person; without one for a day, it ends."""
    result = await AGENT.run(task)
    while isinstance(result.output, DeferredToolRequests):
        await DBOS.set_event_async("waits for", [call.args for call in result.output.approvals])
        approvals = await DBOS.recv_async("approval", timeout_seconds=86_400)
        if approvals is None:
            return "nobody answered"
        answer = DeferredToolResults(approvals=approvals)
        result = await AGENT.run(
            message_history=result.all_messages(), deferred_tool_results=answer
        )
    return str(result.output)


async def with_dbos(phase: str, folder: str) -> None:
    """One phase on DBOS: its process is started each time, and a client sends the decision."""
    url = f"sqlite:///{folder}/dbos.db"
    DBOS(config=DBOSConfig(name="waits", system_database_url=url, log_level="CRITICAL"))
    DBOS.launch()
    client = DBOSClient(system_database_url=url)
    if phase == "begin":
        handle = await DBOS.start_workflow_async(ticket, "go")
        await asyncio.sleep(3)
        print("waits", flush=True)
        await handle.get_result()
    [found] = await client.list_workflows_async()
    if phase in ("approve", "again"):
        await client.send_async(found.workflow_id, {"call_0": True}, topic="approval")
        await asyncio.sleep(4)
    [found] = await client.list_workflows_async()
    steps = await client.list_workflow_steps_async(found.workflow_id)
    waiting = await client.get_event_async(found.workflow_id, "waits for", 0)
    print(
        f"{found.status}, {len(steps)} steps, waits for {waiting}, error {found.error}", flush=True
    )
    DBOS.destroy(workflow_completion_timeout_sec=0)


WITH = {
    "langgraph": langgraph,
    "langgraph-by-id": langgraph_by_id,
    "dbos": with_dbos,
    "perdure": perdure,
}


async def phase(name: str, part: str, folder: str) -> None:
    """Run a phase in a process; the one that waits is killed."""
    command = (sys.executable, "-m", "benchmarks.peers.waits", name, part, folder)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async for line in process.stdout:
        print(f"{name:<15} {part:<8} {line.decode().strip()}", flush=True)
        if line == b"waits\n":
            process.kill()
    await process.wait()


async def main() -> None:
    """Print the observations."""
    with tempfile.TemporaryDirectory() as folder:
        await waits(folder)


async def waits(folder: str) -> None:
    async with DevServer(folder=None, port=0, ui=False) as server:
        await asyncio.to_thread(
            (Path(folder) / "address").write_text, server.address.address, encoding="utf-8"
        )
        for name in WITH:
            for part in PHASES:
                await asyncio.wait_for(phase(name, part, folder), 60)


if __name__ == "__main__":
    asyncio.run(WITH[sys.argv[1]](*sys.argv[2:4]) if len(sys.argv) > 1 else main())
