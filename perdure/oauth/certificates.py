"""The certificate authorities that HTTP clients trust."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def certificates() -> ssl.SSLContext:
    """Return the certificate authorities that httpx trusts, loaded once in a process.

    Loading takes about 30 ms of CPU.
    """
    return _loaded(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@functools.lru_cache(maxsize=1)
def _loaded(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Load the certificate authorities.

    httpx reads the two variables itself; they are parameters only so that a process that changes
    them gets the new certificates.
    """
    import httpx  # it takes time to import, and few processes need it

    return httpx.create_ssl_context()
