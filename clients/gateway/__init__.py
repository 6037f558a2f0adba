"""Turns, sessions, schedules and batches over HTTP, as REST and in the protocols of others.

`app` creates a Starlette application to mount or to serve; `perdure serve` serves it. All that
lasts is in Temporal, so any process answers for any turn. It needs the extra `perdure[http]`. The
server of `perdure mcp`, in `mcp`, needs only `perdure[mcp]`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.clients.gateway.a2a.agents import A2AAgent, a2a_agents_from
    from perdure.clients.gateway.application import app
    from perdure.clients.gateway.auth import (
        Auth,
        Caller,
        one_token,
        quotas_from,
        tokens_from,
    )
    from perdure.clients.gateway.hooks.definitions import Hook, hooks_from
    from perdure.clients.gateway.oidc.claims import ClaimsTable, claims_from
    from perdure.clients.gateway.oidc.login import LoginClient
    from perdure.clients.gateway.oidc.provider import IdentityProvider
    from perdure.clients.gateway.permissions import ROLES, Permission
    from perdure.clients.gateway.quotas import Quota
    from perdure.clients.gateway.rates import Rate
else:
    from perdure import lazy_exports

    # late, because the MCP server below needs neither Starlette nor the extra `http`
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "perdure.clients.gateway.a2a.agents": ["A2AAgent", "a2a_agents_from"],
            "perdure.clients.gateway.application": ["app"],
            "perdure.clients.gateway.auth": [
                "Auth",
                "Caller",
                "one_token",
                "quotas_from",
                "tokens_from",
            ],
            "perdure.clients.gateway.hooks.definitions": ["Hook", "hooks_from"],
            "perdure.clients.gateway.oidc.claims": ["ClaimsTable", "claims_from"],
            "perdure.clients.gateway.oidc.login": ["LoginClient"],
            "perdure.clients.gateway.oidc.provider": ["IdentityProvider"],
            "perdure.clients.gateway.permissions": ["ROLES", "Permission"],
            "perdure.clients.gateway.quotas": ["Quota"],
            "perdure.clients.gateway.rates": ["Rate"],
        },
    )

__all__ = [
    "ROLES",
    "A2AAgent",
    "Auth",
    "Caller",
    "ClaimsTable",
    "Hook",
    "IdentityProvider",
    "LoginClient",
    "Permission",
    "Quota",
    "Rate",
    "a2a_agents_from",
    "app",
    "claims_from",
    "hooks_from",
    "one_token",
    "quotas_from",
    "tokens_from",
]
