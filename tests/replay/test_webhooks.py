"""Replays of the stored histories of a turn with a webhook, and of its delivery."""

from __future__ import annotations

import json

import pytest

from ..support.replaying import folded, replayed
from .record_webhook import FOLDER


@pytest.mark.accepts("Y6", "H80")
async def test_stored_history_of_a_turn_with_a_webhook_replays() -> None:
    """Its child is none of the turn's delegates."""
    state = await folded(json.loads((FOLDER / "turn.json").read_text(encoding="utf-8")))

    assert state.ended is not None
    assert state.request is not None
    assert (state.children, state.request.on_done is not None) == ((), True)


@pytest.mark.accepts("Y6", "H133")
async def test_stored_histories_of_a_session_with_a_webhook_replay() -> None:
    """The session's turn has the webhook."""
    await replayed(json.loads((FOLDER / "session.json").read_text(encoding="utf-8")))
    state = await folded(json.loads((FOLDER / "session-turn.json").read_text(encoding="utf-8")))

    assert state.request is not None
    assert (state.request.session, state.request.on_done is not None) == ("chat", True)


@pytest.mark.accepts("Y6", "H80")
async def test_stored_history_of_a_delivery_replays() -> None:
    """The second attempt was delivered."""
    await replayed(json.loads((FOLDER / "webhook.json").read_text(encoding="utf-8")))
