"""What an encrypted payload says of itself: its key, its workflow, and why it was not decrypted.

Workflows read these marks, so nothing here decrypts.
"""

from __future__ import annotations

from temporalio.api.common.v1 import Payload

from perdure import errors
from perdure.text import one_line

ENCODING = b"binary/encrypted"
KEY = "encryption-key-id"
VERSION = "encryption-version"
WORKFLOW = "encryption-workflow"
DATA_KEY = "perdure-data-key"
"""The field of a decrypted payload that names the key of its data subject."""
PROBLEM = "encryption-problem"
"""The field of the note with the reason: one of those below."""
NO_KEY = b"no-key"
CHANGED = b"changed"
OTHER_SUBJECT = b"other-subject"
OTHER_WORKFLOW = b"other-workflow:"
ERASED = b"erased:"
"""With the time of the erasure after it."""
OF_SUBJECT = "data/"
"""The beginning of the ids of data keys. No key of the environment has such a name."""
_SHOWN = 120


def is_encrypted(payload: Payload) -> bool:
    """Return whether a payload is encrypted by this codec."""
    return payload.metadata.get("encoding") == ENCODING and VERSION in payload.metadata


def key_of(payload: Payload) -> str:
    """Return the name of the key of an encrypted payload."""
    return one_line(payload.metadata[KEY].decode(errors="replace"), _SHOWN)


def is_of_subject(key: str) -> bool:
    """Return whether a key is that of a data subject."""
    return key.startswith(OF_SUBJECT)


def data_key_of(payload: Payload) -> str:
    """Return the data key of a payload, encrypted or decrypted; empty if it is of no subject."""
    if DATA_KEY in payload.metadata:
        return payload.metadata[DATA_KEY].decode()
    name = key_of(payload) if is_encrypted(payload) else ""
    return name if is_of_subject(name) else ""


def unreadable(payload: Payload, what: str) -> errors.DecryptionError:
    """Return the error for a payload that was not decrypted; `what` is what cannot be read."""
    is_erased = payload.metadata.get(PROBLEM, b"").startswith(ERASED)
    error = errors.ErasedError if is_erased else errors.DecryptionError
    return error(f"{what} cannot be read: {problem(payload)}", context={"key": key_of(payload)})


def problem(payload: Payload) -> str:
    """Return why a payload that is encrypted was not decrypted."""
    key, noted = key_of(payload), payload.metadata.get(PROBLEM, b"")
    if noted.startswith(ERASED):
        at = one_line(noted.removeprefix(ERASED).decode(errors="replace"), _SHOWN)
        return f"its data subject was erased on {at}, and the key {key!r} destroyed"
    if noted == CHANGED:
        return (
            f"it does not fit the key {key!r}: it was changed or cut after it was encrypted, or"
            " this process has another key of that name"
        )
    if noted == OTHER_SUBJECT:
        return f"it is encrypted with {key!r}, which is not the key of the subject of its workflow"
    if noted.startswith(OTHER_WORKFLOW):
        was_for, stands_in = payload.metadata[WORKFLOW], noted.removeprefix(OTHER_WORKFLOW)
        return (
            f"it was encrypted for {_id(was_for)}, and was put into {_id(stands_in)}; send it as"
            " what it is, from a process with the key"
        )
    if is_of_subject(key):
        return (
            f"it is encrypted with the key {key!r} of a data subject, which this process cannot"
            " get (give it the PERDURE_SUBJECT_KEYS and PERDURE_ENCRYPTION_KEYS of the process"
            " that has started it)"
        )
    return (
        f"it is encrypted with the key {key!r}, which this process does not have (add it to"
        " PERDURE_ENCRYPTION_KEYS)"
    )


def _id(workflow: bytes) -> str:
    return repr(one_line(workflow.decode(errors="replace"), _SHOWN))
