"""The keys of data subjects: their stores, how long they are used, and what is refused."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, WorkflowSerializationContext

from perdure import errors
from perdure.session.wire import SessionRequest
from perdure.temporal.data_converter import chosen
from perdure.temporal.encryption import contexts, key_stores
from perdure.temporal.encryption.codec import Encryption
from perdure.temporal.encryption.data_keys import KEPT, KEPT_WHILE_AWAY, SubjectKeys
from perdure.temporal.encryption.hiding import LABELS_VARIABLE, VARIABLE
from perdure.temporal.encryption.key_stores import KeyState, StoredKey
from perdure.temporal.encryption.keys import new_entry
from perdure.temporal.encryption.rewrapping import UnreadableKey, rewrap
from perdure.temporal.encryption.sqlite_keys import SqliteKeys
from perdure.temporal.payloads import decoded
from perdure.temporal.search_attributes import (
    LABELS,
    at_start,
    data_subject,
    data_subject_in,
    labels_of,
)
from perdure.temporal.start_request import turn_request

from ..support.clocks import Clock

MASTER = {"k1": os.urandom(32)}
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"canary"')


class Gone:
    """A store that stops to answer, and counts what it is asked."""

    name = "the store of the test"

    def __init__(self, store: SqliteKeys) -> None:
        self.store = store
        self.is_away = False
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        def ask(*values: Any) -> Any:
            self.asked += 1
            if self.is_away:
                raise OSError("no route to the database")
            return getattr(self.store, name)(*values)

        return ask


@pytest.fixture
def store(tmp_path: Path) -> SqliteKeys:
    """A store in a file of its own."""
    return SqliteKeys(str(tmp_path / "subjects.sqlite"))


def file_of(store: SqliteKeys) -> bytes:
    """The bytes of the file of a store."""
    return Path(store._path).read_bytes()


def mode_of(store: SqliteKeys) -> int:
    """Who may read the file of a store."""
    return Path(store._path).stat().st_mode


def names_beside(store: SqliteKeys) -> list[str]:
    """The files in the folder of a store."""
    return [path.name for path in Path(store._path).parent.iterdir()]


def of(workflow_id: str, data_key: str) -> contexts.KeyedWorkflow:
    """The context of a workflow whose key is known."""
    return contexts.KeyedWorkflow("default", workflow_id, data_key)


async def sealed(keys: SubjectKeys, workflow_id: str, subject: str) -> Payload:
    """A payload for a workflow of a subject."""
    codec = Encryption(MASTER, keys).with_context(of(workflow_id, await keys.id_for(subject)))
    [payload] = await codec.encode([PLAIN])
    return payload


@pytest.mark.accepts("G15")
async def test_subject_has_one_key_which_is_wrapped_in_the_store(store: SqliteKeys) -> None:
    """The same for every process; the file has it wrapped, and is readable by its owner only."""
    keys, other = SubjectKeys(store, MASTER), SubjectKeys(SqliteKeys(store._path), MASTER)
    first = await keys.id_for("customer-4711")
    payload = await sealed(other, "turn", "customer-4711")
    [stored] = store.of_subject("customer-4711")
    converter = DataConverter(payload_codec=Encryption(MASTER, keys))

    assert await other.id_for("customer-4711") == first
    assert await keys.id_for("customer-4712") != first
    assert payload.metadata["encryption-key-id"] == first.encode()
    assert await decoded(converter, [payload]) == ["canary"]
    assert "4711" not in first
    assert (stored.master, stored.state) == ("k1", KeyState.ACTIVE)
    assert MASTER["k1"] not in file_of(store)
    assert mode_of(store) & 0o077 == 0


@pytest.mark.accepts("G15")
async def test_key_that_is_destroyed_leaves_no_byte_in_the_file(store: SqliteKeys) -> None:
    """Nobody decrypts with it, also with the key of the environment; its id and times are kept."""
    keys = SubjectKeys(store, MASTER)
    payload = await sealed(keys, "turn", "customer-4711")
    [before] = store.of_subject("customer-4711")
    assert before.wrapped in file_of(store)
    await keys.begin_erasure("customer-4711")
    [after] = await keys.destroy("customer-4711")
    converter = DataConverter(payload_codec=Encryption(MASTER, SubjectKeys(store, MASTER)))
    with pytest.raises(errors.ErasedError, match="its data subject was erased on 20") as caught:
        await decoded(converter, [payload])

    assert before.wrapped not in file_of(store)
    assert names_beside(store) == ["subjects.sqlite"]
    assert after.erased_at is not None
    assert after == dataclasses.replace(
        before, master="", wrapped=b"", state=KeyState.ERASED, erased_at=after.erased_at
    )
    assert caught.value.context == {"key": before.id}
    assert isinstance(caught.value, errors.DecryptionError)


@pytest.mark.accepts("G16")
async def test_process_uses_a_key_for_a_minute_after_its_erasure(store: SqliteKeys) -> None:
    """Then it asks the store again; the erasure is final, and is not asked for any more."""
    clock, asking = Clock(), Gone(store)
    keys = SubjectKeys(asking, MASTER, clock)
    id = await keys.id_for("customer-4711")
    assert not isinstance(await keys.cipher(id), bytes)
    store.destroy("customer-4711", datetime.now(UTC))
    count = asking.asked
    clock.now += KEPT.total_seconds() - 1
    assert not isinstance(await keys.cipher(id), bytes)
    assert asking.asked == count
    clock.now += 2

    assert isinstance(await keys.cipher(id), bytes)
    asking.is_away = True
    clock.now += 10 * KEPT_WHILE_AWAY.total_seconds()
    assert isinstance(await keys.cipher(id), bytes)


@pytest.mark.accepts("G16")
async def test_keys_that_are_known_serve_on_while_the_store_is_away(store: SqliteKeys) -> None:
    """For a quarter of an hour; one that is not known is a `KeyStoreError` at once."""
    clock, asking = Clock(), Gone(store)
    keys = SubjectKeys(asking, MASTER, clock)
    known, unknown = await keys.id_for("known"), await keys.id_for("unknown")
    await keys.cipher(known)
    asking.is_away = True
    with pytest.raises(errors.KeyStoreError, match="the store of the test does not answer"):
        await keys.cipher(unknown)
    clock.now += KEPT_WHILE_AWAY.total_seconds() - 1
    assert not isinstance(await keys.cipher(known), bytes)
    asked = asking.asked
    assert not isinstance(await keys.cipher(known), bytes)
    assert asking.asked == asked, "the store is not asked for each payload"
    clock.now += 2
    with pytest.raises(errors.KeyStoreError, match="OSError: no route to the database"):
        await keys.cipher(known)
    with pytest.raises(errors.KeyStoreError):
        await keys.id_for("known")
    asking.is_away = False

    assert not isinstance(await keys.cipher(known), bytes)


@pytest.mark.accepts("G17")
async def test_erased_subject_returns_with_another_key_or_not_at_all(
    store: SqliteKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is being erased, nothing new of it is started."""
    keys = SubjectKeys(store, MASTER)
    first = await keys.id_for("customer-4711")
    await keys.begin_erasure("customer-4711")
    with pytest.raises(errors.ErasedError, match="is being erased"):
        await keys.id_for("customer-4711")
    await keys.destroy("customer-4711")
    monkeypatch.setenv(key_stores.REUSE_VARIABLE, "refuse")
    with pytest.raises(errors.ErasedError, match="PERDURE_ERASED_SUBJECTS=refuse"):
        await keys.id_for("customer-4711")
    monkeypatch.setenv(key_stores.REUSE_VARIABLE, "allow")
    second = await keys.id_for("customer-4711")

    assert second != first
    assert [key.state for key in store.of_subject("customer-4711")] == ["erased", "active"]


@pytest.mark.accepts("G17")
async def test_keys_are_wrapped_again_when_the_key_of_the_environment_changes(
    store: SqliteKeys,
) -> None:
    """With the next thing that is started; a process without the old key then reads it, too."""
    old, new = MASTER, {"k2": os.urandom(32)}
    payload = await sealed(SubjectKeys(store, old), "turn", "customer-4711")
    lacking = DataConverter(payload_codec=Encryption(new, SubjectKeys(store, new)))
    with pytest.raises(errors.DecryptionError, match="which this process cannot get") as caught:
        await decoded(lacking, [payload])
    await SubjectKeys(store, {**new, **old}).id_for("customer-4711")
    rotated = DataConverter(payload_codec=Encryption(new, SubjectKeys(store, new)))

    assert not isinstance(caught.value, errors.ErasedError)
    assert await decoded(rotated, [payload]) == ["canary"]


@pytest.mark.accepts("G17")
async def test_rows_of_two_subjects_cannot_be_exchanged(store: SqliteKeys) -> None:
    """A wrapped key is bound to its id and to its subject."""
    keys = SubjectKeys(store, MASTER)
    payload = await sealed(keys, "turn", "anna")
    other = await keys.id_for("berta")
    with sqlite3.connect(store._path) as connection:
        connection.execute(
            "UPDATE perdure_subject_keys SET wrapped = (SELECT wrapped FROM perdure_subject_keys"
            " WHERE id = ?) WHERE subject = 'anna'",
            (other,),
        )
    connection.close()
    converter = DataConverter(payload_codec=Encryption(MASTER, SubjectKeys(store, MASTER)))

    with pytest.raises(errors.DecryptionError, match="of a data subject"):
        await decoded(converter, [payload])


@pytest.mark.accepts("G18")
async def test_what_is_of_another_subject_is_refused_in_a_workflow(store: SqliteKeys) -> None:
    """Also if it was written for a workflow of the same id, as after an erasure."""
    keys = SubjectKeys(store, MASTER)
    moved = await sealed(keys, "turn", "anna")
    own = await keys.id_for("berta")
    elsewhere = WorkflowSerializationContext("default", "other")
    for context, words in (
        (of("turn", own), "which is not the key of the subject of its workflow"),
        (elsewhere, "was put into 'other'"),
    ):
        codec = Encryption(MASTER, keys).with_context(context)
        with pytest.raises(errors.DecryptionError, match=words):
            await decoded(DataConverter(payload_codec=codec), [moved])


@pytest.mark.accepts("G19")
@pytest.mark.parametrize(
    "subject", ["", " ", "a\nb", "a\0b", "a" * 129, " a", 7, "\u202eb", "\ud800"]
)
def test_subject_of_a_wrong_form_is_refused(subject: object) -> None:
    """Before anything is started."""
    with pytest.raises(errors.InvalidRequestError, match="subject must be one line"):
        turn_request("clerk", "go", subject=subject)  # type: ignore[arg-type]


@pytest.mark.accepts("G19")
@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({key_stores.VARIABLE: "x.sqlite"}, "is set without PERDURE_ENCRYPTION_KEYS"),
        ({key_stores.VARIABLE: " ", VARIABLE: "keys"}, "PERDURE_SUBJECT_KEYS is empty"),
        (
            {key_stores.VARIABLE: "x", key_stores.REUSE_VARIABLE: "perhaps", VARIABLE: "keys"},
            "PERDURE_ERASED_SUBJECTS must be one of allow, refuse, not 'perhaps'",
        ),
        (
            {key_stores.VARIABLE: "no_such_module:store", VARIABLE: "keys"},
            "the module 'no_such_module' of PERDURE_SUBJECT_KEYS cannot be imported",
        ),
    ],
    ids=["no keys", "empty", "odd switch", "no module"],
)
def test_set_up_that_cannot_be_meant_is_refused(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a `ConfigurationError` that names the variable."""
    monkeypatch.delenv(VARIABLE, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, new_entry("k1") if value == "keys" else value)

    with pytest.raises(errors.ConfigurationError, match=message):
        chosen()


@pytest.mark.accepts("G19")
def test_store_of_ones_own_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of a function."""
    monkeypatch.setenv(VARIABLE, new_entry("k1"))
    monkeypatch.setenv(key_stores.VARIABLE, f"{__name__}:own_store")
    codec = chosen().payload_codec

    assert isinstance(codec, Encryption)
    assert isinstance(codec.data_keys, SubjectKeys)
    assert codec.data_keys.store is OWN


OWN = SqliteKeys("unused")


def own_store() -> SqliteKeys:
    """A store that a user has made."""
    return OWN


@pytest.mark.accepts("G19")
async def test_file_that_cannot_be_opened_is_an_error_with_its_name(tmp_path: Path) -> None:
    """A folder, and a file in a folder that is not there."""
    for path in (tmp_path, tmp_path / "none" / "keys"):
        keys = SubjectKeys(SqliteKeys(str(path)), MASTER)
        with pytest.raises(errors.KeyStoreError, match=f"the file {path} does not answer"):
            await keys.check()


@pytest.mark.accepts("G28")
def test_subject_is_found_beside_labels_unless_they_are_kept_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is no label, whatever its name; a long one is shortened."""
    labels = {"region": "eu", "subject:anna": "x"}
    written = list(at_start("a", labels, subject="anna=1%"))
    [shown] = [pair.value for pair in written if pair.key == LABELS]
    assert shown == ["subject:anna%3d1%25".replace("%3d", "%3D"), "region=eu", "subject:anna=x"]
    assert data_subject_in(shown) == "anna=1%"
    assert labels_of(shown) == labels
    assert len(data_subject("ü" * 128).encode()) <= 255
    monkeypatch.setenv(LABELS_VARIABLE, "no")

    assert LABELS not in [pair.key for pair in at_start("a", labels, subject="anna")]


def test_sessions_take_a_subject() -> None:
    """And pass it on to their turns."""
    assert SessionRequest(agent="a", subject="anna").passed_on()["subject"] == "anna"


def test_stored_key_has_no_default_for_what_matters() -> None:
    """A store of one's own cannot forget a field."""
    required = {
        field.name
        for field in dataclasses.fields(StoredKey)
        if field.default is dataclasses.MISSING
    }

    assert required == {"id", "subject", "master", "wrapped", "created_at"}


@pytest.mark.accepts("G98")
async def test_all_keys_are_wrapped_with_the_first_key(store: SqliteKeys) -> None:
    """Whatever of its subject was started since; those whose old key is missing are named."""
    gone, old, new = ({name: os.urandom(32)} for name in ("k0", "k1", "k2"))
    await SubjectKeys(store, gone).id_for("late")
    payload = await sealed(SubjectKeys(store, old), "turn", "anna")
    ids = [await SubjectKeys(store, old).id_for(f"customer-{number}") for number in range(4)]
    await SubjectKeys(store, new).id_for("new")
    store.begin_erasure("customer-0")
    erased = SubjectKeys(store, old)
    await erased.begin_erasure("customer-1")
    await erased.destroy("customer-1")
    keys = SubjectKeys(store, {**new, **old})
    first, again = await rewrap(keys), await rewrap(keys)
    [late] = store.of_subject("late")
    unread = (UnreadableKey(subject="late", id=late.id, master="k0", why="missing"),)
    converter = DataConverter(payload_codec=Encryption(new, SubjectKeys(store, new)))

    assert (first.master, first.rewrapped, first.current, first.unreadable) == ("k2", 4, 1, unread)
    assert (again.rewrapped, again.current, again.unreadable) == (0, 5, unread)
    assert await decoded(converter, [payload]) == ["canary"]
    assert [store.get(id).state for id in ids[:2]] == ["erasing", "erased"]  # type: ignore[union-attr]


@pytest.mark.accepts("G98")
async def test_key_that_does_not_fit_is_named_and_kept(store: SqliteKeys) -> None:
    """Another key of the same name, also as the first; it is not taken for a current key."""
    await SubjectKeys(store, MASTER).id_for("anna")
    [before] = store.of_subject("anna")
    other = {"k1": os.urandom(32)}
    for masters in (other, {"k2": os.urandom(32), **other}):
        receipt = await rewrap(SubjectKeys(store, masters))
        assert [(key.subject, key.why) for key in receipt.unreadable] == [("anna", "wrong")]
        assert (receipt.rewrapped, receipt.current) == (0, 0)

    assert store.of_subject("anna") == [before]


@pytest.mark.accepts("G98")
async def test_keys_are_listed_page_by_page(store: SqliteKeys) -> None:
    """Each once, and those that are erased between two pages are not."""
    keys = SubjectKeys(SmallPages(store._path), MASTER)
    made = sorted([await keys.id_for(f"customer-{number}") for number in range(5)])
    listing = keys.in_use()
    found = [(await anext(listing)).id, (await anext(listing)).id]
    last = store.get(made[4])
    assert last is not None
    await keys.destroy(last.subject)

    assert [*found, *[key.id async for key in listing]] == made[:4]


class SmallPages(SqliteKeys):
    """A store that lists two keys at a time."""

    def in_use(self, after: str, limit: int) -> list[StoredKey]:
        return super().in_use(after, min(limit, 2))


@pytest.mark.accepts("G99")
async def test_key_that_is_erased_while_it_is_wrapped_stays_erased(store: SqliteKeys) -> None:
    """An erasure between the reading of a key and the writing of it."""
    old = SubjectKeys(store, MASTER)
    await old.id_for("anna")
    keys = SubjectKeys(store, {"k2": os.urandom(32), **MASTER})
    [read] = [key async for key in keys.in_use()]
    await old.destroy("anna")
    assert await keys.rewrap(read)
    [after] = store.of_subject("anna")

    assert (after.state, after.master, after.wrapped) == ("erased", "", b"")


@pytest.mark.accepts("G98")
async def test_store_of_ones_own_without_the_list_is_an_error(store: SqliteKeys) -> None:
    """It says which method is missing; all else works without it."""

    class Older:
        """A store that was written before there was the method."""

        name = "the vault"
        of_subject, add = store.of_subject, store.add

    keys = SubjectKeys(Older(), MASTER)  # type: ignore[arg-type]
    await keys.id_for("anna")
    with pytest.raises(errors.ConfigurationError, match=r"the vault cannot list .* `in_use\("):
        await rewrap(keys)
