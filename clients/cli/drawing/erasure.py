"""The receipt of an erasure as `perdure erase` prints it."""

from __future__ import annotations

import sys

from perdure.clients.cli.drawing import json_lines
from perdure.clients.cli.drawing.screen import put
from perdure.clients.erasing.receipts import ErasureReceipt
from perdure.text import counted, word


def show(receipt: ErasureReceipt, *, as_json: bool) -> None:
    """Print the receipt of an erasure."""
    if as_json:
        json_lines.tell(receipt)
        return
    again = ", which was done before" if receipt.again else ""
    keys = counted(len(receipt.keys), "key")
    put(
        f"{word(receipt.subject)} is erased since {receipt.erased_at.isoformat(timespec='seconds')}"
        f"{again}: {keys} destroyed in {receipt.key_store}",
        sys.stdout,
    )
    for work in receipt.ended:
        put(f"{work.how}: {work.type} {word(work.id)}", sys.stdout)
    for place in receipt.places:
        count = "" if place.count is None else f" ({place.count})"
        put(f"{place.place}{count}: {place.what}", sys.stdout)
