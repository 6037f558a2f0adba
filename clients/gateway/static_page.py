"""The page for people: static files that use the operations like any other client."""

from __future__ import annotations

import html
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
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
NOT_STORED = {**HEADERS, "Cache-Control": "no-store"}
"""For pages that are made for one person."""


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
    return RedirectResponse(f"{root_of(request)}/ui/")


def root_of(request: Request) -> str:
    """Return the path below which the gateway is mounted."""
    root: str = request.scope.get("root_path", "")
    return root


def card(
    request: Request,
    title: str,
    lines: Sequence[str],
    status: int = HTTPStatus.OK,
    link: tuple[str, str] | None = None,
) -> Response:
    """Return a page of a few lines, in the style of the page for people.

    Args:
        request: The request that it answers.
        title: Its title.
        lines: Its paragraphs.
        status: The status of the response.
        link: The address and the words of a link below them.
    """
    text = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    if link is not None:
        address, words = map(html.escape, link)
        text += f'<p><a class="button" href="{address}">{words}</a></p>'
    content = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="stylesheet" href="{html.escape(root_of(request))}/ui/page.css">'
        f'<main><div class="card narrow"><h1>{html.escape(title)}</h1>{text}</div></main></html>'
    )
    return HTMLResponse(content, status)
