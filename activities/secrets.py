"""Secrets from the worker's environment. A value that could not be a header is refused before any library can quote it in an exception."""

from __future__ import annotations

import os
import re

from perdure import errors

_HEADER_SAFE = re.compile(r"[\x21-\x7e]+")
_WORDS = re.compile(r"[\x21-\x7e]+( [\x21-\x7e]+)*")


def read(name: str) -> str:
    """The environment variable `name`.

    Raises:
        ConfigurationError: It is not set, empty, or holds white space, a line break or a character outside ASCII. The value is never shown.
    """
    return _matching(name, _HEADER_SAFE, "a space, a line break or a character outside ASCII")


def read_words(name: str) -> str:
    """The same for a value that may be of several words, a space between.

    Raises:
        ConfigurationError: It is not set, empty, or holds other white space, a line break or a character outside ASCII. The value is never shown.
    """
    return _matching(name, _WORDS, "a space too many, a line break or a character outside ASCII")


def _matching(name: str, pattern: re.Pattern[str], otherwise: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise errors.ConfigurationError(f"the environment variable {name} is not set; the worker needs it", context={"variable": name})
    if not pattern.fullmatch(value):
        raise errors.ConfigurationError(
            f"the environment variable {name} holds {otherwise}; set it again without (a file read with $(cat …) often ends with a line break)",
            context={"variable": name},
        )
    return value
