"""Keys of encryption, and the codec."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.converter import (
    ActivitySerializationContext,
    DataConverter,
    SerializationContext,
    WorkflowSerializationContext,
)

from perdure import errors
from perdure.temporal.data_converter import VARIABLE, chosen
from perdure.temporal.encryption import codec as encryption
from perdure.temporal.encryption.codec import Encryption
from perdure.temporal.encryption.hiding import FILE_VARIABLE
from perdure.temporal.encryption.hiding import VARIABLE as KEYS
from perdure.temporal.encryption.keys import from_environment, new_entry, parsed
from perdure.temporal.payloads import decoded, unpack
from perdure.turn.wire import Resume

K1, K2 = os.urandom(32), os.urandom(32)
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'{"by":"canary"}')
SHORT = base64.b64encode(b"planted-key-1234").decode()


def of(workflow_id: str) -> WorkflowSerializationContext:
    """The context of a workflow."""
    return WorkflowSerializationContext(namespace="default", workflow_id=workflow_id)


def entry(name: str, key: bytes) -> str:
    """A key as it is written."""
    return f"{name}:{base64.b64encode(key).decode()}"


async def through(
    codec: Encryption, payload: Payload, context: SerializationContext | None = None
) -> Payload:
    """A payload that is decrypted in a context."""
    codec = codec if context is None else codec.with_context(context)
    [one] = await codec.decode([payload])
    return one


@pytest.mark.accepts("G10")
def test_keys_are_read_from_a_variable_or_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first one encrypts, whatever stands between them; comments are allowed in a file."""
    file = tmp_path / "keys"
    file.write_text(f"# the newest first\n{entry('k2', K2)}\n{entry('k1', K1)}\n", encoding="utf-8")
    assert from_environment() == {} or KEYS in os.environ
    monkeypatch.setenv(KEYS, f"{entry('k2', K2)}, {entry('k1', K1)}")
    by_variable = from_environment()
    monkeypatch.delenv(KEYS)
    monkeypatch.setenv(FILE_VARIABLE, str(file))

    assert list(by_variable.items()) == [("k2", K2), ("k1", K1)]
    assert list(from_environment().items()) == [("k2", K2), ("k1", K1)]
    assert len(parsed(new_entry("k3"), "it")["k3"]) == 32


@pytest.mark.accepts("G10")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"k1:{SHORT}", "the key 'k1' of entry 1 of KEYS has 16 bytes, and AES-256 needs 32"),
        (f"{entry('k1', K1)},{entry('k1', K2)}", "KEYS has two keys of the name 'k1'"),
        (f"{entry('k1', K1)},{SHORT}", "entry 2 of KEYS is not name:key"),
        (f"a/b:{SHORT}", "entry 1 of KEYS is not name:key"),
        ("k1:planted-key-1234!", "the key 'k1' of entry 1 of KEYS is not base64"),
        (" , \n", "KEYS has no key"),
    ],
    ids=["short", "same name", "no name", "odd name", "no base64", "empty"],  # keys are random
)
def test_what_is_no_key_is_refused_without_showing_it(text: str, message: str) -> None:
    """The error says which entry it is."""
    with pytest.raises(errors.ConfigurationError) as caught:
        parsed(text, "KEYS")

    assert message in str(caught.value)
    assert not any(words in str(caught.value) for words in (SHORT, "planted-key"))
    assert caught.value.__cause__ is None


@pytest.mark.accepts("G10")
def test_keys_that_cannot_be_meant_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both variables, a file that is not there, keys beside another codec; an empty variable."""
    monkeypatch.delenv(KEYS, raising=False)
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(errors.ConfigurationError, match="cannot be read: No such file"):
        chosen()
    monkeypatch.setenv(KEYS, entry("k1", K1))
    with pytest.raises(errors.ConfigurationError, match=r"both \w+ and \w+ are set"):
        chosen()
    monkeypatch.delenv(FILE_VARIABLE)
    monkeypatch.setenv(VARIABLE, "tests.support.encrypting:converter")
    with pytest.raises(errors.ConfigurationError, match="has a codec, and PERDURE_ENCRYPTION_KEYS"):
        chosen()
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv(KEYS, "")
    with pytest.raises(errors.ConfigurationError, match="PERDURE_ENCRYPTION_KEYS has no key"):
        chosen()


@pytest.mark.accepts("G4", "G11")
async def test_payload_is_decrypted_for_its_workflow_and_its_schedule_only() -> None:
    """A turn, its activities, the web UI, and the turns of a schedule; no other turn."""
    codec = Encryption({"k1": K1})
    [sealed] = await codec.with_context(of("a")).encode([PLAIN])
    [planned] = await codec.with_context(of("s")).encode([PLAIN])
    activity = ActivitySerializationContext(
        namespace="default",
        activity_id="1",
        activity_type="t",
        activity_task_queue="q",
        workflow_id="a",
        workflow_type="w",
        is_local=False,
    )

    assert b"canary" not in sealed.SerializeToString()
    for context in (of("a"), activity, None):
        assert await through(codec, sealed, context) == PLAIN
    assert await through(codec, planned, of("s-2026-01-01T10:00:00Z")) == PLAIN
    for other in ("b", "a/1", "s", "a-2026-01-01T10:00:00Z-b"):
        with pytest.raises(
            errors.DecryptionError, match=f"encrypted for 'a', and was put into '{other}'"
        ):
            unpack(RawValue(await through(codec, sealed, of(other))), Resume)


@pytest.mark.accepts("G11")
@pytest.mark.parametrize("size", [10, 10_000])
async def test_what_was_changed_is_not_decrypted(size: int) -> None:
    """Cut, with another byte, another key id or another workflow; all are the same clear error."""
    codec = Encryption({"k1": K1, "k2": K2})
    plain = Payload(metadata={"encoding": b"json/plain"}, data=b'"' + b"x" * size + b'"')
    [sealed] = await codec.with_context(of("a")).encode([plain])
    changed = [
        Payload(metadata=dict(sealed.metadata), data=data)
        for data in (b"", sealed.data[:5], sealed.data[:-1], sealed.data[:-1] + b"\0")
        if data != sealed.data
    ]
    for name, value in (("encryption-key-id", b"k2"), ("encryption-workflow", b"b")):
        changed.append(Payload(metadata={**sealed.metadata, name: value}, data=sealed.data))

    for one in changed:
        with pytest.raises(errors.DecryptionError, match="it was changed or cut") as caught:
            unpack(RawValue(await through(codec, one)), Resume)
        assert caught.value.code == "DECRYPTION"
    assert await through(codec, sealed, of("a")) == plain


@pytest.mark.accepts("G11")
async def test_missing_key_is_named() -> None:
    """With other keys and without any; also where Temporal's converter raises first."""
    [sealed] = await Encryption({"k1": K1}).encode([PLAIN])
    other = DataConverter(payload_codec=Encryption({"k2": K2}))
    for converter in (other, DataConverter.default):
        with pytest.raises(errors.DecryptionError, match="encrypted with the key 'k1'") as caught:
            await decoded(converter, [sealed])
        assert caught.value.context == {"key": "k1"}
    wrong = DataConverter(payload_codec=Encryption({"k1": K2}))
    with pytest.raises(errors.DecryptionError, match="another key of that name"):
        await decoded(wrong, [sealed])


async def test_large_payloads_are_compressed_and_leave_the_event_loop() -> None:
    """Half a megabyte of text."""
    codec = Encryption({"k1": K1})
    plain = Payload(metadata={"encoding": b"json/plain"}, data=b"abcdefgh" * 65_536)
    [sealed] = await codec.encode([plain])

    assert len(sealed.data) < 10_000
    assert await through(codec, sealed) == plain


@pytest.mark.accepts("G10")
def test_text_beside_payloads_is_hidden() -> None:
    """It is read with the key; without it, it says which one is missing."""
    codec = Encryption({"k1": K1})
    hidden = encryption.hidden("because canary", codec)

    assert "canary" not in hidden
    assert encryption.revealed(hidden, codec) == "because canary"
    assert encryption.revealed(hidden, None) == "(encrypted with the key 'k1')"
    assert encryption.revealed(hidden[:-9], codec) == "(encrypted with the key 'k1')"
    assert encryption.revealed("plain", codec) == encryption.hidden("plain", None) == "plain"
    assert encryption.hidden("", codec) == ""
