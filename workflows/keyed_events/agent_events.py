"""Keeps the events of a name and a key, and tells the turns that wait for them.

It is a workflow of its own, which begins with the first event or the first turn that waits, and
ends when it has nothing left (docs/decisions/0158). Its input is its state.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from perdure import limits
from perdure.errors import InvalidRequestError, PerdureError
from perdure.keyed_events import state as keyed_events
from perdure.keyed_events.state import EventDelivery
from perdure.keyed_events.wire import EventWaiter, KeyedEvents
from perdure.temporal import failures
from perdure.temporal.names import AWAIT_EVENT, EMIT, KEYED_EVENTS, MOVE_ON
from perdure.temporal.payloads import NOTHING, pack, unpack
from perdure.turn import event_keys
from perdure.turn.history_limits import run_events
from perdure.turn.wait_values import Emit
from perdure.workflows import ancestors, moving
from perdure.workflows.update_answers import UpdateAnswers, update_id


@workflow.defn(name=KEYED_EVENTS, sandboxed=False, failure_exception_types=[PerdureError])
class AgentEvents:
    """The workflow of the events of a name and a key."""

    def __init__(self) -> None:
        self._answers = UpdateAnswers()
        self._updates = 0
        self._early = 0
        self._is_changed = True
        self._state = KeyedEvents(name="", key="")

    @workflow.run
    async def run(self, start: RawValue = NOTHING) -> None:
        """Tell turns of events until nothing is left.

        Raises:
            ApplicationError: The input is not that of this workflow.
        """
        with failures.typed():
            self._state = _checked(unpack(start, KeyedEvents))
        await workflow.wait_condition(lambda: not self._early)
        while True:
            if self._is_full:
                await self._continue()
            elif self._is_changed:
                await self._tell()
            elif await self._is_over():
                return

    @property
    def _is_full(self) -> bool:
        info = workflow.info()
        return (
            info.get_current_history_length()
            >= min(limits.SESSION_RUN_EVENTS, run_events(info.task_timeout))
            or info.get_current_history_size() >= limits.RUN_BYTES
            or self._updates >= limits.RUN_UPDATES
            or info.is_continue_as_new_suggested()
            or moving.is_due()
        )

    async def _continue(self) -> None:
        """Go on in a new run, once every update has its answer."""
        await self._answers.before_next_run(moves=moving.is_due())
        payload = pack(self._current, "the next run's input")
        workflow.continue_as_new(payload, **moving.options())

    @property
    def _current(self) -> KeyedEvents:
        return keyed_events.current(self._state, workflow.now())

    async def _tell(self) -> None:
        """Tell turns what they wait for. A turn that is over does not get it."""
        sent = keyed_events.deliveries(self._state, workflow.now())
        self._is_changed = bool(sent)
        self._state = keyed_events.told(self._state, sent)
        has_got = await asyncio.gather(*map(_is_sent, sent))
        self._state = keyed_events.given(self._state, _ids(sent, has_got))

    async def _is_over(self) -> bool:
        """Wait for an event or a turn; return whether nothing is left meanwhile."""
        self._state = self._current
        until = keyed_events.lasts_until(self._state)
        if until is None:
            await self._answers.until_recorded()
            return not self._is_changed
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self._is_changed,
                timeout=until - workflow.now(),
                timeout_summary="nothing is kept any more, and no turn waits",
            )
        return False

    async def _until_begun(self) -> None:
        """Wait until the run has its input: the SDK runs the first handlers before `run`."""
        if not self._state.name:
            self._early += 1
            await workflow.wait_condition(lambda: bool(self._state.name))
            self._early -= 1

    @workflow.update(name=EMIT)
    async def emit(self, payload: RawValue = NOTHING) -> None:
        """Take in an event."""
        await self._until_begun()
        self._updates += 1
        with self._answers.answering(), failures.typed():
            event, now = unpack(payload, Emit), workflow.now()
            self._state = keyed_events.taken_in(self._state, update_id(), event, now)
            self._is_changed = True

    @emit.validator
    def check_event(self, payload: RawValue = NOTHING) -> None:
        """Refuse an event that is not valid, or for which there is no room."""
        self._answers.check_open()
        with failures.typed():
            keyed_events.taken_in(self._state, update_id(), unpack(payload, Emit), workflow.now())

    @workflow.signal(name=MOVE_ON)
    def move_on(self, payload: RawValue = NOTHING) -> None:
        """See whether another version of the workers goes on."""
        self._is_changed = self._is_changed or moving.is_due()

    @workflow.signal(name=AWAIT_EVENT)
    async def await_event(self, payload: RawValue = NOTHING) -> None:
        """Take in a turn that waits."""
        await self._until_begun()
        try:
            waiter = unpack(payload, EventWaiter)
        except PerdureError:
            return
        self._state = keyed_events.awaited(self._state, waiter, workflow.now())
        self._is_changed = True


def _checked(start: KeyedEvents) -> KeyedEvents:
    """Return the input of a run.

    Raises:
        InvalidRequestError: It is of another name and key, or of a later run.
    """
    if workflow.info().workflow_id != event_keys.workflow_id(start.name, start.key):
        raise InvalidRequestError("the id of the workflow is not of this name and key")
    if start != KeyedEvents(name=start.name, key=start.key):
        ancestors.check_continued("the input")
    return start


async def _is_sent(delivery: EventDelivery) -> bool:
    turn = workflow.get_external_workflow_handle(delivery.turn_id)
    try:
        await turn.signal(EMIT, pack(delivery.event, "the event"))
    except ApplicationError:
        return False  # the turn is over, or was deleted
    return True


def _ids(sent: Sequence[EventDelivery], has_got: Sequence[bool]) -> set[str]:
    """Return the ids of the events that turns have got."""
    return {delivery.event.id for delivery, is_sent in zip(sent, has_got, strict=True) if is_sent}
