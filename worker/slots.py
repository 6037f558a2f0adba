"""Slots for activities: model calls have slots of their own, which webhooks share.

Both wait for the network. A worker reserves a slot before it polls for a task, when it cannot know
the task. A reserved slot therefore counts as an activity and as a model call, until its task is
known.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass

from temporalio.worker import (
    ActivitySlotInfo,
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    WorkerConfig,
    WorkerTuner,
)

from perdure import errors
from perdure.temporal.names import CALL_MODEL, NOTIFY

SDK_SLOTS = 100
"""The SDK's default for each kind of slot."""


def separate(config: WorkerConfig, model_calls: int) -> None:
    """Give the model calls of a worker slots of their own.

    Its other limits stay. A worker with a tuner is not changed.

    Args:
        config: The configuration; its limits of concurrent tasks are replaced by a tuner.
        model_calls: The maximum number of concurrent model calls.

    Raises:
        ConfigurationError: A number of slots is below 1.
    """
    if config.get("tuner") is not None:
        return
    activities = config.pop("max_concurrent_activities", None)
    config["tuner"] = WorkerTuner.create_composite(
        workflow_supplier=_fixed(config.pop("max_concurrent_workflow_tasks", None)),
        activity_supplier=ActivitySlots(_or_default(activities), model_calls),
        local_activity_supplier=_fixed(config.pop("max_concurrent_local_activities", None)),
        nexus_supplier=_fixed(config.pop("max_concurrent_nexus_tasks", None)),
    )


def _fixed(slots: int | None) -> FixedSizeSlotSupplier:
    return FixedSizeSlotSupplier(_or_default(slots))


def _or_default(slots: int | None) -> int:
    return SDK_SLOTS if slots is None else slots


@dataclass(eq=False)
class _Permit(SlotPermit):
    """A reserved slot; `is_model` is None until its task is known. It is True for a webhook too."""

    is_model: bool | None = None


class _Waiter(asyncio.Future[None]):
    """The wait of one poller for a slot.

    The SDK's core wakes and cancels it from its own threads, which a plain future does not allow.
    """

    is_cancelled = False

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.get_loop().call_soon_threadsafe(self._end)

    def cancel(self, msg: object = None) -> bool:
        """End the wait, and mark it as cancelled."""
        self.is_cancelled = True
        self.wake()
        return True

    def _end(self) -> None:
        if not self.done():
            self.set_result(None)


class ActivitySlots(CustomSlotSupplier):
    """Issues slots up to a number of model calls, and a number of other activities.

    A supplier belongs to one worker.
    """

    def __init__(self, activities: int, model_calls: int) -> None:
        for kind, count in (("activities", activities), ("model calls", model_calls)):
            if count < 1:
                raise errors.ConfigurationError(
                    f"a worker has at least 1 slot for {kind}, not {count}"
                )
        self._most = {True: model_calls, False: activities}
        self._used = {True: 0, False: 0}
        self._reserved = 0
        self._waiting: list[_Waiter] = []
        self._lock = threading.Lock()  # the core calls from threads of its own

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """Wait for a slot that fits any task."""
        while True:
            with self._lock:
                if self._has_slot():
                    return self._reserve()
                waiter = _Waiter()
                self._waiting.append(waiter)
            await waiter
            if waiter.is_cancelled:
                raise asyncio.CancelledError

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """Return a slot for an eager activity; None without a free slot."""
        with self._lock:
            return self._reserve() if self._has_slot() else None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """Note the kind of task that a slot is used for."""
        permit, info = ctx.permit, ctx.slot_info
        assert isinstance(permit, _Permit)
        assert isinstance(info, ActivitySlotInfo)
        permit.is_model = info.activity_type in (CALL_MODEL, NOTIFY)
        with self._lock:
            self._reserved -= 1
            self._used[permit.is_model] += 1
            self._wake()

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """Take a slot back, used or not."""
        permit = ctx.permit
        assert isinstance(permit, _Permit)
        with self._lock:
            if permit.is_model is None:
                self._reserved -= 1
            else:
                self._used[permit.is_model] -= 1
            self._wake()

    def _has_slot(self) -> bool:
        return all(self._reserved + self._used[kind] < limit for kind, limit in self._most.items())

    def _reserve(self) -> _Permit:
        self._reserved += 1
        return _Permit()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.wake()
