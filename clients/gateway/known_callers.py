"""Who may call, as the options and the environment of `perdure serve` say."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perdure import errors
from perdure.clients.gateway.auth import Auth, nobody, one_token, quotas_from, tokens_from
from perdure.clients.gateway.quotas import Quota
from perdure.temporal import secrets as environment

if TYPE_CHECKING:
    from perdure.clients.gateway.oidc.provider import IdentityProvider

_VARIABLE = "PERDURE_TOKEN"
_OF_CLIENT = "PERDURE_OIDC_SECRET"
_OF_COOKIES = "PERDURE_COOKIE_KEY"


def own_token() -> tuple[str, str]:
    """Return the token of a gateway without a file of tokens, and the end of its page's address.

    The token is that of `PERDURE_TOKEN`, or else a random one. Only a random one is in the address,
    as a fragment, which browsers do not send. The variable is removed, so that no tool of this
    process acts with it.
    """
    token = os.environ.pop(_VARIABLE, "")
    made = token or secrets.token_urlsafe()
    return made, "" if token else f"#token={made}"


def callers(
    tokens_file: Path | None, identity: IdentityProvider | None
) -> tuple[Auth, str, Mapping[str, Quota] | None]:
    """Return who is known besides the callers of an identity provider.

    Returns:
        The function that knows them, the end of the page's address, and the numbers of the tenants
        that there are; None where others may come.

    Raises:
        ConfigurationError: The file of tokens or the token of the environment is not valid.
    """
    if tokens_file is not None:
        known, quotas = tokens_from(tokens_file), quotas_from(tokens_file)
        return known, "", quotas if identity is None else identity.table.tenants_with(quotas)
    if identity is not None and not os.environ.get(_VARIABLE):
        return nobody, "", identity.table.tenants_with({})
    token, fragment = own_token()
    return one_token(token), fragment, None


def provider(
    issuer: str | None,
    audiences: Sequence[str],
    claims_file: Path | None,
    client_id: str | None,
    url: str | None,
) -> IdentityProvider | None:
    """Return the identity provider of `perdure serve --oidc`; None without one.

    The secret of the client is in `PERDURE_OIDC_SECRET`, and the key of sessions in
    `PERDURE_COOKIE_KEY`. The variables are removed, so that no tool of this process acts with them.

    Raises:
        ConfigurationError: Something is missing, or not valid.
    """
    if issuer is None:
        if audiences or claims_file is not None or client_id is not None:
            raise errors.ConfigurationError(
                "--audience, --claims and --client-id are about an identity provider; name it with"
                " --oidc"
            )
        return None
    try:
        from perdure.clients.gateway.oidc.claims import claims_from
        from perdure.clients.gateway.oidc.login import LoginClient
        from perdure.clients.gateway.oidc.provider import IdentityProvider
    except ImportError:
        raise errors.ConfigurationError(
            "perdure serve --oidc needs more packages: pip install 'perdure[http]'"
        ) from None
    return IdentityProvider(
        issuer,
        audiences,
        table=None if claims_file is None else claims_from(claims_file),
        client=None
        if client_id is None
        else LoginClient(client_id, _taken(_OF_CLIENT), _taken(_OF_COOKIES)),
        url=url,
    )


def _taken(name: str) -> str | None:
    """Return a secret of the environment, and remove it there; None if it is not set.

    Raises:
        ConfigurationError: It has a space or a line break.
    """
    if not os.environ.get(name):
        return None
    value = environment.read(name)
    del os.environ[name]
    return value
