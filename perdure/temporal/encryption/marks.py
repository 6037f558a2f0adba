"""What an encrypted payload says of itself: its key, its workflow, and why it was not decrypted.

Workflows read these marks, so nothing here decrypts.
"""

from __future__ import annotations

from temporalio.api.common.v1 import Payload

from perdure.text import one_line

ENCODING = b"binary/encrypted"
KEY = "encryption-key-id"
VERSION = "encryption-version"
WORKFLOW = "encryption-workflow"
PROBLEM = "encryption-problem"
"""The field of the note with the reason: one of those below."""
NO_KEY = b"no-key"
CHANGED = b"changed"
OTHER_WORKFLOW = b"other-workflow:"
_SHOWN = 120


def is_encrypted(payload: Payload) -> bool:
    """Return whether a payload is encrypted by this codec."""
    return payload.metadata.get("encoding") == ENCODING and VERSION in payload.metadata


def key_of(payload: Payload) -> str:
    """Return the name of the key of an encrypted payload."""
    return one_line(payload.metadata[KEY].decode(errors="replace"), _SHOWN)


def problem(payload: Payload) -> str:
    """Return why a payload that is encrypted was not decrypted."""
    key, noted = key_of(payload), payload.metadata.get(PROBLEM, b"")
    if noted == CHANGED:
        return (
            f"it does not fit the key {key!r}: it was changed or cut after it was encrypted, or"
            " this process has another key of that name"
        )
    if noted.startswith(OTHER_WORKFLOW):
        was_for, stands_in = payload.metadata[WORKFLOW], noted.removeprefix(OTHER_WORKFLOW)
        return (
            f"it was encrypted for {_id(was_for)}, and was put into {_id(stands_in)}; send it as"
            " what it is, from a process with the key"
        )
    return (
        f"it is encrypted with the key {key!r}, which this process does not have (add it to"
        " PERDURE_ENCRYPTION_KEYS)"
    )


def _id(workflow: bytes) -> str:
    return repr(one_line(workflow.decode(errors="replace"), _SHOWN))
