"""What `perdure rewrap` has done, as it prints it."""

from __future__ import annotations

import sys
from itertools import groupby

from perdure.clients.cli.drawing import json_lines
from perdure.clients.cli.drawing.screen import put
from perdure.temporal.encryption.rewrapping import RewrapReceipt, UnreadableKey
from perdure.text import counted, word

_NAMED = 10


def show(receipt: RewrapReceipt, *, as_json: bool) -> None:
    """Print what was done to the keys of a store."""
    if as_json:
        json_lines.tell(receipt)
        return
    put(
        f"{counted(receipt.rewrapped, 'key')} wrapped with {receipt.master!r} in"
        f" {receipt.key_store}; {receipt.current} had been before",
        sys.stdout,
    )
    ordered = sorted(receipt.unreadable, key=lambda key: (key.master, key.why, key.subject))
    for (master, why), keys in groupby(ordered, lambda key: (key.master, key.why)):
        put(_problem(master, why, list(keys)), sys.stdout)


def _problem(master: str, why: str, keys: list[UnreadableKey]) -> str:
    """Return why keys cannot be unwrapped, with the first of their subjects."""
    subjects = ", ".join(word(key.subject) for key in keys[:_NAMED])
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    reason = (
        f"this process has no key {master!r}"
        if why == "missing"
        else f"they do not fit the key {master!r} of this process, or were damaged"
    )
    return f"{counted(len(keys), 'key')} left as before, as {reason}: {subjects}{more}"
