"""What the gateway says of itself and of the caller."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from importlib.metadata import version
from urllib.parse import quote, urlsplit

from perdure import errors
from perdure.base import Value
from perdure.clients.gateway.operations import Call, operation
from perdure.clients.gateway.permissions import Permission


class About(Value):
    """The gateway and the caller.

    Attributes:
        version: The version of Perdure.
        subject: The name of the caller, which is recorded with decisions.
        tenant: The tenant whose turns the caller sees; null if it sees everything.
        may: What the caller may do, sorted.
        temporal_ui: The address of the workflows in Temporal's web UI; `/` and the encoded id of a
            turn lead to the turn. Null if the gateway does not know it, and for a caller with a
            tenant, because the web UI shows all tenants.
        session_ends_at: When the session of a person who has logged in ends; null for a caller with
            a token.
    """

    version: str
    subject: str
    tenant: str | None = None
    may: tuple[Permission, ...]
    temporal_ui: str | None = None
    session_ends_at: datetime | None = None


def workflows_in(temporal_ui: str, namespace: str) -> str:
    """Return the address of the workflows of a namespace in Temporal's web UI.

    Raises:
        ConfigurationError: It is not an address of the web.
    """
    parts = urlsplit(temporal_ui)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise errors.ConfigurationError(
            f"the address of Temporal's web UI is {temporal_ui!r}; give one such as"
            " http://localhost:8233"
        )
    return f"{temporal_ui.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows"


@operation("GET", "/v1/about", may="read")
async def get_about(call: Call) -> About:
    """Return what the caller may do, and where Temporal's web UI is."""
    caller = call.caller
    return About(
        version=_version(),
        subject=caller.subject,
        tenant=caller.tenant,
        may=tuple(sorted(caller.may)),
        temporal_ui=call.gateway.temporal_ui if caller.tenant is None else None,
        session_ends_at=_moment(getattr(call.request.state, "session_ends_at", None)),
    )


@functools.cache
def _version() -> str:
    """Return the version of Perdure, which takes a millisecond to read."""
    return version("perdure")


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
