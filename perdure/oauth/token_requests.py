"""What logins have in common: the proof of who began one, and how a client says who it is."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

ClientAuth = Literal["none", "client_secret_post", "client_secret_basic"]
"""How a client says who it is: with its id alone, or with its secret in the body or a header."""


def challenge_of(verifier: str) -> str:
    """Return what proves a verifier that is sent later (PKCE, S256; RFC 7636)."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def secret_auth(supported: Any) -> ClientAuth:
    """Return how a client sends its secret.

    Args:
        supported: The `token_endpoint_auth_methods_supported` of the server's metadata; without
            them it is the header (RFC 8414).
    """
    in_body = isinstance(supported, list) and "client_secret_basic" not in supported
    return "client_secret_post" if in_body else "client_secret_basic"


def with_client(
    data: Mapping[str, str], client_id: str, secret: str | None, auth: ClientAuth
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the form and the headers of a request of a client (RFC 6749, 2.3.1)."""
    if secret is None or auth == "none":
        return {**data, "client_id": client_id}, {}
    if auth == "client_secret_post":
        return {**data, "client_id": client_id, "client_secret": secret}, {}
    pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
    encoded = base64.b64encode(pair.encode()).decode()
    return dict(data), {"Authorization": f"Basic {encoded}"}
