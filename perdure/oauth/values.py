"""What is kept of a login: while a person is at the authorization server, and afterwards."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from perdure.base import Wire
from perdure.oauth.token_requests import ClientAuth


class _OfClient(Wire):
    """Where a client gets tokens, and as whom.

    Attributes:
        resource: What the tokens are for: the address of the MCP server, or one above it, as its
            metadata has it.
        issuer: The identifier of the authorization server.
        token_endpoint: Where it issues tokens.
        client_id: The id of the client there.
        client_secret: Its secret; None for a public client.
        client_auth: How it sends the secret.
    """

    resource: str
    issuer: str
    token_endpoint: str
    client_id: str
    client_secret: str | None = Field(default=None, repr=False)
    client_auth: ClientAuth = "none"


class BegunLogin(_OfClient):
    """A login that a person has not completed, with secrets.

    Attributes:
        state: What the redirect has to repeat.
        verifier: The proof that this process has begun it (PKCE).
        redirect_uri: Where the person comes back to.
        scopes: What was asked for.
        iss_required: Whether the redirect has to name the issuer (RFC 9207).
    """

    state: str = Field(repr=False)
    verifier: str = Field(repr=False)
    redirect_uri: str
    scopes: tuple[str, ...] = ()
    iss_required: bool = False


class Tokens(_OfClient):
    """The tokens of a person, with secrets.

    Attributes:
        access_token: What requests to the MCP server bring.
        refresh_token: What gets the next one; None if the person has to log in again.
        expires_at: When the access token ends, with the time zone; None if that is not known.
        scopes: What it is good for, as far as that is known.
    """

    access_token: str = Field(repr=False)
    refresh_token: str | None = Field(default=None, repr=False)
    expires_at: datetime | None = None
    scopes: tuple[str, ...] = ()
