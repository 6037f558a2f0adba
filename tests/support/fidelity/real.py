"""The turn or the session of a script on a real server, with the real worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from temporalio import activity
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.common import RawValue, WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.activities.provider import ModelRequest
from perdure.session.wire import SessionRequest
from perdure.temporal.names import MOVE_ON, SESSION, TURN
from perdure.temporal.payloads import pack
from perdure.testing.simulation.world import PRICE
from perdure.values.answers import ModelAnswer
from perdure.worker import AgentWorker

from ..resets import reset_to
from .acts import FILLING, FILLS, OPERATOR, OVER, REASON, RESET, Act, stops
from .reading import RealRun, Tree, scene_of
from .resetting import points
from .script import Script

_LOOK_S = 0.03
_HANG_S = 60


class RealActs:
    """Does what people do.

    Attributes:
        answers: What was answered to the updates, in their order.
    """

    def __init__(self, client: Client, root: str, tree: Tree) -> None:
        self._client = client
        self._root = root
        self._tree = tree
        self.answers: list[tuple[str, str]] = []

    async def do(self, act: Act) -> bool:
        """Do something, and return whether that cancels the turn that runs."""
        before = list(self.answers)
        handle = self._client.get_workflow_handle(act.to)
        match act.name:
            case "cancel":
                await handle.cancel(reason=REASON)
                answer = ""
            case "terminate":
                await handle.terminate(reason=OPERATOR)
                answer = ""
            case "fill":
                for _ in range(FILLS):
                    await handle.signal(MOVE_ON, RawValue(FILLING))
                answer = ""
            case "reset":
                await self._reset(handle.id, act.point)
                answer = ""
            case _:
                answer = await self._updated(handle, act)
                self.answers.append((act.id, answer))
        return stops(act, answer, before)

    async def _updated(self, handle: WorkflowHandle[Any, Any], act: Act) -> str:
        """Send an update, and return what is answered."""
        try:
            result: RawValue | None = await handle.execute_update(
                act.name, pack(act.content), id=act.id, result_type=RawValue
            )
        except WorkflowUpdateFailedError as error:
            return _refusal_of(error)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return OVER
        return result.payload.data.decode() if result else ""

    async def _reset(self, workflow_id: str, point: str) -> None:
        run = self._tree.last(workflow_id)
        event_id = points(run.events)[point]
        run_id = await reset_to(self._client, workflow_id, run.run_id, event_id, RESET)
        self._tree.add(workflow_id, run_id)

    async def start(self, script: Script, task_queue: str) -> None:
        """Start the turn or the session of a script, with what it is sent then."""
        name = SESSION if isinstance(script.request, SessionRequest) else TURN
        start = (name, pack(script.request))
        if script.first is None:
            await self._client.start_workflow(*start, id=self._root, task_queue=task_queue)
            return
        operation: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            *start,
            id=self._root,
            task_queue=task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        )
        first = script.first
        result: RawValue = await self._client.execute_update_with_start_workflow(
            first.name,
            pack(first.content),
            id=first.id,
            start_workflow_operation=operation,
            result_type=RawValue,
        )
        self.answers.append((first.id, result.payload.data.decode()))


def _refusal_of(error: WorkflowUpdateFailedError) -> str:
    """Why an update has failed or was refused."""
    cause = error.cause
    assert isinstance(cause, ApplicationError), cause
    if cause.type == "AcceptedUpdateCompletedWorkflow":
        return OVER
    return f"{cause.type}: {cause.message}"


class ScriptedProvider:
    """Models that say what the script has, in a real worker."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.acts: RealActs

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Do what the script has, and return its answer."""
        info = activity.info()
        said = self._script.said(info.workflow_id or "", info.activity_id, request)
        for act in said.acts:
            if await self.acts.do(act):
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


async def played(
    script: Script, provider: ScriptedProvider, client: Client, task_queue: str
) -> tuple[Sequence[RealRun], list[tuple[str, str]]]:
    """All runs of a script after their end, and what was answered to updates.

    People do something when nothing else happens: when all runs wait, and are the same as before.
    """
    tree = Tree(client, script.root)
    acts = provider.acts = RealActs(client, script.root, tree)
    await acts.start(script, task_queue)
    before: list[int] = []
    while True:
        runs = await tree.look()
        if runs and all(run.is_over for run in runs):
            return runs, acts.answers
        lengths = [len(run.events) for run in runs]
        is_quiet, is_same = tree.is_quiet(), lengths == before
        before = lengths
        if is_quiet and is_same:
            act = script.next_act(scene_of(runs))
            if act is not None:
                await acts.do(act)
        if not is_quiet or is_same:
            await asyncio.sleep(_LOOK_S)
