"""Secrets from the worker's environment. A value that could not be a header is refused before any library can quote it in an exception."""

from __future__ import annotations

import os
import re

from perdure import errors

_HEADER_SAFE = re.compile(r"[\x21-\x7e]+")


def read(name: str) -> str:
    """The environment variable `name`.

    Raises:
        ConfigurationError: It is not set, empty, or holds white space, a line break or a character outside ASCII. The value is never shown.
    """
    value = os.environ.get(name, "")
    if not value:
        raise errors.ConfigurationError(f"the environment variable {name} is not set; the worker needs it", context={"variable": name})
    if not _HEADER_SAFE.fullmatch(value):
        raise errors.ConfigurationError(
            f"the environment variable {name} holds a space, a line break or a character outside ASCII; set it again without "
            "(a file read with $(cat …) often ends with a line break)",
            context={"variable": name},
        )
    return value
