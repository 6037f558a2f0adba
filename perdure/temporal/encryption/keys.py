"""The keys of encryption, as the environment or a file names them.

No error quotes a key, or a part of the text that may be one.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
from pathlib import Path

from perdure import errors
from perdure.temporal.encryption.hiding import FILE_VARIABLE, VARIABLE

KEY_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME_RULE = "letters, digits, '.', '_' and '-', at most 64 characters"
_SEPARATORS = re.compile(r"[,\s]+")
_MOST_BYTES = 65_536


def from_environment() -> dict[str, bytes]:
    """Return the keys by their names, the one that encrypts first; empty without a variable.

    Raises:
        ConfigurationError: Both variables are set, the file cannot be read, or there is an entry
            that is not a key.
    """
    value, path = os.environ.get(VARIABLE), os.environ.get(FILE_VARIABLE)
    if value is not None and path is not None:
        raise errors.ConfigurationError(
            f"both {VARIABLE} and {FILE_VARIABLE} are set; set one of them"
        )
    if path is not None:
        return parsed(_text(path), f"{FILE_VARIABLE}={path}")
    return {} if value is None else parsed(value, VARIABLE)


def parsed(text: str, source: str) -> dict[str, bytes]:
    """Return the keys of `name:base64` entries, between which are commas, spaces or lines.

    A line that begins with `#` is a comment. `source` is what errors name.

    Raises:
        ConfigurationError: There is no key, two have one name, or an entry is not a key of 32
            bytes.
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    entries = [entry for entry in _SEPARATORS.split("\n".join(lines)) if entry]
    if not entries:
        raise errors.ConfigurationError(
            f"{source} has no key; make one with `perdure codec --new-key k1`, or unset it"
        )
    keys: dict[str, bytes] = {}
    for number, entry in enumerate(entries, start=1):
        name, key = _key(entry, f"entry {number} of {source}")
        if name in keys:
            raise errors.ConfigurationError(
                f"{source} has two keys of the name {name!r}; give each key a name of its own"
            )
        keys[name] = key
    return keys


def new_entry(name: str) -> str:
    """Return an entry with a new random key.

    Raises:
        InvalidRequestError: The name cannot be the name of a key.
    """
    if not _NAME.fullmatch(name):
        raise errors.InvalidRequestError(f"the name of a key has {_NAME_RULE}")
    return f"{name}:{base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"


def _key(entry: str, place: str) -> tuple[str, bytes]:
    name, colon, encoded = entry.partition(":")
    if not colon or not _NAME.fullmatch(name):
        raise errors.ConfigurationError(
            f"{place} is not name:key; the name has {_NAME_RULE}, the key is base64 (it is not"
            " shown)"
        )
    try:
        key = base64.b64decode(encoded.translate(str.maketrans("-_", "+/")), validate=True)
    except (binascii.Error, ValueError):
        key = None
    if key is None:  # raised here, so that the cause, which may quote the key, is not shown
        raise errors.ConfigurationError(f"the key {name!r} of {place} is not base64")
    if len(key) != KEY_BYTES:
        raise errors.ConfigurationError(
            f"the key {name!r} of {place} has {len(key)} bytes, and AES-256 needs {KEY_BYTES}; make"
            " one with `perdure codec --new-key k1`"
        )
    return name, key


def _text(path: str) -> str:
    try:
        data = Path(path).read_bytes()[: _MOST_BYTES + 1]
    except OSError as error:
        raise errors.ConfigurationError(
            f"{FILE_VARIABLE}={path} cannot be read: {error.strerror}"
        ) from None
    if len(data) > _MOST_BYTES:
        raise errors.ConfigurationError(f"{FILE_VARIABLE}={path} is too large to be a file of keys")
    try:
        return data.decode()
    except UnicodeDecodeError:
        problem = f"{FILE_VARIABLE}={path} is not a text in UTF-8"
    raise errors.ConfigurationError(problem)
