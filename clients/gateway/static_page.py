"""The page for people: static files that use the operations like any other client."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = Path(__file__).parent / "page"
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    ]
)
"""The page loads nothing from elsewhere and no image, and runs no script in a text."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # a browser asks whether a file has changed
}


class _Files(StaticFiles):
    """The files of the page, with the headers that protect it."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file, or raise 404."""
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


def routes() -> list[BaseRoute]:
    """Return the routes of the page: `/ui/`, and redirects to it."""
    return [
        Route("/", _to_the_page, name="start"),
        Route("/ui", _to_the_page, name="ui"),
        Mount("/ui", _Files(directory=FOLDER, html=True), name="page"),
    ]


async def _to_the_page(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/ui/")
