"""The tasks of an agent in Temporal: where they are, what they look like, and how they change."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from a2a.types import (
    Artifact,
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import TaskNotFoundError

from perdure import errors
from perdure.clients.client import AgentClient
from perdure.clients.gateway.a2a import tasks
from perdure.clients.gateway.a2a.cards import DELEGATES
from perdure.clients.gateway.a2a.messages import DecisionPart
from perdure.clients.gateway.a2a.tasks import TaskIds
from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.past_events import past_events
from perdure.clients.reading.live_text import Piece, TextVoid
from perdure.clients.reading.tree_text import TurnText
from perdure.clients.sessions.handle import Session
from perdure.clients.turns.changes import Change
from perdure.clients.turns.handle import Turn
from perdure.session.facts import TurnBegan
from perdure.turn import withheld
from perdure.turn.facts import Decided, Said
from perdure.turn.state import TurnState

_ASKS = TaskState.TASK_STATE_INPUT_REQUIRED
_WORKS = TaskState.TASK_STATE_WORKING


@dataclass(frozen=True, slots=True)
class AnswerDraft:
    """A piece of what may become the answer. With `goes_on`, it continues the piece before it."""

    text: str
    goes_on: bool


Update = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent


@dataclass(frozen=True, slots=True)
class TaskScope:
    """Where the tasks of an agent are, for a caller: in sessions whose ids begin with `prefix`."""

    client: AgentClient
    caller: Caller
    agent: str

    @property
    def prefix(self) -> str:
        """The beginning of the ids of sessions and turns, which clients do not see."""
        return self.caller.own(f"a2a/{self.agent}/")

    def ids(self, turn_id: str) -> TaskIds | None:
        """Return the ids of a task for the id of a turn; None if it has no task."""
        return TaskIds.of(turn_id.removeprefix(self.prefix))

    async def find(self, task_id: str) -> FoundTask:
        """Return a task.

        Raises:
            TaskNotFoundError: There is none.
        """
        ids = TaskIds.of(task_id)
        if ids is None:
            raise TaskNotFoundError
        found_task = FoundTask(self, ids)
        turn = self.client.turn(found_task.turn_id)
        try:
            await turn.check()
        except errors.TurnNotFoundError:
            if not await found_task.is_queued():
                raise TaskNotFoundError from None
            return found_task
        return replace(found_task, turn=turn)


@dataclass(frozen=True, slots=True)
class FoundTask:
    """A task. It has no turn as long as another turn of its session runs."""

    scope: TaskScope
    ids: TaskIds
    turn: Turn[Any] | None = None

    @property
    def turn_id(self) -> str:
        """The id of the turn."""
        return f"{self.scope.prefix}{self.ids.task}"

    @property
    def session(self) -> Session:
        """The session of the turn."""
        return self.scope.client.session(f"{self.scope.prefix}{self.ids.context}")

    async def is_queued(self) -> bool:
        """Whether the next turn of the session will be this turn, or it is about to exist."""
        try:
            status = await self.session.status()
        except (errors.SessionNotFoundError, errors.InvalidRequestError):
            return False
        if self.ids.number == status.turns:
            return status.state == "running"
        return self.ids.number == status.turns + 1 and bool(status.queue)

    async def begun(self) -> Turn[Any]:
        """Return the turn, as soon as it has begun.

        Raises:
            TaskNotFoundError: The session is closed before.
        """
        if self.turn is not None:
            return self.turn
        async for event in self.session.events():
            if isinstance(event.fact, TurnBegan) and event.fact.turn_id == self.turn_id:
                turn = await self.session.begun(self.turn_id)
                if turn is not None:
                    return turn
        raise TaskNotFoundError

    async def let_others_begin(self) -> None:
        """Have the next turn read the messages that wait, also if this turn ends as cancelled."""
        with contextlib.suppress(errors.SessionClosedError, errors.SessionNotFoundError):
            if (await self.session.status()).queue:
                await self.session.resume()

    async def task(self, *, has_history: bool = True) -> Task:
        """Return the task as it is now."""
        if self.turn is None:
            return tasks.submitted(self.ids)
        status = await self.turn.status()
        has_answer = tasks.state_of(status) == TaskState.TASK_STATE_COMPLETED
        report = await self.turn.result() if has_answer else None
        history = await self._history() if has_history else []
        return tasks.task_of(self.ids, status, report, history)

    async def was_said(self, message_id: str) -> bool:
        """Whether the turn has taken in a message with this id."""
        facts = [event.fact async for event in past_events(await self.begun())]
        return any(isinstance(fact, Said) and fact.id == message_id for fact in facts)

    async def was_decided(self, answer: DecisionPart, by: str) -> bool:
        """Whether this person has decided so about a call."""
        facts = [event.fact async for event in past_events(await self.begun())]
        decisions = [fact.decision for fact in facts if isinstance(fact, Decided)]
        return any(answer.is_of(decision) and decision.by == by for decision in decisions)

    async def _history(self) -> list[Message]:
        messages: list[Message] = []
        async for event in past_events(await self.begun()):
            messages.extend(tasks.given_in(self.ids, event))
            message = tasks.said_in(self.ids, event)
            messages.extend([] if message is None else [message])
        return messages

    async def updates(
        self, *, until_asked: bool, delegates: bool = False
    ) -> AsyncGenerator[Update, None]:
        """Yield the task, and then its changes, until it is over or begins to ask for something.

        Args:
            until_asked: Whether a task that asks already has no changes to wait for.
            delegates: Whether to yield the text of the turns below.
        """
        last_state: TaskState | None = None
        if self.turn is None:
            yield (task := tasks.submitted(self.ids))
            last_state = task.status.state
        turn = await self.begun()
        found_task = replace(self, turn=turn)
        following = _moments(turn, self.ids, delegates=delegates)
        async with contextlib.aclosing(following) as moments:
            async for moment in moments:
                if moment is not None:
                    yield self._told(moment)
                    continue
                task = await found_task.task(has_history=last_state is None)
                state = task.status.state
                if last_state is None:
                    yield task
                elif state != last_state and state not in tasks.OVER:
                    yield self._update(task.status)
                if _is_last(state, is_first=last_state is None, until_asked=until_asked):
                    return
                last_state = state
        task = await found_task.task(has_history=False)
        for artifact in task.artifacts:
            yield self._result(artifact)
        yield self._update(task.status)

    def _told(self, moment: Message | AnswerDraft | TurnText) -> Update:
        match moment:
            case Message():
                return self._update(TaskStatus(state=_WORKS, message=moment))
            case AnswerDraft():
                return self._draft(moment)
            case TurnText():
                return self._of_delegate(moment)

    def _of_delegate(self, text: TurnText) -> TaskStatusUpdateEvent:
        """Return a piece of the text of a turn below. Its id begins with that of the task."""
        update = self._update(TaskStatus(state=_WORKS))
        turn_id = text.turn_id.removeprefix(self.scope.prefix)
        update.metadata.update({DELEGATES: {**text.to_json(), "turn": turn_id}})
        return update

    def _update(self, status: TaskStatus) -> TaskStatusUpdateEvent:
        return TaskStatusUpdateEvent(
            task_id=self.ids.task, context_id=self.ids.context, status=status
        )

    def _draft(self, draft: AnswerDraft) -> TaskArtifactUpdateEvent:
        return TaskArtifactUpdateEvent(
            task_id=self.ids.task,
            context_id=self.ids.context,
            artifact=tasks.artifact_with(draft.text),
            append=draft.goes_on,
        )

    def _result(self, artifact: Artifact) -> TaskArtifactUpdateEvent:
        return TaskArtifactUpdateEvent(
            task_id=self.ids.task, context_id=self.ids.context, artifact=artifact, last_chunk=True
        )


def _is_last(state: TaskState, *, is_first: bool, until_asked: bool) -> bool:
    """Whether there is nothing to wait for after a task was yielded in this state."""
    if state == _ASKS:
        return until_asked or not is_first
    return is_first and state in tasks.OVER


async def _moments(
    turn: Turn[Any], ids: TaskIds, *, delegates: bool
) -> AsyncGenerator[Message | AnswerDraft | TurnText | None, None]:
    """Yield None when a task has to be looked at again, each message of the agent, and its text.

    The first moment is now, the others are changes of whether a person is needed. Text is that of
    the model call that runs; the artifact of the answer takes its place in the end. With
    `delegates`, there is also the text of the turns below that comes from now on.
    """
    was_needed, drafts = False, Drafts()
    async with contextlib.aclosing(turn.changes_and_text(delegates=delegates)) as changing:
        async for change in changing:
            if isinstance(change, TurnText):
                if drafts.is_on:
                    yield change
                continue
            if not isinstance(change, Change):
                for draft in drafts.hear(change):
                    yield draft
                continue
            drafts.is_on = change.is_new and _streams(change.state)
            message = None if change.event is None else tasks.said_in(ids, change.event)
            if change.is_new and message is not None and message.role == Role.ROLE_AGENT:
                for draft in drafts.drop():
                    yield draft
                yield message
            if change.event is None or change.needs_person != was_needed:
                yield None
            was_needed = change.needs_person


class Drafts:
    """The text of a model call, which may become the answer.

    Attributes:
        is_on: Whether it is shown while it is generated.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._has_begun = False

    def hear(self, piece: Piece) -> Iterator[AnswerDraft]:
        """Yield what is shown of another piece or mark."""
        if isinstance(piece, TextVoid):
            yield from self.drop()
        elif isinstance(piece, str) and self.is_on:
            yield AnswerDraft(piece, goes_on=self._has_begun)
            self._has_begun = True

    def drop(self) -> Iterator[AnswerDraft]:
        """Take back what is shown, as it was no answer."""
        if self._has_begun:
            self._has_begun = False
            yield AnswerDraft("", goes_on=False)


def _streams(state: TurnState) -> bool:
    is_live = state.request is not None and state.request.live
    return is_live and withheld.may_stream(state)
