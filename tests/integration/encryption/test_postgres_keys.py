"""Keys of data subjects in a real PostgreSQL, which a user without rights runs."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter

from perdure import errors
from perdure.temporal.encryption import contexts, key_stores
from perdure.temporal.encryption.codec import Encryption
from perdure.temporal.encryption.data_keys import SubjectKeys
from perdure.temporal.encryption.rewrapping import rewrap
from perdure.temporal.encryption.vault import Vault
from perdure.temporal.payloads import decoded

from ...support.ports import free_port

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

MASTER = {"k1": os.urandom(32)}
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"canary"')


def _program(name: str) -> Path | None:
    """A program of PostgreSQL."""
    found = shutil.which(name)
    if found:
        return Path(found)
    return next(iter(sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)), None)


def _as_user(command: list[str]) -> list[str]:
    """A command as a user that PostgreSQL accepts, which root is not."""
    if os.getuid() != 0:
        return command
    return ["setpriv", "--reuid=nobody", f"--regid={_nobody().pw_gid}", "--clear-groups", *command]


def _nobody() -> pwd.struct_passwd:
    return pwd.getpwnam("nobody")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a database that is stopped at the end."""
    initdb, server = _program("initdb"), _program("postgres")
    if initdb is None or server is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path("/tmp") / f"perdure-pg-{os.getpid()}"
    folder.mkdir(mode=0o700)
    if os.getuid() == 0:
        os.chown(folder, _nobody().pw_uid, _nobody().pw_gid)
    data = folder / "data"
    subprocess.run(
        _as_user([str(initdb), "-D", str(data), "-U", "perdure", "--auth=trust", "-N"]),
        check=True,
        capture_output=True,
        cwd="/",
    )
    port = free_port()
    command = [str(server), "-D", str(data), "-p", str(port), "-c", "listen_addresses=127.0.0.1"]
    command += ["-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
    process = subprocess.Popen(
        _as_user(command), cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        url = f"postgresql://perdure@127.0.0.1:{port}/postgres"
        _until_up(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def _until_up(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


@pytest.fixture
def store(address: str, monkeypatch: pytest.MonkeyPatch) -> key_stores.KeyStore:
    """The store that the environment names."""
    monkeypatch.setenv(key_stores.VARIABLE, address)
    found = key_stores.from_environment()
    assert found is not None
    return found


def stored_by(address: str) -> bytes:
    """The files of the tables, once the database has written them."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        [[folder]] = connection.execute("SHOW data_directory").fetchall()
    return b"".join(path.read_bytes() for path in Path(folder, "base").rglob("*") if path.is_file())


@pytest.mark.accepts("G29")
async def test_machines_share_keys_in_postgresql(store: key_stores.KeyStore, address: str) -> None:
    """Many at once get one key; what one encrypts, others decrypt, until it is destroyed."""
    machines = [SubjectKeys(store, MASTER) for _ in range(8)]
    ids = set(await asyncio.gather(*(keys.id_for("customer-4711") for keys in machines)))
    [id] = ids
    codec = Encryption(MASTER, machines[0]).with_context(
        contexts.KeyedWorkflow("default", "turn", id)
    )
    [payload] = await codec.encode([PLAIN])
    reader = DataConverter(payload_codec=Encryption(MASTER, machines[1]))
    assert await decoded(reader, [payload]) == ["canary"]
    [before] = store.of_subject("customer-4711")
    with_key = stored_by(address)
    await machines[2].begin_erasure("customer-4711")
    with pytest.raises(errors.ErasedError):
        await machines[3].id_for("customer-4711")
    await machines[2].destroy("customer-4711")
    late = DataConverter(payload_codec=Encryption(MASTER, SubjectKeys(store, MASTER)))

    with pytest.raises(errors.ErasedError):
        await decoded(late, [payload])
    assert before.wrapped
    assert before.wrapped in with_key
    assert before.wrapped not in stored_by(address)
    [after] = store.of_subject("customer-4711")
    assert (after.id, after.wrapped, after.state) == (id, b"", "erased")


@pytest.mark.accepts("G29")
async def test_database_that_is_away_is_a_key_store_error_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the name of the database and its host."""
    monkeypatch.setenv(key_stores.VARIABLE, "postgresql://me:hunter2@127.0.0.1:1/keys")
    store = key_stores.from_environment()
    assert store is not None
    with pytest.raises(errors.KeyStoreError, match="the database 'keys' at ") as caught:
        await SubjectKeys(store, MASTER).check()

    assert "hunter2" not in str(caught.value)


@pytest.mark.accepts("G29")
def test_wrapping_is_replaced_in_postgresql(store: key_stores.KeyStore) -> None:
    """Only for a key that is not erased."""
    now = datetime.now(UTC)
    key = key_stores.StoredKey(
        id="data/1", subject="anna", master="k1", wrapped=b"1", created_at=now
    )
    assert store.add(key) == key
    store.wrap_again("data/1", "k2", b"2")
    assert store.get("data/1") is not None
    store.destroy("anna", now)
    store.wrap_again("data/1", "k3", b"3")
    after = store.get("data/1")

    assert after is not None
    assert (after.master, after.wrapped) == ("", b"")
    assert store.get("data/2") is None


@pytest.mark.accepts("G144")
async def test_machines_share_secrets_in_postgresql(
    store: key_stores.KeyStore, address: str
) -> None:
    """One of many that write at once does; and the erasure of the subject is the secret's end."""
    subject, name = "customer-0815", "tokens https://calendar.example.com/mcp"
    vaults = [Vault(SubjectKeys(store, MASTER)) for _ in range(8)]
    first = await asyncio.gather(*(each.write(subject, name, b"one", None) for each in vaults))
    [version] = filter(None, first)
    later = await asyncio.gather(*(each.write(subject, name, b"two", version) for each in vaults))
    found = await vaults[0].read(subject, name)
    others = await vaults[0].read("customer-4711", name)
    sealed = _sealed(store, subject, name)
    await SubjectKeys(store, MASTER).destroy(subject)
    written = await vaults[1].write(subject, name, b"three", next(filter(None, later)))

    assert len([*filter(None, later)]) == 1
    assert found is not None
    assert found.content == b"two"
    assert others is None
    assert written is None
    assert await vaults[2].read(subject, name) is None
    assert sealed not in stored_by(address)


def _sealed(store: key_stores.KeyStore, subject: str, name: str) -> bytes:
    assert isinstance(store, key_stores.SecretStore)
    stored = store.secret(subject, name)
    assert stored is not None
    return stored.sealed


@pytest.mark.accepts("G98")
async def test_all_keys_are_wrapped_with_another_key_in_postgresql(
    store: key_stores.KeyStore, address: str
) -> None:
    """Beside an erasure that goes on meanwhile."""
    old = SubjectKeys(store, MASTER)
    for number in range(20):
        await old.id_for(f"person-{number}")
    keys = SubjectKeys(store, {"k2": os.urandom(32), **MASTER})

    async def erase(number: int) -> None:
        await old.begin_erasure(f"person-{number}")
        await old.destroy(f"person-{number}")

    wrapping = asyncio.create_task(rewrap(keys))
    await asyncio.gather(wrapping, *map(erase, range(4)))
    receipt = wrapping.result()
    after = [store.of_subject(f"person-{number}")[0] for number in range(20)]

    assert receipt.unreadable == ()
    assert receipt.rewrapped >= 16
    assert {(key.state, key.master, key.wrapped) for key in after[:4]} == {("erased", "", b"")}
    assert {key.master for key in after[4:]} == {"k2"}
