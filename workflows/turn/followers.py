"""The followers of a turn: workflows that are told when it needs a person, and when it ends.

They are told that there is news, and read from history what that is. They are not part of the
turn's facts: the turn does not depend on them.
"""

from __future__ import annotations

import asyncio

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from perdure import limits
from perdure.delivery.push import Follow, TurnNews
from perdure.errors import PerdureError
from perdure.temporal.names import TURN_NEWS
from perdure.temporal.payloads import pack, unpack
from perdure.workflows.turn.turn_context import Board


class Followers:
    """The followers of one turn.

    Attributes:
        ids: The ids of their workflows.
    """

    def __init__(self, board: Board) -> None:
        self.ids: tuple[str, ...] = ()
        self._board = board
        self._watch: asyncio.Task[None] | None = None

    def add(self, payload: RawValue) -> None:
        """Add the sender of a signal, unless it follows already or there are too many."""
        try:
            follower = unpack(payload, Follow).follower
        except PerdureError:
            return
        if follower not in self.ids and len(self.ids) < limits.FOLLOWERS:
            self.resume((*self.ids, follower))

    def resume(self, ids: tuple[str, ...]) -> None:
        """Tell these from now on."""
        self.ids = ids
        if ids and self._watch is None:
            self._watch = asyncio.create_task(self._tell_waits())

    async def tell_end(self) -> None:
        """Tell that the turn is about to end."""
        if self.ids:
            await asyncio.shield(self._tell(TurnNews(is_ending=True)))

    async def _tell_waits(self) -> None:
        """Tell each time that the turn begins to need a person. A new follower looks for itself."""
        while True:
            await workflow.wait_condition(lambda: not self._board.state.needs_person)
            await workflow.wait_condition(lambda: self._board.state.needs_person)
            await self._tell(TurnNews())

    async def _tell(self, news: TurnNews) -> None:
        for follower in self.ids:
            handle = workflow.get_external_workflow_handle(follower)
            try:
                await handle.signal(TURN_NEWS, pack(news))
            except ApplicationError:  # it has ended
                self.ids = tuple(other for other in self.ids if other != follower)
