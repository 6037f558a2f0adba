"""Erasures: words that are planted in everything that can be started for a data subject cannot be
decrypted afterwards, also with the key of the environment, and also in a backup of the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, errors
from perdure.clients import AgentClient, ErasureReceipt
from perdure.temporal.connect import connect_local
from perdure.temporal.encryption import key_stores
from perdure.temporal.encryption.codec import Encryption
from perdure.temporal.encryption.data_keys import SubjectKeys
from perdure.temporal.encryption.hiding import VARIABLE
from perdure.temporal.encryption.keys import from_environment, new_entry
from perdure.temporal.encryption.sqlite_keys import SqliteKeys
from perdure.testing import ScriptedModel, call, calls, local_runtime, says
from perdure.worker import AgentWorker
from perdure.worker.dev.server import DevServer

from ..support.approving import begun, pending
from ..support.ciphertexts import decrypted, keys_in, messages_of
from ..support.e2e.command_line import CommandLine, InProcess
from ..support.e2e.planted_words import AGENT, CANARY, lives, replies
from ..support.receiver import SECRET, Receiver, receiving

SUBJECT = "customer-4711"
BOSS = Agent(name="boss", model="scripted:boss", delegates=["payer"], handoffs=["payer"])


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SqliteKeys:
    """A store of the keys of subjects."""
    path = str(tmp_path / "subjects.sqlite")
    monkeypatch.setenv(VARIABLE, new_entry("k1"))
    monkeypatch.setenv(key_stores.VARIABLE, path)
    return SqliteKeys(path)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver of webhooks."""
    with receiving() as found:
        monkeypatch.setenv("PERDURE_WEBHOOK_HOSTS", f"private:127.0.0.1:{found.port}")
        monkeypatch.setenv("PERDURE_WEBHOOK_SECRETS", SECRET)
        yield found


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncIterator[str]:
    """The address of a server with a file."""
    server = DevServer(folder=folder, port=0, ui=False)
    await server.start()
    try:
        yield server.address.address
    finally:
        await server.stop()


def model() -> Any:
    """What the models say: to the planted words, and to those who pass them on."""
    scripts = replies()
    scripts.scripts |= {
        "canarydelegation": ScriptedModel(
            calls(call("delegate_to_agent", agent="payer", task="canarydelegated")),
            says("canaryofboss"),
        ),
        "canarydelegated": ScriptedModel(says("canaryofdelegate")),
        "canaryopen": ScriptedModel(*[calls(call("pay", to="canaryopenargument"))] * 3),
        "canaryhandover": ScriptedModel(
            calls(call("hand_over", agent="payer", message="canaryhanded")), says("canaryafter")
        ),
    }
    return scripts


async def more(client: AgentClient) -> None:
    """A delegation, a handoff, a fork and a resumed turn."""
    first = await client.start("boss", "canarydelegation", id="delegating", subject=SUBJECT)
    assert (await first.result()).output == "canaryofboss"
    second = await client.start("boss", "canaryhandover", id="handing", subject=SUBJECT)
    assert (await second.result()).output == "canaryafter"
    fork = await second.fork(0, id="forked")
    await fork.cancel("canaryforkcancel")
    with pytest.raises(errors.TurnCancelledError):
        await fork.result()


async def open_things(client: AgentClient) -> list[str]:
    """A turn, a session, a batch and a schedule that are not over. Returns the ids of workflows."""
    waiting = await client.start("payer", "canaryopentask", id="waiting", subject=SUBJECT)
    await pending(waiting)
    session = client.session("open-talk", "payer", subject=SUBJECT)
    sent = await session.say("canaryopenmessage")
    await pending(await begun(client, sent.turn_id))
    await client.start_batch("open-crowd", "payer", ["canaryopentask"], subject=SUBJECT)
    await pending(await begun(client, "open-crowd/1"))
    await client.create_schedule(
        "open-plan", "payer", "canaryscheduled", cron="0 4 * * *", timezone="UTC", subject=SUBJECT
    )
    return ["waiting", "open-talk", "open-crowd"]


@pytest.mark.accepts("G31", "G32", "G33")
async def test_nothing_of_an_erased_subject_can_be_decrypted(
    tmp_path: Path, store: SqliteKeys, hook: Receiver
) -> None:
    """Not with the key of the environment, not with a backup; before, all of it could with the key
    of the subject, and nothing without it.
    """
    folder, backup = tmp_path / "server", tmp_path / "backup"
    folder.mkdir()
    masters = from_environment()
    worker = AgentWorker([AGENT, BOSS])
    async with (
        served(folder) as address,
        local_runtime(worker, model=model(), address=address) as client,
    ):
        await lives(client, hook.url("/done"), subject=SUBJECT)
        await more(client)
        await hook.until("/done")
        there = await messages_of(client.temporal)
        before = await decrypted(there, Encryption(masters, SubjectKeys(store, masters)))
        without = await decrypted(there, Encryption(masters))
        unfinished = await open_things(client)
        keys = keys_in(await messages_of(client.temporal))
        queue = client.task_queue
    shutil.copytree(folder, backup)
    worker = AgentWorker([AGENT, BOSS], task_queue=queue, providers={"scripted": model()})
    async with served(folder) as address:
        temporal = await connect_local(address)
        client = AgentClient.from_temporal(temporal, task_queue=queue)
        async with worker.running(temporal):
            receipt = await client.erase(SUBJECT, by="officer")
        there = await messages_of(client.temporal)
        after = await decrypted(there, Encryption(masters, SubjectKeys(store, masters)))
        again = await client.erase(SUBJECT)
        await check_readers(client)
    async with served(backup) as address:
        restored = AgentClient.from_temporal(await connect_local(address))
        with pytest.raises(errors.ErasedError):
            await restored.turn("paid").status()

    plain = {b"canarylabel", b"canarylabelname"}
    assert len(set(CANARY.findall(before)) - plain) > 30
    assert set(CANARY.findall(without)) <= plain
    assert set(CANARY.findall(after)) <= plain
    assert keys == {key.id for key in store.of_subject(SUBJECT)}
    check_receipt(receipt, unfinished, store)
    assert again.again
    assert again.ended == ()
    assert again.erased_at == receipt.erased_at


def check_receipt(receipt: ErasureReceipt, unfinished: list[str], store: SqliteKeys) -> None:
    """It has what was open, the keys, and each place."""
    ended = {work.id: work for work in receipt.ended}
    [key] = store.of_subject(SUBJECT)
    places = {place.place: place for place in receipt.places}

    assert (receipt.subject, receipt.by, receipt.again) == (SUBJECT, "officer", False)
    assert [erased.id for erased in receipt.keys] == [key.id]
    assert {*unfinished, "open-plan", "plan"} <= ended.keys()
    assert ended["open-plan"].how == "deleted"
    assert ended["waiting"].how == "cancelled"
    assert places.keys() >= {
        *("histories", "schedules", "external storage", "processes", "key store"),
        *("logs and spans", "result files and receivers", "backups of Temporal"),
    }
    assert (places["schedules"].count, places["histories"].until is not None) == (2, True)
    assert ErasureReceipt.model_validate_json(receipt.model_dump_json()) == receipt


async def check_readers(client: AgentClient) -> None:
    """Each reader says that it was erased, and lists go on."""
    turn, session, batch = client.turn("paid"), client.session("talk"), client.batch("crowd")
    for reading in (
        turn.status(),
        turn.result(),
        turn.fork(1, id="other"),
        anext(aiter(turn.events())),
        session.status(),
        anext(aiter(session.events())),
        batch.status(),
        anext(aiter(batch.results())),
        client.start("payer", "canarytask", id="paid"),
    ):
        with pytest.raises(errors.ErasedError, match="its data subject was erased on"):
            await asyncio.wait_for(reading, 60)
    with pytest.raises(errors.ScheduleNotFoundError):
        await client.schedule("plan").status()
    entries = [entry async for entry in client.turns(subject=SUBJECT)]
    assert {entry.error.code for entry in entries if entry.error is not None} == {"ERASED"}
    assert {"paid", "waiting", "delegating", "crowd/1", "talk/1"} <= {entry.id for entry in entries}
    sessions = [entry.id async for entry in client.sessions(subject=SUBJECT)]
    assert sorted(sessions) == ["open-talk", "talk"]
    assert [entry.id async for entry in client.batches()] == ["open-crowd", "crowd"]


async def begin(address: str, name: str) -> None:
    """Start a turn of a subject, which no worker takes."""
    client = AgentClient.from_temporal(await connect_local(address), task_queue=name)
    await client.start("payer", "canarytask", id=name, subject=name)


@pytest.mark.accepts("G32", "G91")
def test_command_erases_and_prints_the_receipt(
    perdure_server: str, tmp_path: Path, store: SqliteKeys
) -> None:
    """As text or as JSON, once that is agreed; an unknown subject is a mistake."""
    here, name = InProcess(tmp_path), f"customer-{secrets.token_hex(6)}"
    here.environment |= {
        "TEMPORAL_ADDRESS": perdure_server,
        VARIABLE: os.environ[VARIABLE],
        key_stores.VARIABLE: os.environ[key_stores.VARIABLE],
    }
    asyncio.run(begin(perdure_server, name))
    asked = here("erase", name)
    listed = here("list", "--subject", name, "--json")
    before = tmp_path / "audit.jsonl"
    before.write_text(here("audit", "--subject", name, "--json").stdout, encoding="utf-8")
    erased = here("erase", name, "--yes", "--json", "--grace", "1s", "--by", "officer")
    shown = here("show", name)
    audited = here("audit", "--subject", name, "--json")
    later = here("audit", "--after", str(before), "--json")
    again = here("erase", name, "--yes")
    unknown = here("erase", "nobody-at-all", "--yes")
    receipt = ErasureReceipt.model_validate_json(erased.stdout)
    entries = [line for line in map(json.loads, audited.stdout.splitlines()) if "act" in line]
    added = [line for line in map(json.loads, later.stdout.splitlines()) if "act" in line]

    assert (asked.returncode, unknown.returncode) == (2, 2)
    assert "nothing was erased: add --yes" in asked.stderr
    assert json.loads(listed.stdout.splitlines()[0])["id"] == name
    assert (receipt.by, [work.id for work in receipt.ended]) == ("officer", [name])
    assert "its data subject was erased on" in shown.stderr
    assert audited.returncode == 0
    assert [(entry["act"], entry.get("by"), entry.get("via")) for entry in entries] == [
        ("start", None, None),
        ("erase", "officer", "cli"),
        ("cancel", "officer", "cli"),
        ("terminate", None, None),
    ]
    assert [entry["act"] for entry in added] == ["erase", "cancel", "terminate"]
    assert f"{name} is erased since" in again.stdout
    assert "result files and receivers: Perdure does not know them" in again.stdout
    assert "there is no data subject 'nobody-at-all'" in unknown.stderr
    assert [key.state for key in store.of_subject(name)] == ["erased"]


@pytest.mark.slow
@pytest.mark.accepts("G102")
def test_erasure_that_was_killed_is_told(
    perdure_server: str, tmp_path: Path, store: SqliteKeys
) -> None:
    """By its own act, which comes before anything is ended; the erasure that completes it is
    another one.
    """
    here, name = CommandLine(tmp_path), f"customer-{secrets.token_hex(6)}"
    here.environment |= {
        "TEMPORAL_ADDRESS": perdure_server,
        VARIABLE: os.environ[VARIABLE],
        key_stores.VARIABLE: os.environ[key_stores.VARIABLE],
    }
    asyncio.run(begin(perdure_server, name))
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure", "erase", name, "--yes", "--grace", "5m", "--by", "anna"],
        cwd=tmp_path,
        env=here.environment,
    )

    def told() -> list[tuple[str, str | None]]:
        lines = here("audit", "--subject", name, "--json").stdout.splitlines()
        entries = [line for line in map(json.loads, lines) if "act" in line]
        return [(line["act"], line.get("by")) for line in entries if line["kind"] == "subject"]

    try:
        deadline = time.monotonic() + 60
        while not (first := told()) and time.monotonic() < deadline:
            assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    [between] = store.of_subject(name)
    here("erase", name, "--yes", "--grace", "1s", "--by", "otto")
    while len(both := told()) < 2 and time.monotonic() < deadline:
        pass

    assert first == [("erase", "anna")]
    assert between.state == "erasing"
    assert both == [("erase", "anna"), ("erase", "otto")]
    assert [key.state for key in store.of_subject(name)] == ["erased"]
