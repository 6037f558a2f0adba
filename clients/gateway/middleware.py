"""What holds for every request: the length of its path, and the headers of its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure import limits
from perdure.clients.gateway.problems import RefusedError, response_to


class SecurityHeaders:
    """Adds headers to every answer that keep it from caches and from the pages of other sites."""

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

        await self._app(scope, receive, sent)


class PathLimit:
    """Refuses paths that are too long.

    Routes are matched before the caller is known, which takes longer the more parts a path has.

    Args:
        app: The application.
        refusals: For the beginnings of paths of other protocols, what returns their answer to an
            error.
    """

    def __init__(
        self, app: ASGIApp, refusals: Mapping[str, Callable[[Exception], ASGIApp]]
    ) -> None:
        self._app = app
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path = scope.get("path", "")
        if len(path) <= limits.HTTP_PATH_CHARACTERS:
            await self._app(scope, receive, send)
            return
        route = path.removeprefix(scope.get("root_path", ""))
        refusal = next(
            (refusal for base, refusal in self._refusals.items() if route.startswith(base)),
            response_to,
        )
        detail = f"the path is longer than {limits.HTTP_PATH_CHARACTERS} characters"
        await refusal(RefusedError(414, "URI_TOO_LONG", detail))(scope, receive, send)
