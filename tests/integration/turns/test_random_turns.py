"""Two dozen concurrent turns on the real server with random behaviour of models, tools, policies,
people and clocks.

Half of the test is in `conftest.check_history`: at the end of each turn, a reader's fold equals the
state of the workflow. The random choices are seeded; which turn a cancel or an answer reaches first
depends on the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Agent,
    AgentReport,
    Allow,
    Budget,
    Deny,
    ProposedCall,
    RequireApproval,
    ToolContext,
    errors,
    tool,
)
from perdure.activities.provider import ModelRequest
from perdure.clients import Turn
from perdure.errors import PerdureError
from perdure.turn.facts import WaitBegan
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Message, ToolMessage
from perdure.values.reports import StopReason

from ...conftest import RecordingClient, Runtime
from ...support import drawn
from ...support.spending import SOON_S

SEED, TURNS = 11, 24
ran: Counter[tuple[str, str]] = Counter()
refused: set[tuple[str, str]] = set()
edited: dict[tuple[str, str], int] = {}


def _do(context: ToolContext[Any], a: int) -> str:
    ran[context.turn_id, context.call_id] += 1
    assert edited.get((context.turn_id, context.call_id), a) == a
    if a == 2:
        raise ValueError("no")
    return f"{context.call_id} of {context.turn_id}"


@tool(timeout=timedelta(seconds=1))
async def write(context: ToolContext[Any], a: int = 0) -> str:
    """Write; with 3, hang."""
    said = _do(context, a)
    await asyncio.sleep(30 if a == 3 else 0)
    return said


@tool(read_only=True, timeout=timedelta(seconds=1))
def look(context: ToolContext[Any], a: int = 0) -> str:
    """Look; with 3, for too long."""
    said = _do(context, a)
    time.sleep(1.5 if a == 3 else 0)
    return said


@tool(requires_approval=True)
def send(context: ToolContext[Any], a: int = 0) -> str:
    """Send."""
    return _do(context, a)


def policy(call: ProposedCall) -> Allow | Deny | RequireApproval:
    """Deny now and then, fail now and then, and give people a second."""
    match random.Random(f"{call.turn_id} {call.call_id}").randrange(8):
        case 0:
            refused.add((call.turn_id, call.call_id))
            return Deny(reason="no")
        case 1:
            refused.add((call.turn_id, call.call_id))
            raise OSError("no database")
        case 2:
            return RequireApproval(expires=timedelta(seconds=1))
        case _:
            return Allow()


KINDS: tuple[Mapping[str, Any], ...] = (
    {},
    {"parallel_tools": True, "on_loop": "warn"},
    {"policy": policy, "parallel_tools": True},
    {"approval": "all", "protocol": "json"},
    {
        "approval": "changes",
        "policy": policy,
        "budget": Budget(tool_calls=2),
        "on_exhausted": "pause",
    },
    {"budget": Budget(model_calls=4), "on_exhausted": "finish", "protocol": "react_text"},
    {
        "budget": Budget(time=timedelta(seconds=4), tool_calls=5),
        "on_exhausted": "finish",
        "parallel_tools": True,
    },
    {"budget": Budget(time=timedelta(seconds=2)), "on_exhausted": "pause", "approval": "changes"},
)


def agents() -> list[Agent[Any]]:
    """One of each kind, named by its place."""
    base = {
        "model": "scripted:any",
        "tools": [write, look, send],
        "on_loop": "ignore",
        "max_iterations": 8,
    }
    return [Agent(**{"name": f"kind-{place}", **base, **kind}) for place, kind in enumerate(KINDS)]


class Babbling:
    """A model with random answers for each turn, which keeps its requests."""

    def __init__(self) -> None:
        self.requests: dict[str, list[ModelRequest]] = defaultdict(list)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        opening: Any = request.messages[0]
        task = opening.text.splitlines()[0]
        self.requests[task].append(request)
        luck = random.Random(f"{SEED} {task} {len(self.requests[task])}")
        if luck.random() < 0.08:
            raise luck.choice(
                [
                    errors.LLMUnavailableError("down"),
                    errors.LLMRateLimitError("busy", context={"retry_after_s": 0.1, "status": 429}),
                ]
            )
        await asyncio.sleep(luck.choice([0, 0, 0.3]))
        kind = KINDS[int(task.split()[1]) % len(KINDS)]
        parts = drawn.said(luck, kind.get("protocol", "native"))
        stop = (
            StopReason.TOOL_CALLS
            if any(part.type == "tool_call" for part in parts)
            else StopReason.END
        )
        return ModelAnswer(message=AssistantMessage(parts=parts), stop=stop)

    async def close(self) -> None:
        """Nothing to close."""


async def live(client: RecordingClient, number: int) -> AgentReport | PerdureError:
    """Start a turn and act as the people around it until it ends."""
    luck = random.Random(f"{SEED} people {number}")
    allowed = ["look", "write"] if luck.random() < 0.15 else None
    turn = await client.start(
        f"kind-{number % len(KINDS)}",
        f"turn {number}",
        id=f"fuzz-{SEED}-{number}",
        allowed_tools=allowed,
    )
    cancel_at = luck.choice([3, 8, 12]) if luck.random() < 0.2 else None
    async with asyncio.timeout(4 * SOON_S):
        seen = 0
        async for event in turn.events():
            seen += 1
            if seen == cancel_at:
                await turn.cancel("enough")
            elif isinstance(event.fact, WaitBegan):
                # the turn has ended, or the call has expired
                with contextlib.suppress(errors.InvalidRequestError, errors.ApprovalConflictError):
                    match event.fact.kind:
                        case "approval":
                            await decide(turn, luck)
                        case "iterations":
                            await turn.add_budget(iterations=2)
                        case _:
                            await turn.add_budget(more(number))
        try:
            return await turn.result()
        except PerdureError as error:
            return error


def more(number: int) -> Budget:
    """Add to a limit of the agent."""
    return Budget(tool_calls=2) if number % len(KINDS) == 4 else Budget(time=timedelta(seconds=5))


async def decide(turn: Turn[Any], luck: random.Random) -> None:
    """Decide each call that waits."""
    waiting = list(await turn.pending_approvals())
    luck.shuffle(waiting)
    for one in waiting:
        said = luck.choice(["approve", "approve", "edit", "deny"])
        if said == "deny":
            refused.add((turn.id, one.call_id))
            await turn.deny(one, "no")
        elif said == "edit":
            edited[turn.id, one.call_id] = 7
            await turn.approve(one, arguments={"a": 7})
        else:
            await turn.approve(one)


def is_paired(messages: tuple[Message, ...]) -> bool:
    """Each call has one result right after it, in call order, and there are no other results; ids
    are unique.
    """
    ids = [
        call.id
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    ]
    for before, message in zip((None, *messages), (*messages, None), strict=True):
        asked = [call.id for call in before.calls] if isinstance(before, AssistantMessage) else []
        given = (
            [result.call_id for result in message.results]
            if isinstance(message, ToolMessage)
            else []
        )
        if asked != given:
            return False
    return len(ids) == len(set(ids)) and "" not in ids


@pytest.mark.slow
@pytest.mark.accepts("L19", "T9", "Y12")
async def test_turns_with_every_kind_of_luck_keep_their_promises(runtime: Runtime) -> None:
    """All end; requests were paired, denied calls did not run, and nothing ran twice."""
    model = Babbling()
    async with runtime(agents(), model=model) as client:
        ends = await asyncio.gather(*(live(client, number) for number in range(TURNS)))

    reports = [end.report if isinstance(end, PerdureError) else end for end in ends]
    assert [type(end) for end, report in zip(ends, reports, strict=True) if report is None] == []
    assert [
        task
        for task, asked in model.requests.items()
        if not all(is_paired(request.messages) for request in asked)
    ] == []
    assert [call for call, times in ran.items() if times > 1 or call in refused] == []
    for report in reports:
        assert report is not None
        for result in (
            result for step in report.steps for result in step.results if not result.is_error
        ):
            assert result.content.startswith(f"{result.call_id} of {report.turn_id}")
    assert len(ran) > TURNS
    assert len({type(end) for end in ends}) > 3
