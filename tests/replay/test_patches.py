"""Replays of what is behind patches: with the patches of this release, and without them, as an
earlier release has recorded it.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from ..support.replaying import replayed
from .record_patches import EARLIER, FOLDER

PATCHES = {
    "reset-part": {"found-again"},
    "reset-batch": {"parts-are-reset"},
    "reset-cancelled-part": {"found-again"},
    "added-batch": {"orders-first"},
    "added-part": {"even-shares"},
    "recording-session": {"cancelled-while-recording"},
    "waiting-delegate": {"signal-apart"},
    "forgotten-part": {"money-taken-back"},
    "two-runs-batch": {"parts-are-reset"},
    "made-up-session-run": {"made-up-input-is-refused"},
    "made-up-push-run": {"made-up-input-is-refused"},
    "cancelled-push-run": {"answers-cancelled-push"},
}
"""What is stored, and the patches in a history of this release."""


def patches_in(path: Path) -> set[str]:
    """The patches that a stored history has asked for."""
    events = json.loads(path.read_text(encoding="utf-8"))["events"]
    markers = [event.get("markerRecordedEventAttributes", {}) for event in events]
    patches: set[str] = set()
    for marker in markers:
        if marker.get("markerName") == "core_patch":
            [payload] = marker["details"]["patch-data"]["payloads"]
            patches.add(json.loads(base64.b64decode(payload["data"]))["id"])
    return patches


@pytest.mark.table(3)
@pytest.mark.accepts("Y6", "E144", "E167", "E168", "H132", "S31")
@pytest.mark.parametrize("name", PATCHES)
async def test_history_with_a_patch_replays(name: str) -> None:
    """It has the patch, which an earlier release did not know."""
    path = FOLDER / f"{name}.json"

    await replayed(json.loads(path.read_text(encoding="utf-8")))

    assert patches_in(path) >= PATCHES[name]


@pytest.mark.accepts("Y6", "E144", "E167", "E168", "H132", "S31")
@pytest.mark.filterwarnings("ignore:.*TMPRL1102")  # an earlier release left updates unanswered
@pytest.mark.parametrize("name", sorted(PATCHES.keys() - {"reset-cancelled-part"}))
async def test_history_without_the_patch_replays(name: str) -> None:
    """The workflow goes on as it had begun."""
    path = EARLIER / f"{name}.json"

    await replayed(json.loads(path.read_text(encoding="utf-8")))

    assert not patches_in(path) & PATCHES[name]
