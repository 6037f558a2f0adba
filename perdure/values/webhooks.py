"""The URL of a webhook, as callers give it.

What is checked here holds for every worker. Which hosts are allowed is a setting of the worker.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from perdure import limits
from perdure.text import is_loopback
from perdure.validation import Must

_WORDS = (
    f"an https URL of at most {limits.WEBHOOK_URL_CHARACTERS} ASCII characters, without a user and"
    " a password; http only for a loopback address"
)


def _checked(url: str) -> str:
    if not 0 < len(url) <= limits.WEBHOOK_URL_CHARACTERS or not _is_plain(url):
        raise ValueError(_WORDS)
    parts = urlsplit(url)
    _ = parts.port  # raises ValueError for a port that is none
    is_safe = parts.scheme == "https" or (
        parts.scheme == "http" and is_loopback(parts.hostname or "")
    )
    if not parts.hostname or not is_safe or "@" in parts.netloc:
        raise ValueError(_WORDS)
    return url


def _is_plain(url: str) -> bool:
    """Return whether every program reads the same host in a URL."""
    return all("!" <= letter <= "~" and letter not in '\\"<>^`{|}' for letter in url)


WebhookUrl = Annotated[str, AfterValidator(_checked), Must(_WORDS)]
"""The URL of a webhook as an argument or in JSON."""
