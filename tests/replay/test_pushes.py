"""Replays of the stored histories of a turn with a follower, and of its push notifications."""

from __future__ import annotations

import json

import pytest

from ..support.replaying import folded, replayed
from .record_push import FOLDER


@pytest.mark.accepts("Y6", "H58")
async def test_stored_history_of_a_turn_with_a_follower_replays() -> None:
    """It tells its follower of the wait and of the end, which are no facts of its own."""
    state = await folded(json.loads((FOLDER / "turn.json").read_text(encoding="utf-8")))

    assert state.ended is not None
    assert state.children == ()


@pytest.mark.accepts("Y6", "H58")
async def test_stored_history_of_push_notifications_replays() -> None:
    """Two messages were delivered."""
    await replayed(json.loads((FOLDER / "push.json").read_text(encoding="utf-8")))
