"""What holds for every request: the length of its path, and the headers of its answer.

The headers keep it from caches and from the pages of other sites.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure import limits
from perdure.clients.gateway.problems import RefusedError, response_to


class ClosedUp:
    """An application whose answers have these headers, and whose paths are not too long.

    Routes are matched before the caller is known, which takes longer the more parts a path has.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Cache-Control", "no-store")
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
            await send(message)

        await self._app_for(scope)(scope, receive, sent)

    def _app_for(self, scope: Scope) -> ASGIApp:
        if len(scope.get("path", "")) <= limits.HTTP_PATH_CHARACTERS:
            return self._app
        detail = f"the path is longer than {limits.HTTP_PATH_CHARACTERS} characters"
        return response_to(RefusedError(414, "URI_TOO_LONG", detail))
