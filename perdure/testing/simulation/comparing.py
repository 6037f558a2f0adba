"""Compares the state of a workflow with that of a reader of its history."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

from perdure.base import replace
from perdure.session.state import SessionState
from perdure.turn.state import TurnState

S = TypeVar("S", TurnState, SessionState)


def difference_of(state: S, read: S) -> str:
    """Describe the first field in which the states of a workflow and of a reader differ.

    Empty if they agree.
    """
    if isinstance(state, TurnState) and state.cancel_reason is None:
        read = replace(read, cancel_reason=None)
    if isinstance(state, SessionState) and state.closed is None:
        read = replace(read, closed=None)
    for one in fields(state):
        if not one.compare:
            continue
        ours, theirs = getattr(state, one.name), getattr(read, one.name)
        if ours != theirs:
            return f"{one.name} is\n  {str(ours)[:1200]}\nand a reader has\n  {str(theirs)[:1200]}"
    return ""
