"""The turn of a script on a real server, with the real worker."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowUpdateFailedError

from perdure.activities.provider import ModelRequest
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.temporal.names import STEER, TURN
from perdure.temporal.payloads import pack
from perdure.testing.simulation.server.history import name_of
from perdure.testing.simulation.world import PRICE
from perdure.turn.facts import Recorded
from perdure.turn.fold import fold
from perdure.turn.state import TurnState
from perdure.turn.wire import Steer
from perdure.values.answers import ModelAnswer
from perdure.worker import AgentWorker

from .script import Script, relative

_LOOK_S = 0.1
_HANG_S = 60


@dataclass(frozen=True)
class RealTurn:
    """A turn on the real server.

    Attributes:
        id: Its id as the script names it.
        turn_id: Its id on the server.
        is_quiet: Whether no task and no activity of it is pending.
    """

    id: str
    turn_id: str
    events: Sequence[HistoryEvent]
    facts: Sequence[Recorded]
    state: TurnState
    is_quiet: bool


class ScriptedProvider:
    """Models that say what the script has, in a real worker."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.client: Client

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Do what the script has, and return its answer."""
        info = activity.info()
        turn_id, key = info.workflow_id or "", info.activity_id
        said = self._script.said(relative(turn_id), key, request)
        if said.steers:
            content = pack(Steer(text=f"message at {key}"))
            with contextlib.suppress(WorkflowUpdateFailedError):
                handle = self.client.get_workflow_handle(turn_id)
                await handle.execute_update(STEER, content, id=f"message at {key}")
        if said.cancels:
            root = self.client.get_workflow_handle(turn_id.split("/")[0])
            await root.cancel(reason="enough")
            await asyncio.sleep(_HANG_S)  # until it is cancelled
        if said.failure is not None:
            raise said.failure
        assert said.answer is not None
        return said.answer

    async def close(self) -> None:
        """Close nothing."""


def worker_of(script: Script) -> tuple[AgentWorker, ScriptedProvider]:
    """A worker for the agents of a script, and its provider."""
    provider = ScriptedProvider(script)
    prices = {model: PRICE for agent in script.agents for model in agent.models}
    return AgentWorker(script.agents, providers={"model": provider}, prices=prices), provider


async def played(script: Script, client: Client, task_queue: str) -> list[RealTurn]:
    """The turns of the tree of a script, after their end."""
    root = f"fidelity-{secrets.token_hex(6)}"
    await client.start_workflow(TURN, pack(script.request), id=root, task_queue=task_queue)
    done: dict[str, int] = {}
    before: list[int] = []
    while True:
        turns = await _tree(client, root)
        if all(turn.state.ended for turn in turns):
            return turns
        lengths = [len(turn.events) for turn in turns]
        is_quiet = lengths == before and all(turn.is_quiet for turn in turns)
        before = lengths
        if is_quiet:
            await _order(script, client, turns, done)
        await asyncio.sleep(_LOOK_S)


async def _order(
    script: Script, client: Client, turns: Sequence[RealTurn], done: dict[str, int]
) -> None:
    """Do the next thing that a turn waits for."""
    waiting = [turn for turn in turns if turn.state.waiting and turn.state.needs_person]
    if not waiting:
        return
    turn = min(waiting, key=lambda one: one.id)
    number = done[turn.id] = done.get(turn.id, 0) + 1
    order = script.order(turn.id, turn.state, number)
    if order is None:
        await client.get_workflow_handle(turn.turn_id.split("/")[0]).cancel(reason="enough")
        return
    name, content = order
    handle = client.get_workflow_handle(turn.turn_id)
    with contextlib.suppress(WorkflowUpdateFailedError):
        await handle.execute_update(name, pack(content), id=f"order {number} to {turn.id}")


async def _tree(client: Client, turn_id: str) -> list[RealTurn]:
    """A turn and its delegates, as far as they have begun."""
    handle = client.get_workflow_handle(turn_id)
    events = (await handle.fetch_history()).events
    reader = HistoryReader(client.data_converter, is_worker=True)
    facts = [fact for event in events for fact in await reader.facts(event)]
    state = fold(facts)
    described = await handle.describe()
    is_busy = bool(described.raw_description.pending_activities) or _has_task(events)
    pauses = state.waiting is not None and state.waiting.kind == "provider"
    turns = [RealTurn(relative(turn_id), turn_id, events, facts, state, not is_busy and not pauses)]
    for child in state.children:
        turns += await _tree(client, child.turn_id)
    return turns


def _has_task(events: Sequence[Any]) -> bool:
    """Whether a workflow task waits or runs."""
    tasks = [name for event in events if (name := name_of(event)).startswith("WORKFLOW_TASK")]
    return bool(tasks) and tasks[-1] != "WORKFLOW_TASK_COMPLETED"
