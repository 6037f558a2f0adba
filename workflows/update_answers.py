"""The answers of a run to updates, all of which have to be in history before the run ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from temporalio import workflow

from perdure.temporal import failures
from perdure.workflows.moving import next_task

CANCELS_FIRST = "cancels-before-the-next-run"
"""The patch since which a cancel in the workflow task that ends a full run is not lost."""


def update_id() -> str:
    """Return the id of the current update; there must be one."""
    update = workflow.current_update_info()
    assert update is not None
    return update.id


class UpdateAnswers:
    """The answers of one run to updates. `on_answer` is called after each of them."""

    def __init__(self, on_answer: Callable[[], object] = lambda: None) -> None:
        self._on_answer = on_answer
        self._last = 0
        self._is_ending = False

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Handle an update: its answer is in the workflow task in which this ends."""
        try:
            yield
        finally:
            self._last = workflow.info().get_current_history_length()
            self._on_answer()

    def check_open(self) -> None:
        """Refuse the current update if the run is about to continue in a new run.

        Raises:
            ApplicationError: The update is to be sent again.
        """
        if self._is_ending:
            raise failures.run_ends()

    async def before_next_run(self, *, moves: bool, is_signalled: bool = True) -> None:
        """Wait until the run may continue in a new run, with nothing that came to it lost.

        Every answer is in history then. If this workflow task `is_signalled`, another one passes:
        the signal may have ended the run, and a cancel of the same task comes after it. A run of an
        earlier release passed one only if it `moves` to another version of the workers.
        """
        in_next_task = moves or (is_signalled and workflow.patched(CANCELS_FIRST))
        await self.until_recorded(in_next_task=in_next_task)

    async def until_recorded(self, *, in_next_task: bool = False) -> None:
        """Wait until the answer to every update is in history, before the run ends.

        An answer in the same workflow task as a continue-as-new may be lost
        (temporalio/temporal#6375), so a task passes after the last answer. Until then the run takes
        in no more updates: a stream of them would keep it from ending.

        With `in_next_task`, a task passes in any case.
        """
        info = workflow.info()
        self._is_ending = True
        try:
            await workflow.wait_condition(workflow.all_handlers_finished)
            while in_next_task or self._last == info.get_current_history_length():
                in_next_task = False
                await next_task("what has come meanwhile is recorded")
                await workflow.wait_condition(workflow.all_handlers_finished)
        finally:
            self._is_ending = False  # the run may be cancelled meanwhile
