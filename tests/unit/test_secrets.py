"""Secrets of the environment are removed from text from outside, in every encoding."""

import base64
import json
import time
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import pytest

from perdure.temporal import secrets

KEY = 'sk-canary/4f+9Q=zz 0123"45\\6789'


def written(secret: str) -> Iterator[str]:
    """A secret in the forms in which servers quote one."""
    escaped = json.dumps(secret)[1:-1]
    yield from (
        secret,
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        quote(quote(secret, safe=""), safe=""),
    )
    yield from (escaped, escaped.replace("/", "\\/"), json.dumps(escaped)[1:-1])
    yield "".join(f"\\u{ord(letter):04x}" for letter in secret)
    yield "".join(f"\\u{ord(letter):04X}" for letter in secret)
    yield "".join(f"%{ord(letter):02x}" for letter in secret)
    yield "".join(f"&#{ord(letter)};" for letter in secret)
    yield "".join(f"&#x{ord(letter):X};" for letter in secret)
    yield from (secret.encode().hex(), secret.encode().hex().upper())


def in_base64(secret: str) -> Iterator[str]:
    """The same in base64, alone and within other text, with and without padding."""
    for before in ("", "x", "me:", "Bearer "):
        for after in ("", "y", "yy"):
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                coded = encode((before + secret + after).encode()).decode()
                yield from (
                    coded,
                    coded.rstrip("="),
                    quote(coded, safe=""),
                    coded.replace("/", "\\/"),
                )


@pytest.mark.accepts("G1")
@pytest.mark.parametrize("form", [*written(KEY), *in_base64(KEY)])
def test_secret_is_cut_out_in_every_form(form: str) -> None:
    """In base64 the other text is kept, except for a character or two that share bits with the
    secret.
    """
    said = secrets.without(f"the key <{form}> is wrong", {"key": KEY})

    left = said.removeprefix("the key <").removesuffix("> is wrong").replace("[key]", "")
    assert "[key]" in said
    assert len(left) <= (0 if form in set(written(KEY)) else 22)


@pytest.mark.accepts("H131")
@pytest.mark.parametrize("gap", ["\n", " ", "\r\n    ", "\t", "\\n", "\\\\r\\\\n  "])
@pytest.mark.parametrize("every", [1, 3, 7])
def test_secret_with_white_space_in_it_is_cut_out(gap: str, every: int) -> None:
    """As a server that wraps lines echoes it, also in base64; the text around it is kept."""
    key = KEY.replace("\\", "")
    coded = base64.b64encode(f"me:{key}".encode()).decode()
    spaced = [
        gap.join(form[start : start + every] for start in range(0, len(form), every))
        for form in (key, coded)
    ]
    said = secrets.without(
        f"the key {spaced[0]} is wrong,\nand {spaced[0]} too", {"key": key, "other": "x" * 9}
    )
    encoded = secrets.without(f"the key <{spaced[1]}> is wrong", {"key": key})

    assert said == "the key [key] is wrong,\nand [key] too"
    assert "[key]" in encoded
    assert len(encoded) <= len("the key <[key]> is wrong") + 9 * (1 + len(gap))


def test_every_secret_is_named_and_other_text_is_left() -> None:
    """A short one is found only as a separate word; an empty one never."""
    named = {"TOKEN": "token-0123456789", "PIN": "4711", "EMPTY": ""}

    assert (
        secrets.without("Bearer token-0123456789, pin 4711 or NDcxMQ==", named)
        == "Bearer [TOKEN], pin [PIN] or NDcxMQ=="
    )
    assert secrets.without("token-012345678 is another", named) == "token-012345678 is another"


@pytest.mark.table(3)
@pytest.mark.parametrize(
    "piece", ["a", "\\", "%25", "%", "&#0", "sk-canary/4f+9", "\\\\s", "&#x0", "s k-", " "]
)
def test_looking_for_a_secret_takes_time_in_proportion(piece: str) -> None:
    """Text with many prefixes of the secret is scanned once."""

    def seconds(times: int) -> float:
        text, best = piece * times, 1e9
        for _ in range(3):
            began = time.process_time()
            secrets.without(text, {"key": KEY})
            best = min(best, time.process_time() - began)
        return best

    assert seconds(40_000) < 40 * seconds(4_000) + 0.5
