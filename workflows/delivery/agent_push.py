"""Push notifications: tells one receiver when a task of A2A needs a person, and when it is over.

It is a workflow of its own (docs/decisions/archive/0105), which the gateway starts. It follows a
turn: the turn signals that there is news, and an activity reads from history what that is.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from perdure import errors, limits
from perdure.delivery.push import ChangeCall, Follow, PushCall, PushMessage, TaskChange, TurnNews
from perdure.delivery.webhook import Notification
from perdure.errors import PerdureError
from perdure.temporal import failures
from perdure.temporal.names import (
    BEGIN_PUSH,
    CHECK_RECEIVER,
    FOLLOW,
    MOVE_ON,
    PUSH,
    READ_CHANGE,
    TURN_NEWS,
)
from perdure.temporal.payloads import NOTHING, pack, unpack
from perdure.workflows import ancestors, moving
from perdure.workflows.delivery import deliveries
from perdure.workflows.update_answers import UpdateAnswers

_FIRST_PAUSE = timedelta(seconds=1)
_ANSWERS_CANCELLED = "answers-cancelled-push"
"""The patch since which a cancel answers those who wait for the receiver to be accepted."""


@workflow.defn(name=PUSH, sandboxed=False, failure_exception_types=[PerdureError])
class AgentPush:
    """The workflow that notifies one receiver about one task."""

    def __init__(self) -> None:
        self._call: PushCall | None = None
        self._is_accepted = False
        self._refusal: PerdureError | None = None
        self._has_news = False
        self._is_ending = False
        self._answers = UpdateAnswers()

    @workflow.run
    async def run(self, start: RawValue = NOTHING) -> None:
        """Notify the receiver until the task is over.

        Raises:
            ApplicationError: The receiver is refused, or refused a message; the error says why.
        """
        with failures.typed():
            self._call = call = unpack(start, PushCall)
            if call.told:
                subject = "the place of the last change"
                ancestors.check_continued(subject, patch=ancestors.MADE_UP_REFUSED)
        with deliveries.failing(call.turn_id):
            try:
                await self._accept(call)
                if call.turn_id:
                    await self._follow(call)
            except BaseException as error:  # `CancelledError` is no `Exception`
                if is_cancelled_exception(error):
                    await self._refuse_waiting(call)
                raise
        await workflow.wait_condition(workflow.all_handlers_finished)

    async def _accept(self, call: PushCall) -> None:
        """Check the receiver, and tell those who wait for that.

        Raises:
            PerdureError: The worker does not send to it.
        """
        try:
            await deliveries.read(CHECK_RECEIVER, call, "the receiver")
            self._is_accepted = True
        except ActivityError as error:
            if is_cancelled_exception(error) or error.cause is None:
                raise
            self._refusal = errors.from_info(failures.error_in(error.cause))
            await workflow.wait_condition(workflow.all_handlers_finished)
            raise self._refusal from error

    async def _refuse_waiting(self, call: PushCall) -> None:
        """Tell those who wait for the receiver to be accepted that it is not looked at any more."""
        if workflow.all_handlers_finished() or not workflow.patched(_ANSWERS_CANCELLED):
            return
        self._refusal = errors.TurnConflictError(
            f"the push notifications {call.id!r} were cancelled before the receiver was accepted;"
            " ask for them again"
        )
        await workflow.wait_condition(workflow.all_handlers_finished)

    async def _follow(self, call: PushCall) -> None:
        """Send each change of the task until it is over, or continue so in a new run."""
        is_following, pause = False, _FIRST_PAUSE
        while True:
            is_following = is_following or await self._ask_for_news(call.turn_id)
            self._has_news = False
            change = await self._change(call)
            if change.message is not None:
                await self._send(call, change.message)
                call = call.model_copy(update={"told": change.place})
            if change.is_last:
                return
            if workflow.info().is_continue_as_new_suggested() or moving.is_due():
                await self._answers.before_next_run(moves=False)
                workflow.continue_as_new(pack(call), **moving.options())
            has_news = await self._has_news_within(limits.A2A_PUSH_LOOK if is_following else pause)
            is_following = is_following and has_news  # or an operator has reset the turn
            pause = min(2 * pause, limits.A2A_PUSH_RETRY)

    async def _ask_for_news(self, turn_id: str) -> bool:
        """Ask the turn for its news. Returns False if it has not begun, or is over."""
        follower = Follow(follower=workflow.info().workflow_id)
        try:
            await workflow.get_external_workflow_handle(turn_id).signal(FOLLOW, pack(follower))
        except ApplicationError:
            return False
        return True

    async def _change(self, call: PushCall) -> TaskChange:
        change_call = ChangeCall(push=call, is_ending=self._is_ending)
        raw = await deliveries.read(READ_CHANGE, change_call, f"the state of {call.task}")
        return unpack(raw, TaskChange)

    async def _send(self, call: PushCall, message: PushMessage) -> None:
        message_id = f"msg_{workflow.uuid4().hex}"
        sent = Notification(id=message_id, url=call.url, message=message, token=call.token)
        delivered = await deliveries.deliver(sent, message.state)
        fields = {"status": delivered.status, "attempts": delivered.attempts}
        deliveries.record(call.turn_id, "delivered", **fields)

    async def _has_news_within(self, longest: timedelta) -> bool:
        """Wait for news of the turn, but not longer than this. Returns whether there are any."""
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self._has_news, timeout=longest, timeout_summary="the task is looked at"
            )
        return self._has_news

    @workflow.signal(name=TURN_NEWS)
    def take_news(self, payload: RawValue = NOTHING) -> None:
        """Note that the turn has news."""
        try:
            news = unpack(payload, TurnNews)
        except PerdureError:
            return
        self._has_news = True
        self._is_ending = self._is_ending or news.is_ending

    @workflow.signal(name=MOVE_ON)
    def move_on(self, payload: RawValue = NOTHING) -> None:
        """See whether another version of the workers goes on."""
        self._has_news = self._has_news or moving.is_due()

    @workflow.update(name=BEGIN_PUSH)
    async def begin(self, payload: RawValue = NOTHING) -> None:
        """Return once the receiver is accepted.

        Raises:
            PerdureError: The worker does not send to it, or this configuration differs from the
                configuration with the same id.
        """
        with self._answers.answering(), failures.typed():
            call = unpack(payload, PushCall)
            await workflow.wait_condition(lambda: self._is_accepted or self._refusal is not None)
            if self._refusal is not None:
                raise self._refusal
            if self._call is None or not call.is_same(self._call):
                raise errors.TurnConflictError(
                    f"the push notifications {call.id!r} have another URL or token; delete them"
                    " first, or choose another id"
                )

    @begin.validator
    def check_begin(self, payload: RawValue = NOTHING) -> None:
        """Refuse an update that comes while the run is about to continue in a new run."""
        self._answers.check_open()
