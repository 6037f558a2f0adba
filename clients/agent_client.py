"""Start turns from a backend, and find them again."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Literal
from weakref import WeakValueDictionary

from pydantic import ValidationError
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from perdure import errors, limits
from perdure.activities.connection import connect
from perdure.activities.history import first_request
from perdure.activities.payloads import explain, pack
from perdure.activities.signatures import TASK_QUEUE, TURN
from perdure.agents import Agent
from perdure.clients.feed import Feed, unreadable
from perdure.clients.turn import OnStep, Turn
from perdure.messages import Message
from perdure.reports import AgentReport
from perdure.tasks import Context, Task, headline
from perdure.wire import TurnRequest

IfExists = Literal["attach", "restart", "error"]


class AgentClient:
    """Starts turns and finds them. One client serves a whole process."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue
        self._feeds: WeakValueDictionary[tuple[str, str], Feed] = WeakValueDictionary()

    @classmethod
    async def connect(cls, address: str | None = None, *, namespace: str | None = None, task_queue: str = TASK_QUEUE) -> AgentClient:
        """Connect to Temporal.

        Args:
            address: `host:port`; without it, Temporal's environment profiles say (`TEMPORAL_ADDRESS`, …), or localhost.
            namespace: Temporal's namespace.
            task_queue: Where the workers of the agents poll.

        Raises:
            ServerUnreachableError: Nothing answers there within 10 s.
        """
        return cls(await connect(address, namespace=namespace), task_queue)

    @classmethod
    def from_temporal(cls, client: Client, *, task_queue: str = TASK_QUEUE) -> AgentClient:
        """Use a Temporal client that you have."""
        return cls(client, task_queue)

    @property
    def temporal(self) -> Client:
        """Temporal's own client, for what is not Perdure's to offer."""
        return self._client

    async def start(
        self,
        agent: Agent | str,
        task: str | Task,
        *,
        id: str | None = None,  # noqa: A002 - what callers know it as
        context: Context | Mapping[str, str] | None = None,
        history: Sequence[Message] = (),
        labels: Mapping[str, str] | None = None,
        if_exists: IfExists = "attach",
    ) -> Turn:
        """Start a turn and return at once; a worker runs it.

        Args:
            agent: Its name, or the agent itself. Only the name is sent: the worker has the code.
            task: What is asked.
            id: The turn's id, at most 100 characters; the same id is the same turn. Without it, `<agent>/<12 random characters>`.
            context: Named blocks that stand before the task.
            history: Messages of an earlier turn, such as `report.messages`, to go on from.
            labels: Words of yours that tools see as `ctx.labels`.
            if_exists: A turn of this id exists, running or over: `attach` to it if agent, task, context and history are the same; `restart` it,
                ending one that runs; or `error`.

        Raises:
            TurnConflictError: A turn of this id has another agent, task, context or history.
            TurnExistsError: A turn of this id exists and `if_exists` is `error`.
            TooLargeError: The input is too large.
            InvalidRequestError: The id is empty or too long, or the input is not valid.
            ServerUnreachableError: Temporal does not answer.
        """
        name = agent.name if isinstance(agent, Agent) else agent
        turn_id = _checked_id(id) if id is not None else f"{name}/{secrets.token_hex(6)}"
        request = _request(name, task, context, history, labels)
        try:
            handle = await self._start(turn_id, request, restart=if_exists == "restart")
        except WorkflowAlreadyStartedError:
            return await self._existing(turn_id, request, if_exists)
        except RPCError as error:
            raise unreadable(turn_id, error) from error
        assert handle.first_execution_run_id is not None
        return self._turn(turn_id, handle.first_execution_run_id)

    async def run(
        self,
        agent: Agent | str,
        task: str | Task,
        *,
        id: str | None = None,  # noqa: A002 - what callers know it as
        context: Context | Mapping[str, str] | None = None,
        history: Sequence[Message] = (),
        labels: Mapping[str, str] | None = None,
        if_exists: IfExists = "attach",
        on_step: OnStep | None = None,
    ) -> AgentReport:
        """Start a turn and wait for its end: `start` and `result` in one.

        Raises:
            PerdureError: As `start` and `Turn.result` do.
        """
        turn = await self.start(agent, task, id=id, context=context, history=history, labels=labels, if_exists=if_exists)
        return await turn.result(on_step=on_step)

    async def get(self, id: str) -> Turn:  # noqa: A002 - what callers know it as
        """A turn that was started before, here or elsewhere, running or over: the latest of this id.

        Raises:
            TurnNotFoundError: Temporal does not have it, or not any more.
            ServerUnreachableError: Temporal does not answer.
        """
        try:
            description = await self._client.get_workflow_handle(id).describe()
        except RPCError as error:
            raise unreadable(id, error) from error
        if description.workflow_type != TURN:
            raise errors.TurnNotFoundError(f"{id!r} is a workflow of type {description.workflow_type}, not a turn", context={"turn_id": id})
        assert description.run_id is not None
        return self._turn(id, description.run_id)

    async def _start(self, turn_id: str, request: TurnRequest, *, restart: bool) -> WorkflowHandle[object, object]:
        title = f"{request.agent}: {headline(request.task)}"
        return await self._client.start_workflow(
            TURN,
            pack(request, "the input of the turn"),
            id=turn_id,
            task_queue=self._task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE if restart else WorkflowIDReusePolicy.REJECT_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING if restart else WorkflowIDConflictPolicy.FAIL,
            static_summary=title,
            memo={"perdure": {"agent": request.agent, "task": headline(request.task)}},
        )

    async def _existing(self, turn_id: str, request: TurnRequest, if_exists: IfExists) -> Turn:
        """The turn that holds this id, if it was asked the same."""
        if if_exists == "error":
            raise errors.TurnExistsError(f"a turn {turn_id!r} exists already", context={"turn_id": turn_id})
        try:
            turn = await self.get(turn_id)
        except errors.TurnNotFoundError as error:
            raise errors.TurnConflictError(f"{error.message}; choose another id", context={"turn_id": turn_id}) from error
        with contextlib.suppress(errors.InvalidRequestError):
            if (await first_request(self._client, turn_id, turn.run_id)).digest() == request.digest():
                return turn
        raise errors.TurnConflictError(
            f"a turn {turn_id!r} exists with another agent, task, context or history; choose another id, or if_exists='restart'",
            context={"turn_id": turn_id},
        )

    def _turn(self, turn_id: str, run_id: str) -> Turn:
        feed = self._feeds.get((turn_id, run_id))
        if feed is None:
            feed = self._feeds[turn_id, run_id] = Feed(self._client, turn_id, run_id)
        return Turn(self._client, feed, turn_id, run_id)


def _request(
    agent: str,
    task: str | Task,
    context: Context | Mapping[str, str] | None,
    history: Sequence[Message],
    labels: Mapping[str, str] | None,
) -> TurnRequest:
    blocks = context if isinstance(context, Context) or context is None else {"blocks": dict(context)}
    try:
        given = {"agent": agent, "task": task, "context": blocks, "history": tuple(history), "labels": dict(labels or {})}
        request = TurnRequest.model_validate(given)
        request.check()
    except ValidationError as error:
        raise errors.InvalidRequestError(f"the turn cannot be started: {explain(error)}") from None
    return request


def _checked_id(turn_id: str) -> str:
    if not 0 < len(turn_id) <= limits.TURN_ID_CHARACTERS:
        raise errors.InvalidRequestError(f"a turn's id has 1 to {limits.TURN_ID_CHARACTERS} characters, not {len(turn_id)}")
    if not turn_id.isprintable():
        raise errors.InvalidRequestError("a turn's id has printable characters only")
    return turn_id
