"""The ids of what callers create."""

from __future__ import annotations

import secrets

from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.inputs import key_of
from perdure.clients.gateway.operations import Call
from perdure.clients.gateway.problems import RefusedError
from perdure.turn import call_tokens

RESERVED = frozenset(
    {
        *("effects", "events", "input_items", "items", "messages", "result", "results", "turns"),
        "webhooks",
    }
)
"""The ends of paths below a resource. An id with such an end could not be told from them."""
_BEFORE_THE_LAST = ("items", "messages")
"""A path below a session ends in `/messages/ID`, and below a conversation in `/items/ID`."""


def new_id(call: Call, own_id: str | None, agent: str) -> str | None:
    """Return the complete id of a resource that a request creates.

    It is the one in the body, or the idempotency key. Without both, it is a random one that begins
    with `agent`; None for a caller without a tenant, for whom the client makes one.

    Raises:
        RefusedError: The id is not valid, or the idempotency key is another one.
    """
    key = key_of(call.request)
    if own_id is not None and key is not None and own_id != key:
        raise RefusedError(
            422, "INVALID_REQUEST", "the id in the body differs from the Idempotency-Key; give one"
        )
    chosen = own_id if own_id is not None else key
    if chosen is not None:
        return checked(call, chosen)
    return random_id(call.caller, agent)


def random_id(caller: Caller, agent: str) -> str | None:
    """Return a random id that begins with `agent`; None for a caller without a tenant."""
    return f"{caller.prefix}{agent}/{secrets.token_hex(6)}" if caller.prefix else None


def checked(call: Call, own_id: str) -> str:
    """Return the complete id for one that the caller of a request has chosen.

    Raises:
        RefusedError: It is not valid over HTTP.
    """
    return chosen_id(call.caller, own_id)


def check_token(caller: Caller, token: str) -> None:
    """Refuse the token of a call of another tenant, as one that there is not.

    Raises:
        InvalidRequestError: It is that, or no token.
    """
    if not call_tokens.parse(token).turn_id.startswith(caller.prefix):
        raise call_tokens.not_open()


def chosen_id(caller: Caller, own_id: str) -> str:
    """Return the complete id for one that a caller has chosen.

    Raises:
        RefusedError: It is not valid over HTTP.
    """
    complete = caller.own(own_id)
    within_tenant = complete.removeprefix(caller.prefix)
    before, _, last = within_tenant.rpartition("/")
    if not within_tenant or last in RESERVED or before.rpartition("/")[2] in _BEFORE_THE_LAST:
        ends = ", ".join(sorted(RESERVED))
        raise RefusedError(
            422,
            "INVALID_REQUEST",
            f"an id is not empty, its last part is none of {ends}, and the one before it is"
            f" neither of {', '.join(_BEFORE_THE_LAST)}",
        )
    return complete
