"""Record one history of each kind: `python -m tests.replay.record` writes tests/replay/histories
anew.

A history that a release recorded must replay in all later releases. So a file is only recorded
again if the commands of such a turn were changed on purpose and no release has recorded the old
ones; a new kind gets a file of its own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from temporalio.client import WorkflowHistory

from perdure import (
    Agent,
    AgentReport,
    Allow,
    AssistantMessage,
    Budget,
    Deny,
    Handoff,
    Media,
    Middleware,
    ModelProfile,
    ModelRetryPolicy,
    Observer,
    Price,
    ProposedCall,
    Task,
    Text,
    Toolbox,
    ToolCall,
    UserMessage,
    errors,
    tool,
)
from perdure.clients import AgentClient, Turn
from perdure.errors import PerdureError
from perdure.temporal import start_request
from perdure.temporal.names import TURN
from perdure.temporal.payloads import pack
from perdure.testing import ScriptedModel, call, calls, fails, local_runtime, says
from perdure.testing.scripted import Reply
from perdure.turn.facts import Scheduled, WaitBegan
from perdure.turn.keys import ToolKey
from perdure.values.reports import StopReason, Usage
from perdure.worker import AgentWorker

FOLDER = Path(__file__).parent / "histories"

BUSY = fails(errors.LLMUnavailableError("overloaded", context={"retry_after_s": 0.05}))
UNKNOWN = fails(errors.LLMInvalidRequestError("no such model"))
SHORT_TASK = timedelta(milliseconds=300)
"""A workflow task timeout with which a run has some 90 events."""

USED = Usage(input_tokens=10, output_tokens=5)


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def fail(reason: str) -> str:
    """Fail for a reason."""
    raise ValueError(reason)


@tool
async def wait() -> str:
    """Wait for a long time."""
    await asyncio.sleep(30)
    return "waited"


@tool(timeout=timedelta(milliseconds=200))
async def too_slow() -> str:
    """Take longer than it may."""
    await asyncio.sleep(30)
    return "never"


@tool(requires_approval=True)
def post(text: str) -> str:
    """Post a text."""
    return f"posted {text}"


@tool(read_only=True)
def look() -> list[str | Media]:
    """Look at a picture."""
    return ["a picture:", Media(media_type="image/png", data="aGVsbG8=")]


quick = tool(name="quick", read_only=True, local=True)(add.function)
glance = tool(name="glance", read_only=True, local=True)(look.function)


class Sum(BaseModel):
    """A typed answer."""

    value: int


class Watchful(Middleware):
    """Looks at the task and at the report."""

    async def before(self, task: Task) -> None:
        """Nothing to object to."""

    async def after(self, report: AgentReport[Any]) -> None:
        """Nothing either."""


class Quiet(Observer):
    """Ignores everything."""


def only_sums(proposed: ProposedCall) -> Allow | Deny:
    """A policy."""
    return Allow() if proposed.tool == "add" else Deny(reason="only sums")


WRITER = Agent(name="writer", model="scripted:writer", description="Writes")

AGENT = Agent(
    name="adder",
    model="scripted:adder",
    description="Adds",
    instructions="Add.",
    tools=[add],
    toolboxes=[Toolbox("others", [fail, wait, too_slow, post])],
    max_iterations=3,
)


async def to_its_end(client: AgentClient, turn: Turn) -> None:
    """Wait for the end of the turn, whatever it is."""
    with contextlib.suppress(PerdureError):
        await turn.result()


async def cancelled_in_a_tool(client: AgentClient, turn: Turn) -> None:
    """Cancel the turn during its second tool call."""
    async for event in turn.events():
        if event.fact == Scheduled(ToolKey(1, 2)):
            await turn.cancel("changed my mind")


async def terminated_in_a_tool(client: AgentClient, turn: Turn) -> None:
    """Terminate the turn during its tool call."""
    async for event in turn.events():
        if event.fact == Scheduled(ToolKey(1, 1)):
            await client.temporal.get_workflow_handle(turn.id).terminate(reason="out of patience")


async def approved_and_denied(client: AgentClient, turn: Turn) -> None:
    """Approve the first call that waits, and deny the second."""
    async for event in turn.events():
        if isinstance(event.fact, WaitBegan):
            first, second = await turn.pending_approvals()
            await turn.approve(first, reason="go on")
            await turn.deny(second, "not twice")


async def given_more(client: AgentClient, turn: Turn) -> None:
    """Add to the budget when it is spent."""
    async for event in turn.events():
        if isinstance(event.fact, WaitBegan):
            await turn.add_budget(Budget(model_calls=1))


async def resumed(client: AgentClient, turn: Turn) -> None:
    """Resume the turn when it waits."""
    async for event in turn.events():
        if isinstance(event.fact, WaitBegan):
            await turn.resume()


Then = Callable[[AgentClient, Turn], Awaitable[None]]


class Kind:
    """A kind of turn: the model's script, the task, and what happens to the turn from outside.

    `fields` override the agent's. `below` is the turn of a delegate whose history is stored instead
    of the turn's own. `run` is the number of the run, from 1, of a turn whose short workflow task
    timeout makes it go on in a new run soon. `chain` has a script for each of several models, `a:m`
    and so on, instead of a single one; the first one has a window of this number of tokens.
    """

    def __init__(
        self,
        *script: Reply,
        then: Then = to_its_end,
        agent: str = "adder",
        fields: Mapping[str, Any] | None = None,
        below: str = "",
        run: int = 0,
        chain: Mapping[str, Sequence[Reply]] | None = None,
        window: int | None = None,
        **start: Any,
    ) -> None:
        self.script = script
        self.then = then
        self.agent = agent
        self.fields = {
            **(fields or {}),
            **({"model": [f"{name}:m" for name in chain]} if chain else {}),
        }
        self.below = below
        self.run = run
        self.chain = chain
        self.window = window
        self.start = {"task": "2 + 3?", **start}

    def app(self) -> AgentWorker:
        """The adder with this kind's fields, and another agent to delegate to."""
        names = ["scripted", *(self.chain or ())]
        return AgentWorker(
            [replace(AGENT, **self.fields), WRITER],
            prices={f"{name}:*": Price(input="1", output="1") for name in names},
            providers={
                name: ScriptedModel(*said)
                for name, said in {"scripted": [], **(self.chain or {})}.items()
            },
            profiles={"a:m": ModelProfile(window=self.window)},
        )

    def models(self) -> dict[str, ScriptedModel] | None:
        """The models' scripts; None for kinds with their own models."""
        if self.chain:
            return None
        return {
            "adder": ScriptedModel(*self.script),
            "writer": ScriptedModel(says("a text", usage=USED)),
        }


def sum_of(a: int, b: int, call_id: str = "") -> ToolCall:
    return call("add", call_id=call_id, a=a, b=b)


def several_runs(number: int) -> Kind:
    """A turn that goes on in a new run after its first step: many calls at once."""
    return Kind(
        calls(*(sum_of(one, 1) for one in range(40)), usage=USED),
        calls(sum_of(2, 3), call("post", text="a"), call("post", text="b"), usage=USED),
        says("done", usage=USED),
        then=approved_and_denied,
        run=number,
        fields={"parallel_tools": True, "middleware": [Watchful()], "observers": [Quiet()]},
        budget=Budget(usd="1", time=timedelta(minutes=5)),
        labels={"team": "maths"},
    )


KINDS: Mapping[str, Kind] = {
    "plain": Kind(says("five", usage=USED)),
    "at_hand": Kind(calls(sum_of(2, 3)), says("five", usage=USED)),
    "thinking": Kind(says("five", thinking="2 and 3", usage=USED)),
    "tools": Kind(
        calls(sum_of(2, 3, "c1"), sum_of(4, 5), text="Let me see.", usage=USED),
        calls(sum_of(5, 9)),
        says("fourteen"),
    ),
    "tool_errors": Kind(
        calls(call("fail", reason="no luck"), call("nothing"), call("add", a="x")),
        says("I could not"),
    ),
    "context_and_history": Kind(
        says("six"),
        context={"memory": "numbers are small"},
        history=(UserMessage.of("2 + 3?"), AssistantMessage(parts=(Text(text="five"),))),
        labels={"ticket": "4711"},
        task=Task(
            content=(Text(text="and this?"), Media(media_type="image/png", data="aGVsbG8=")),
            type="sum",
        ),
    ),
    "pictured": Kind(
        calls(call("look"), sum_of(2, 3)), says("a cat", usage=USED), fields={"tools": [add, look]}
    ),
    "local": Kind(
        calls(call("quick", a=2, b=3), call("glance"), call("quick", a=4, b=5), usage=USED),
        calls(call("quick", a=5, b="x")),
        says("five", usage=USED),
        fields={"tools": [quick, glance]},
    ),
    "local_at_once": Kind(
        calls(call("quick", a=2, b=3), call("glance"), call("quick", a=4, b=5), usage=USED),
        calls(call("quick", a=2, b=3), sum_of(4, 5)),
        says("five", usage=USED),
        fields={"tools": [quick, glance, add], "parallel_tools": True},
    ),
    "tool_timeout": Kind(calls(call("too_slow")), says("too slow for me")),
    "truncated": Kind(calls(sum_of(2, 3), text="I will", stop=StopReason.MAX_TOKENS)),
    "stop_sequence": Kind(says("five.", stop=StopReason.STOP_SEQUENCE)),
    "refused": Kind(says("I would rather not", stop=StopReason.REFUSED)),
    "max_iterations": Kind(*[calls(sum_of(1, number)) for number in range(3)]),
    "retried": Kind(
        fails(errors.LLMRateLimitError("slow down", context={"retry_after_s": 0.05})), says("five")
    ),
    "model_failed": Kind(
        calls(sum_of(2, 3)), fails(errors.LLMInvalidRequestError("no such parameter"))
    ),
    "unknown_agent": Kind(agent="nobody"),
    "parallel": Kind(
        calls(sum_of(2, 3), sum_of(4, 5)), says("both"), fields={"parallel_tools": True}
    ),
    "approved": Kind(
        calls(call("post", text="a"), call("post", text="b")),
        says("posted"),
        then=approved_and_denied,
    ),
    "policy": Kind(
        calls(sum_of(2, 3), call("fail", reason="x")), says("five"), fields={"policy": only_sums}
    ),
    "hooks": Kind(
        calls(sum_of(2, 3)),
        says("five"),
        fields={"middleware": [Watchful()], "observers": [Quiet()]},
    ),
    "paused": Kind(
        calls(sum_of(2, 3), usage=USED),
        says("five", usage=USED),
        then=given_more,
        fields={"on_exhausted": "pause"},
        budget=Budget(model_calls=1),
    ),
    "finished": Kind(
        calls(sum_of(2, 3), usage=USED),
        says("so far", usage=USED),
        fields={"on_exhausted": "finish"},
        budget=Budget(model_calls=2, tokens=100_000),
    ),
    "exhausted": Kind(
        calls(sum_of(2, 3), usage=USED), budget=Budget(usd="1", tool_calls=1, model_calls=1)
    ),
    "react": Kind(
        says('Thought: add\nAction: add\nAction Input: {"a": 2, "b": 3}'),
        says("Final Answer: five"),
        fields={"protocol": "react_text"},
    ),
    "typed": Kind(says("five"), says('{"value": 5}'), fields={"output": Sum}),
    "delegated": Kind(
        calls(
            call("delegate_to_agent", agent="writer", task="a"),
            call("delegate_to_agent", agent="adder", task="b"),
        ),
        calls(
            call(
                "spawn_agents",
                tasks=[{"agent": "writer", "task": "c"}, {"agent": "writer", "task": "d"}],
            )
        ),
        says("done"),
        fields={"delegates": ["writer"]},
        budget=Budget(usd="1", model_calls=20),
    ),
    "delegate": Kind(
        calls(call("delegate_to_agent", agent="writer", task="a")),
        says("done"),
        fields={"delegates": ["writer"]},
        below="writer-1",
        budget=Budget(usd="1"),
    ),
    "handed_over": Kind(
        calls(sum_of(2, 3), usage=USED),
        calls(call("hand_over", agent="nobody", message="go on"), usage=USED),
        calls(call("hand_over", agent="writer", message="it is five"), sum_of(1, 1), usage=USED),
        fields={
            "handoffs": [Handoff("writer", keep="task")],
            "max_iterations": 5,
            "middleware": [Watchful()],
            "observers": [Quiet()],
        },
        budget=Budget(usd="1", time=timedelta(minutes=5)),
    ),
    "chain": Kind(
        chain={
            "a": [BUSY, BUSY],
            "b": [
                UNKNOWN,
                calls(sum_of(2, 3), usage=USED),
                says("five", thinking="sure", usage=USED),
            ],
            "c": [calls(sum_of(1, 1), usage=USED)],
        },
        budget=Budget(usd="1"),
    ),
    "window": Kind(
        chain={
            "a": [
                *(calls(call("fail", reason=f"{number} " * 300)) for number in range(7)),
                says("at last"),
            ]
        },
        window=2_500,
        fields={"max_iterations": 10, "on_loop": "ignore"},
    ),
    "cancelled": Kind(calls(sum_of(2, 3), call("wait"), sum_of(4, 5)), then=cancelled_in_a_tool),
    "terminated": Kind(calls(call("wait")), then=terminated_in_a_tool),
    "delayed": Kind(
        calls(sum_of(2, 3), usage=USED),
        says("five", usage=USED),
        delay=timedelta(milliseconds=100),
        deadline=timedelta(hours=1),
    ),
    "past_its_deadline": Kind(calls(call("post", text="a")), deadline=timedelta(seconds=2)),
    "at_a_limit": Kind(
        calls(sum_of(2, 3)),
        fails(errors.LLMRateLimitError("used up", context={"retry_after_s": 3600})),
        says("five"),
        then=resumed,
        fields={"model_retry": ModelRetryPolicy(on_limit="wait")},
        budget=Budget(time=timedelta(minutes=5)),
    ),
    "first_run": several_runs(1),
    "second_run": several_runs(2),
}


async def record(client: AgentClient, name: str, *, turn_id: str) -> WorkflowHistory:
    """Run a turn of a kind, on a worker with its scripted model, and fetch its history."""
    kind = KINDS[name]
    if kind.run:
        turn = await start_short(client, kind, turn_id)
    else:
        turn = await client.start(kind.agent, **kind.start, id=turn_id)
    await kind.then(client, turn)
    if kind.below:
        turn = client.turn(f"{turn.id}/{kind.below}")
    run_id = (await turn._feed()).runs[kind.run - 1] if kind.run else await turn.first_run()
    return await client.temporal.get_workflow_handle(turn.id, run_id=run_id).fetch_history()


async def start_short(client: AgentClient, kind: Kind, turn_id: str) -> Turn:
    """Start a turn whose runs are short."""
    request = start_request.turn_request(kind.agent, **kind.start)
    await client.temporal.start_workflow(
        TURN,
        pack(request),
        id=turn_id,
        task_queue=client._task_queue,
        **{**start_request.introduced(request, {}), "task_timeout": SHORT_TASK},
    )
    return client.turn(turn_id)


def scrubbed(history: WorkflowHistory) -> str:
    """As JSON, without data of the machine: processes and hosts, queues, and file locations.

    A replay looks at none of it.
    """
    return (
        json.dumps(
            _scrub(json.loads(history.to_json())), indent=1, ensure_ascii=False, sort_keys=True
        )
        + "\n"
    )


_FIXED = {
    "identity": "worker",
    "stackTrace": "",
    "buildId": "build",
    "binaryChecksum": "",
    "normalName": "perdure",
}


def _scrub(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        if key in ("taskQueue", "stickyAttributes") and "name" in value:
            value = {**value, "name": "perdure"}
        return {name: _scrub(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_scrub(item) for item in value]
    return _FIXED.get(key, value)


def texts(stored: str) -> str:
    """A stored history with decoded payloads, to search it for data that should not be in it."""
    decoded = [
        base64.b64decode(found).decode(errors="replace")
        for found in re.findall(r'"data": "([^"]*)"', stored)
    ]
    return "\n".join([stored, *decoded])


async def main(names: list[str]) -> None:
    """Record these kinds, or all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or KINDS:
        async with local_runtime(KINDS[name].app(), model=KINDS[name].models()) as client:
            history = await record(client, name, turn_id=f"adder/{name}")
        (FOLDER / f"{name}.json").write_text(scrubbed(history), encoding="utf-8")
        print(f"{name}: {len(history.events)} events")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
