"""Explains why a server cannot be reached, without quoting libraries.

Their messages may quote a header, and so a key.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

UNSENT = {"sent": False}
"""The error context if no server received the request, so that it does not count as a call."""

_DEPTH = 10


def reason(error: BaseException, base_url: str) -> str:
    """Return, for example, `the server at HOST cannot be reached: the connection was refused`."""
    return f"the server at {urlsplit(base_url).netloc} cannot be reached: {_why(error)}"


def _why(error: BaseException) -> str:
    for cause in _causes(error):
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused"
        if isinstance(cause, socket.gaierror):
            return "DNS does not resolve its name"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "TLS does not accept its certificate"
        if isinstance(cause, ssl.SSLError):
            return "TLS failed"
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno)
    return "no connection"


def _causes(error: BaseException) -> Iterator[BaseException]:
    waiting = [error]
    for _ in range(_DEPTH):
        if not waiting:
            return
        cause = waiting.pop(0)
        yield cause
        below = cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
        waiting += [
            following
            for following in (*below, cause.__cause__ or cause.__context__)
            if following is not None
        ]
