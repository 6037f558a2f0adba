"""Inputs of the activities that run middleware and observers."""

from __future__ import annotations

from typing import Literal

from perdure.base import Wire
from perdure.values.reports import Outcome


class HookCall(Wire):
    """Input of a middleware's activity.

    `place` is the middleware's index in the agent, from 0, and `moment` is when it runs. After a
    turn, `outcome` and `risk` have its result. With `messages`, the ids of messages to the running
    turn, those are checked instead of what the turn began with.
    """

    agent: str
    place: int
    moment: Literal["before", "after"]
    outcome: Outcome | None = None
    risk: str | None = None
    messages: tuple[str, ...] = ()


class ObserverCall(Wire):
    """Input of the observers' activity.

    It covers the steps after `seen` up to `steps`, then a wait or the end, if there is either.
    """

    agent: str
    seen: int
    steps: int
    waits_for: str = ""
    reason: str = ""
    outcome: Outcome | None = None
    risk: str | None = None
