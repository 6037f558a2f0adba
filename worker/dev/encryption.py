"""Encryption of `perdure dev --encrypt`: its key, and a codec server for the web UI."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from perdure import errors
from perdure.temporal import data_converter
from perdure.temporal.encryption import hiding
from perdure.temporal.encryption import keys as encryption_keys

KEYS = "encryption-keys"
_PORTS = range(8081, 8131)


def prepare(folder: Path) -> str | None:
    """Turn encryption on for this process and its children.

    Keys of the environment are taken. Otherwise a key is made once and kept beside the database.
    Returns the file with the keys; None for keys of the environment.

    Raises:
        ConfigurationError: The keys of the environment or of the file cannot be read.
    """
    if hiding.encrypts():
        encryption_keys.from_environment()
        return None
    file = folder.absolute() / KEYS
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as new:
            new.write(f"{encryption_keys.new_entry('dev')}\n")
    os.environ[hiding.FILE_VARIABLE] = str(file)
    encryption_keys.from_environment()
    return str(file)


@contextlib.asynccontextmanager
async def served(origins: set[str]) -> AsyncIterator[str]:
    """Serve a codec server on loopback during the block, and yield its address.

    `origins` are the addresses of the web UI, which may be added later.

    Raises:
        ConfigurationError: No port is free, or the package for HTTP is missing.
    """
    try:
        from perdure.clients.gateway import codec_server, serving
    except ImportError:
        raise errors.ConfigurationError(
            "perdure dev --encrypt needs more packages: pip install 'perdure[http]'"
        ) from None
    application = codec_server.codec_server(data_converter.chosen(), origins, None)
    async with serving.served(application, _PORTS) as url:
        yield url


def of_ui(ui: str | None) -> set[str]:
    """Return the origins of a web UI on loopback, under both of its names."""
    return {ui, ui.replace("127.0.0.1", "localhost")} if ui else set()
