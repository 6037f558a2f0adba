"""Replays of the stored histories of a session and of its second turn."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from perdure.turn.wire import TurnRequest

from ..support.replaying import STARTED, folded, replayed
from .record_session import FOLDER


def stored(name: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return told


def given(told: dict[str, Any]) -> dict[str, Any]:
    """The payload of the input of a workflow."""
    [payload] = told["events"][0][STARTED]["input"]["payloads"]
    found: dict[str, Any] = payload
    return found


@pytest.mark.accepts("Y6", "E51")
@pytest.mark.parametrize("name", ["session", "earlier_session"])
async def test_stored_history_of_a_session_replays(name: str) -> None:
    """Also of one whose turns carried the messages before them over."""
    await replayed(stored(name))


@pytest.mark.accepts("Y6", "E125")
async def test_stored_history_of_a_turn_of_a_session_replays() -> None:
    """It has no message of the turn before, and the digest of all."""
    state = await folded(stored("turn"))

    assert state.ended is not None
    assert state.ended.summary is not None
    assert (state.transcript.digest, state.transcript.length) == (
        state.ended.summary.digest,
        state.ended.summary.length,
    )
    assert (state.transcript.absent, len(state.transcript.messages)) == (2, 4)


@pytest.mark.accepts("Y6", "E125")
@pytest.mark.parametrize("is_mixed", [False, True], ids=["earlier", "by a later session"])
async def test_turn_that_an_earlier_release_began_has_carried_the_messages_over(
    is_mixed: bool,
) -> None:
    """Also one whose session is run by a worker of this release, and says what it need not have."""
    told = stored("earlier_turn")
    if is_mixed:
        payload = given(told)
        request = TurnRequest.model_validate_json(base64.b64decode(given(stored("turn"))["data"]))
        payload["data"] = base64.b64encode(
            request.model_dump_json(exclude_unset=True).encode()
        ).decode()
        assert request.origin is not None
        assert request.origin.preceding is not None

    state = await folded(told)

    assert state.ended is not None
    assert state.ended.summary is not None
    assert (state.transcript.absent, len(state.transcript.messages)) == (0, 6)
    assert state.transcript.digest == state.ended.summary.digest
