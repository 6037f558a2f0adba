"""Turns, sessions, schedules and batches over HTTP: REST, and server-sent events.

`app` creates a Starlette application to mount or to serve; `perdure serve` serves it. It keeps no
state, so any process answers for any turn. It needs the extra `perdure[http]`.
"""

from perdure.clients.http.a2a.agents import A2AAgent, a2a_agents_from
from perdure.clients.http.application import app
from perdure.clients.http.auth import Auth, Caller, Permission, one_token, tokens_from
from perdure.clients.http.quotas import Quota

__all__ = [
    "A2AAgent",
    "Auth",
    "Caller",
    "Permission",
    "Quota",
    "a2a_agents_from",
    "app",
    "one_token",
    "tokens_from",
]
