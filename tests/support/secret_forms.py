"""The forms in which a secret could leak."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus


def encodings(secret: str) -> Iterator[bytes]:
    """A secret in all the forms in which it could be written."""
    spelled = "".join(f"\\u{ord(letter):04x}" for letter in secret)
    escaped = (json.dumps(secret)[1:-1], secret.replace("/", "\\/"), spelled)
    for text in (
        secret,
        quote(secret, safe=""),
        quote_plus(secret),
        *escaped,
        secret.encode().hex(),
    ):
        yield text.encode()
    for offset in range(3):  # base64 depends on the position in the text
        coded = base64.b64encode(b"x" * offset + secret.encode())[(0, 2, 3)[offset] :].rstrip(b"=")[
            :-1
        ]
        yield from (coded, coded.replace(b"+", b"-").replace(b"/", b"_"))
