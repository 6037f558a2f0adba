"""Another key of the environment for the keys of data subjects, while turns run."""

from __future__ import annotations

import os

import pytest

from perdure.temporal.encryption.hiding import VARIABLE
from perdure.temporal.encryption.keys import new_entry
from perdure.worker.doctor import subject_keys
from perdure.worker.setup_checks import Finding

from ...support.approving import pending
from ...support.data_subjects import Home, home

__all__ = ["home"]


async def of_doctor(home: Home) -> list[Finding]:
    """What `perdure doctor` says of the keys of the store."""
    client = (await home.client()).temporal
    return [finding async for finding in subject_keys.findings(client)]


@pytest.mark.accepts("G99", "G100")
async def test_turn_goes_on_while_its_key_is_wrapped_anew(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And ends at a worker that has the new key alone; `perdure doctor` knows when."""
    old, new = os.environ[VARIABLE], new_entry("k2")
    client = await home.client()
    async with home.worker().running(client.temporal):
        waiting = await client.start("payer", "go", id=f"old-{home.id}", subject=home.subject)
        [asked] = await pending(waiting)
    monkeypatch.setenv(VARIABLE, new)
    [lacking] = await of_doctor(home)
    monkeypatch.setenv(VARIABLE, f"{new},{old}")
    client = await home.client()
    [before] = await of_doctor(home)
    async with home.worker().running(client.temporal):
        running = await client.start("payer", "go", id=f"new-{home.id}", subject=f"x-{home.id}")
        await pending(running)
        receipt = await client.rewrap_keys()
    monkeypatch.setenv(VARIABLE, new)
    client = await home.client()
    async with home.worker().running(client.temporal):
        await client.turn(waiting.id).approve(asked)
        report = await client.turn(waiting.id).result()
        await client.erase(f"x-{home.id}")
        [after] = await of_doctor(home)

    assert (receipt.rewrapped, receipt.current) == (1, 1)
    assert report.output == "done"
    assert (lacking.state, before.state, after.state) == ("failed", "warning", "ok")
    assert "without 'k1'" in lacking.words
    assert "1 of 1 key" in before.words
    assert "`perdure rewrap`" in before.remedy
    assert after.words == "all 1 are wrapped with 'k2'"


@pytest.mark.accepts("G100")
async def test_doctor_says_that_the_store_is_away(home: Home) -> None:
    """And nothing where there is no store."""
    client = await home.client()
    await client.start("payer", "go", id=f"turn-{home.id}", subject=home.subject)
    home.away(is_away=True)
    [away] = await of_doctor(home)
    home.away(is_away=False)

    assert away.state == "failed"
    assert "does not answer" in away.words
