"""Reads secrets from the worker's environment, and removes them from text.

A value that is not valid in a header is rejected before any library can quote it in an exception. A
server that received a secret may quote it, literally or encoded; `without` is applied to its text
before it becomes an error, a result or a log line.
"""

from __future__ import annotations

import base64
import functools
import math
import os
import re
from collections.abc import Iterator, Mapping

from perdure import errors

_HEADER_SAFE = re.compile(r"[\x21-\x7e]+")
_WORDS = re.compile(r"[\x21-\x7e]+( [\x21-\x7e]+)*")
_LEAST_CHARACTERS = 4
_ENCODED_CHARACTERS = 8
_SOUNDS_SECRET = re.compile(r"key|token|secret|passw|credential|dsn|_url$", re.IGNORECASE)
_SPACE = re.compile(r"\s|\\{1,4}[nrt]")
"""White space, also as JSON writes it in a text."""
_read: set[str] = set()
"""The variables that this process has read as secrets."""


def read(name: str) -> str:
    """Return the environment variable `name`.

    Raises:
        ConfigurationError: It is not set, empty, or contains white space, a line break or a
            character outside ASCII. The value is never shown.
    """
    return _matching(name, _HEADER_SAFE, "a space, a line break or a character outside ASCII")


def read_words(name: str) -> str:
    """Return an environment variable that may have several words, separated by single spaces.

    Raises:
        ConfigurationError: It is not set, empty, or contains other white space, a line break or a
            character outside ASCII. The value is never shown.
    """
    return _matching(name, _WORDS, "a space too many, a line break or a character outside ASCII")


def _matching(name: str, pattern: re.Pattern[str], otherwise: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise errors.ConfigurationError(
            f"the environment variable {name} is not set; the worker needs it",
            context={"variable": name},
        )
    if not pattern.fullmatch(value):
        raise errors.ConfigurationError(
            f"the environment variable {name} holds {otherwise}; set it again without (a file read"
            " with $(cat …) often ends with a line break)",
            context={"variable": name},
        )
    _read.add(name)
    return value


def known() -> dict[str, str]:
    """Return the secrets of this process by variable, longest first, to keep them out of its log.

    They are the variables that were read here, and those whose names suggest a secret. Values that
    are short enough to be ordinary words are omitted.
    """
    by_variable = {
        name: value for name, value in os.environ.items() if len(value) >= _shortest(name)
    }
    return dict(sorted(by_variable.items(), key=lambda item: -len(item[1])))


def _shortest(name: str) -> float:
    """Return the minimum length from which the value of a variable counts as a secret."""
    if name in _read:
        return _LEAST_CHARACTERS
    return _ENCODED_CHARACTERS if _SOUNDS_SECRET.search(name) else math.inf


def without(text: str, named: Mapping[str, str]) -> str:
    """Return `text` with each secret replaced by its name in brackets, such as `[key]`.

    A secret is found literally, percent-encoded, escaped as in JSON or HTML, in hexadecimal digits
    and in base64, each also with white space in it, as of a line that was wrapped. A short secret
    is found only literally, as its encodings are too short to be distinguished from other text.
    """
    for name, secret in named.items():
        text = text.replace(secret, f"[{name}]") if secret else text
        if len(secret) >= _ENCODED_CHARACTERS:
            text = _pattern(secret).sub(f"[{name}]", text)
    return _without_spaced(text, named) if _SPACE.search(text) else text


def _without_spaced(text: str, named: Mapping[str, str]) -> str:
    """Return `text` without the secrets that have white space in them.

    They are looked for in the text without its white space, so that the cost stays linear.
    """
    bare = _SPACE.sub("", text)
    spans = [
        (*match.span(), name)
        for name, secret in named.items()
        if len(secret) >= _ENCODED_CHARACTERS
        for form in {secret, "".join(secret.split())}  # in base64 its own white space is not one
        for match in _pattern(form).finditer(bare)
    ]
    if not spans:
        return text
    gaps = {index for gap in _SPACE.finditer(text) for index in range(*gap.span())}
    places = [index for index in range(len(text)) if index not in gaps]
    parts, position = list[str](), 0
    for start, end, name in sorted(spans):
        if places[start] >= position:
            parts += [text[position : places[start]], f"[{name}]"]
        position = max(position, places[end - 1] + 1)
    return "".join([*parts, text[position:]])


@functools.lru_cache(maxsize=64)
def _pattern(secret: str) -> re.Pattern[str]:
    data = secret.encode("utf-8", "replace")
    hexadecimal = "".join(f"(?i:{digit})" if digit.isalpha() else digit for digit in data.hex())
    return re.compile("|".join([_spelled(secret), hexadecimal, *map(_spelled, _in_base64(data))]))


def _in_base64(data: bytes) -> Iterator[str]:
    """Yield base64 forms of the data that do not depend on what surrounds it.

    There is a form for each offset of the data.
    """
    for offset, first in enumerate((0, 2, 3)):
        yield base64.b64encode(bytes(offset) + data).decode().rstrip("=")[first:-1]


def _spelled(letters: str) -> str:
    """Return a pattern for these characters, each literal or escaped.

    Every repetition is bounded, so that matching stays linear.
    """
    return "".join(map(_spellings, letters))


def _spellings(letter: str) -> str:
    alike = {"+": "+-", "/": "/_", " ": " +"}.get(letter, letter)
    codes = "|".join(f"{ord(character):02x}" for character in alike)
    digits = "|".join(str(ord(character)) for character in alike)
    plain = rf"\\{{0,4}}[{re.escape(alike)}]"
    html = rf"&\#(?:0{{0,4}}(?:{digits})|[xX]0{{0,4}}(?i:{codes}));"
    return rf"(?:{plain}|(?i:%(?:25){{0,2}}(?:{codes})|\\{{1,4}}(?:u00|x)(?:{codes}))|{html})"
