"""A tree of turns, each from its own history, with delegates below their parents."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol, TextIO

from rich.table import Table
from rich.text import Text

from perdure import errors
from perdure.clients.cli.drawing.progress import COLOURS, agents
from perdure.clients.cli.drawing.screen import lines_of
from perdure.clients.reading.events import Event
from perdure.clients.reading.tree import Node
from perdure.clients.turns.handle import Turn
from perdure.text import counted, harmless, money
from perdure.turn.child import Child
from perdure.turn.facts import ChildScheduled
from perdure.turn.state import TurnState
from perdure.values.tasks import headline

_STYLES = {"starting": "dim", "running": "cyan", **COLOURS}
_NOT_YET_S = 0.2
_GIVEN_UP_S = 5.0
"""The time to wait for a child's history.

A child is in its parent's history a moment before it can be read. One that could not be started can
never be read.
"""


class Followed(Protocol):
    """The part of a turn's interface that is needed to follow it."""

    @property
    def id(self) -> str:
        """Its id."""

    def events(self) -> AsyncIterator[Event]:
        """Yield its events until it is over."""


Reach = Callable[[str], Turn[Any]]


class Tree:
    """Follows a turn and all turns below it.

    `changed` is called after each event, with its node.
    """

    def __init__(
        self, turn: Followed, reach: Reach, changed: Callable[[Node, Event], None]
    ) -> None:
        self.root = Node(turn.id)
        self._turn = turn
        self._reach = reach
        self._changed = changed
        self._below: list[asyncio.Task[None]] = []

    async def follow(self) -> None:
        """Follow the turn and all turns below it until they are over."""
        try:
            await self._follow(self.root, self._turn)
            while any(not task.done() for task in self._below):
                await asyncio.gather(*self._below)
        finally:
            for task in self._below:
                task.cancel()

    async def _follow(self, node: Node, turn: Followed) -> None:
        async for event in turn.events():
            node.see(event)
            if isinstance(event.fact, ChildScheduled):
                below = Node(event.fact.turn_id, agent=event.fact.request.agent, began=event.at)
                node.children.append(below)
                self._below.append(asyncio.create_task(self._follow_child(below)))
            self._changed(node, event)

    async def _follow_child(self, node: Node) -> None:
        with contextlib.suppress(errors.TurnNotFoundError, TimeoutError):
            await self._follow(node, await self._child(node.turn_id))

    async def _child(self, turn_id: str) -> Turn[Any]:
        async with asyncio.timeout(_GIVEN_UP_S):
            while True:
                turn = self._reach(turn_id)
                try:
                    await turn.check()
                except errors.TurnNotFoundError:
                    await asyncio.sleep(_NOT_YET_S)
                else:
                    return turn


@dataclass(frozen=True)
class Row:
    """A line of a drawn tree."""

    branch: str
    agent: str
    status: str
    steps: int
    cost: Decimal | None
    time: timedelta
    task: str
    last_agent: str = ""


def rows(root: Node, now: datetime | None = None) -> list[Row]:
    """Return a row for each turn, depth first, in the order in which they were started."""
    return list(_rows(root, None, "", "", now or datetime.now(UTC)))


def _row(node: Node, known: Child | None, branch: str, now: datetime) -> Row:
    """Return the row of a turn; `known` is what the turn above it knows."""
    state = node.state
    request = state.request or (known.request if known else None)
    return Row(
        branch=branch,
        agent=node.turn_id.rpartition("/")[2] if known else node.agent,
        last_agent=state.other_agent,
        status=_status(state, known),
        steps=state.step_count,
        cost=node.spent.usd if state.is_priced_so_far else None,
        time=((node.ended or now) - node.began) if node.began else timedelta(),
        task=headline(request.task) if request else "",
    )


def _rows(node: Node, known: Child | None, branch: str, below: str, now: datetime) -> Iterator[Row]:
    yield _row(node, known, branch, now)
    for position, child in enumerate(node.children, 1):
        is_last = position == len(node.children)
        children = node.state.children
        known = next((each for each in children if each.turn_id == child.turn_id), None)
        yield from _rows(
            child,
            known,
            below + ("└─ " if is_last else "├─ "),
            below + ("   " if is_last else "│  "),
            now,
        )


def _status(state: TurnState, known: Child | None) -> str:
    if state.ended is not None:
        return state.ended.outcome.value
    if known is not None and known.ended:
        return (known.report.outcome or "ended") if known.summary else "terminated"
    if state.waiting is not None and state.waiting.is_told:
        return f"waits for {state.waiting.kind}"
    return "running" if state.request else "starting"


def lines(drawn: list[Row], out: TextIO | None = None) -> list[Text]:
    """Return the tree line by line: agent, state, steps, cost, time, task.

    Tasks are cut at the width of the terminal.
    """
    grid = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "left", "right", "right", "right"):
        grid.add_column(justify=justify, no_wrap=True)
    grid.add_column()
    for row in drawn:
        grid.add_row(*_cells(row), Text(row.task, no_wrap=True, overflow="ellipsis"))
    return lines_of(grid, out)


def _cells(row: Row) -> tuple[Text, ...]:
    steps = counted(row.steps, "step")
    agent = Text.assemble((row.branch, "dim"), agents(row.agent, row.last_agent))
    style = _STYLES.get(row.status, "yellow" if row.status.startswith("waits") else "red")
    return (
        agent,
        Text(harmless(row.status), style),
        Text(steps),
        Text(_cost(row.cost)),
        Text(_time(row.time)),
    )


def _cost(cost: Decimal | None) -> str:
    return "–" if cost is None else money(cost)


def _time(time: timedelta) -> str:
    return f"{max(time.total_seconds(), 0):.1f} s"
