"""`perdure rewrap` as a real process, which is killed and runs again."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perdure.temporal.encryption import key_stores
from perdure.temporal.encryption.data_keys import SubjectKeys
from perdure.temporal.encryption.hiding import VARIABLE
from perdure.temporal.encryption.keys import new_entry, parsed
from perdure.temporal.encryption.sqlite_keys import SqliteKeys

from ..support.e2e.command_line import CommandLine, InProcess

KEYS = 400


def masters_in(path: Path) -> set[str]:
    """The names of the keys that the keys of a store are wrapped with."""
    connection = sqlite3.connect(path)
    try:
        return {row[0] for row in connection.execute("SELECT master FROM perdure_subject_keys")}
    finally:
        connection.close()


async def opened(path: Path, entries: str) -> int:
    """The number of keys that a process with these keys can use."""
    keys = SubjectKeys(SqliteKeys(str(path)), parsed(entries, "the test"))
    ciphers = [await keys.cipher(key.id) async for key in keys.in_use()]
    return sum(not isinstance(cipher, bytes) for cipher in ciphers)


async def fill(path: Path, entries: str, count: int) -> None:
    """Make keys of as many subjects."""
    keys = SubjectKeys(SqliteKeys(str(path)), parsed(entries, "the test"))
    for number in range(count):
        await keys.id_for(f"customer-{number}")


@pytest.mark.slow
@pytest.mark.accepts("G99")
def test_command_that_was_killed_is_completed_by_another_one(tmp_path: Path) -> None:
    """Each key can be used after the kill, and with the new key alone at the end."""
    here, path = CommandLine(tmp_path), tmp_path / "subjects.sqlite"
    old, new = new_entry("k1"), new_entry("k2")
    asyncio.run(fill(path, old, KEYS))
    here.environment |= {VARIABLE: f"{new},{old}", key_stores.VARIABLE: str(path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure", "rewrap"],
        cwd=tmp_path,
        env=here.environment,
        stdout=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while masters_in(path) == {"k1"} and time.monotonic() < deadline:
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    between = masters_in(path), asyncio.run(opened(path, f"{new},{old}"))
    done = json.loads(here("rewrap", "--json").stdout)

    assert between == ({"k1", "k2"}, KEYS)
    assert done["rewrapped"] + done["current"] == KEYS
    assert done["current"] > 0
    assert asyncio.run(opened(path, new)) == KEYS


@pytest.mark.accepts("G98")
def test_command_prints_what_was_done(tmp_path: Path) -> None:
    """As text or JSON; keys that cannot be unwrapped are named, and the exit code is 1."""
    here, path = InProcess(tmp_path), tmp_path / "subjects.sqlite"
    old, new = new_entry("k1"), new_entry("k2")
    asyncio.run(fill(path, old, 2))
    without = here("rewrap")
    here.environment |= {VARIABLE: new, key_stores.VARIABLE: str(path)}
    lacking, lines = here("rewrap"), here("rewrap", "--json")
    here.environment[VARIABLE] = f"{new},{old}"
    done, again = here("rewrap"), here("rewrap")

    assert (without.returncode, lacking.returncode, lines.returncode) == (2, 1, 1)
    assert "PERDURE_SUBJECT_KEYS" in without.stderr
    assert "as this process has no key 'k1': customer-0, customer-1" in lacking.stdout
    assert [key["master"] for key in json.loads(lines.stdout)["unreadable"]] == ["k1", "k1"]
    assert f"2 keys wrapped with 'k2' in the file {path}; 0 had been before" in done.stdout
    assert "0 keys wrapped with 'k2'" in again.stdout
    assert (done.returncode, again.returncode) == (0, 0)
