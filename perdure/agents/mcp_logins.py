"""The login of a person at an MCP server that acts for the person alone."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from perdure import errors, validation
from perdure.values.inquiries import LoginRequest

LOG_IN = "log_in"
"""The tool by which a model has a person log in, and the digest to which a turn is pinned."""
KEY = "perdure:log_in"
"""The key of the question that asks for a login. Servers have no such keys."""
PREFIX = "perdure:"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
DESCRIPTION = (
    "Ask the person for whom you work to log in at {server}. Its tools are offered to you after"
    " that. Call it when you need them."
)


def is_scope(text: str) -> bool:
    """Return whether a text is a scope (RFC 6749, 3.3) of a length that is asked for."""
    return _SCOPE.fullmatch(text) is not None


@dataclass(frozen=True, kw_only=True)
class MCPLogin:
    """How a person logs in at an MCP server: by OAuth, at the authorization server that it names.

    Attributes:
        scopes: What is asked for; empty for what the server says itself.
        client_id: The client as which the person logs in; empty for a client that Perdure registers
            there (RFC 7591).
        secret_env: The environment variable with the secret of that client, for the gateway and the
            workers; empty for a client without a secret.

    Raises:
        ConfigurationError: A value is not valid.
    """

    scopes: Collection[str] = ()
    client_id: str = ""
    secret_env: str = ""

    def __post_init__(self) -> None:
        fields = {"client_id": str, "secret_env": str}
        validation.check("MCP login", vars(self), fields)
        scopes = validation.listed("MCP login", "scopes", self.scopes, validation.Text)
        object.__setattr__(self, "scopes", tuple(scopes))
        for scope in self.scopes:
            if not is_scope(scope):
                raise errors.ConfigurationError(
                    f"MCP login: the scope {scope!r} has more than 200 characters, a space or a"
                    " character that scopes have not; give one scope an entry"
                )
        if self.secret_env and not self.client_id:
            raise errors.ConfigurationError("MCP login: secret_env is the secret of a client_id")
        if self.secret_env and not _VARIABLE.fullmatch(self.secret_env):
            raise errors.ConfigurationError(
                f"MCP login: secret_env={self.secret_env!r} is no name of an environment variable;"
                " it names the variable with the secret, and is not the secret"
            )

    def request(self, url: str, scopes: Collection[str] = ()) -> LoginRequest:
        """Return what a person is asked for, with further scopes that a server has demanded."""
        return LoginRequest(
            url=url,
            scopes=tuple(dict.fromkeys((*self.scopes, *scopes))),
            client_id=self.client_id,
            secret_env=self.secret_env,
        )
