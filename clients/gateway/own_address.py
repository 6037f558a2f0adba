"""The address of the gateway, as browsers know it."""

from __future__ import annotations

from starlette.requests import Request

from perdure.clients.gateway.problems import RefusedError
from perdure.text import is_loopback


def address_of(request: Request, url: str | None) -> str:
    """Return the address of the gateway; without `url`, that of this machine.

    Raises:
        RefusedError: It is not known.
    """
    if url is not None:
        return url
    if not is_loopback(request.url.hostname or ""):
        raise RefusedError(
            500,
            "ADDRESS_UNKNOWN",
            "the gateway does not know its address, where people come back to after a login; start"
            " it with --url https://…",
        )
    return str(request.base_url).rstrip("/")
