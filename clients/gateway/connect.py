"""Logins of people at MCP servers, which turns wait for, in a browser.

Whoever may decide about a turn gets a link, and gives it to the data subject of the turn. The link
shows who gets access to what. The login itself begins with a click there, and ends in the same
browser, so that nobody can be sent into the login of another person's turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from urllib.parse import parse_qs, quote, urlsplit

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from perdure import errors, limits
from perdure.clients.gateway.operations import Gateway
from perdure.clients.gateway.own_address import address_of
from perdure.clients.gateway.problems import RefusedError, problem_of
from perdure.clients.gateway.static_page import NOT_STORED, card, root_of
from perdure.clients.logins import LoginLink
from perdure.temporal.acts.sources import through
from perdure.temporal.encryption import data_subjects
from perdure.text import is_loopback

_SHOW, _BEGIN, _CALLBACK = "/connect", "/connect/begin", "/connect/callback"
_SHOWN_COOKIE, _BEGUN_COOKIE = "perdure-connect-shown", "perdure-connect-begun"
_AT_ONCE = 20
"""The logins of a process for which authorization servers are asked at the same time."""
_PURPOSE = "link to a login"


def link_to(gateway: Gateway, request: Request, link: LoginLink) -> tuple[str, datetime]:
    """Return the address where the data subject of a turn logs in, and until when it is good.

    Raises:
        RefusedError: The gateway does not know its address.
        ConfigurationError: It has no keys of data subjects.
    """
    keys = data_subjects.keys_of(gateway.client.temporal)
    until = datetime.now(UTC) + limits.LOGIN_LINK
    ticket = keys.seal.close(_PURPOSE, link.model_dump(), limits.LOGIN_LINK)
    return f"{address_of(request, gateway.url)}{_SHOW}?ticket={ticket}", until


def routes(gateway: Gateway) -> list[Route]:
    """Return the routes for people who log in. They need no caller: the link is the permission."""
    pages = _Pages(gateway)
    return [
        Route(_SHOW, _shown(pages.show), methods=["GET"]),
        Route(_BEGIN, _shown(pages.begin), methods=["GET"]),
        Route(_CALLBACK, _shown(pages.complete), methods=["GET"]),
    ]


def _shown(
    answer: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint whose errors a person can read."""

    async def endpoint(request: Request) -> Response:
        try:
            response = await answer(request)
        except (RefusedError, errors.PerdureError) as error:
            problem, _ = problem_of(error)
            response = card(request, "Nobody is logged in", [problem.detail], problem.status)
        response.headers.update(NOT_STORED)
        return response

    return endpoint


class _Pages:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._exchanges = asyncio.Semaphore(_AT_ONCE)

    async def show(self, request: Request) -> Response:
        """Say who gets access to what, and ask the person."""
        text = request.query_params.get("ticket", "")
        link = self._link_of(text)
        lines = (
            f"The agent {link.agent} asks for access to {link.url} on behalf of {_name_of(link)}.",
            "Go on only if that is you, and you expect it.",
        )
        onward = f"{root_of(request)}{_BEGIN}?ticket={quote(text)}", "Go on"
        response = card(request, f"Log in at {link.server}", lines, link=onward)
        # strict: the next request has it only if it comes from this page
        _set(response, request, _SHOWN_COOKIE, text, "strict", limits.LOGIN_LINK.seconds)
        return response

    async def begin(self, request: Request) -> Response:
        """Send the person to the authorization server."""
        text = request.query_params.get("ticket", "")
        link = self._link_of(text)
        if not _has(request, _SHOWN_COOKIE, text):
            place = f"{root_of(request)}{_SHOW}?ticket={quote(text)}"
            return RedirectResponse(place, HTTPStatus.SEE_OTHER)
        redirect_uri = f"{address_of(request, self._gateway.url)}{_CALLBACK}"
        async with self._exchanges:
            address = await self._gateway.client.begin_login(link, redirect_uri)
        response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
        state = _state_in(address)
        # lax, because the authorization server sends the browser back here
        _set(response, request, _BEGUN_COOKIE, state, "lax", limits.HTTP_LOGIN.seconds)
        return response

    async def complete(self, request: Request) -> Response:
        """Keep the login of a person who has come back, and let the turns go on."""
        query: Mapping[str, str] = request.query_params
        if not _has(request, _BEGUN_COOKIE, query.get("state", "")):
            raise RefusedError(
                403,
                "FORBIDDEN",
                "this login was not begun in this browser, or too long ago; open the link again",
            )
        async with self._exchanges:
            with through("page"):
                link = await self._gateway.client.complete_login(query)
        response = card(
            request,
            "You are logged in",
            [f"The agent {link.agent} goes on, with access to {link.server}. Close this window."],
        )
        response.delete_cookie(_BEGUN_COOKIE, httponly=True)
        return response

    def _link_of(self, text: str) -> LoginLink:
        """Return what a link is about.

        Raises:
            RefusedError: The gateway has not made it, or too long ago.
        """
        keys = data_subjects.keys_of(self._gateway.client.temporal)
        with contextlib.suppress(ValidationError):
            return LoginLink.model_validate(keys.seal.open(_PURPOSE, text))
        raise RefusedError(
            410, "LINK_EXPIRED", "this link is not valid any more; ask for another one"
        )


def _name_of(link: LoginLink) -> str:
    """Return the name of the data subject without the tenant."""
    subject = link.subject
    return subject.partition("/")[2] if subject.startswith("@") else subject


def _state_in(address: str) -> str:
    return parse_qs(urlsplit(address).query)["state"][0]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _has(request: Request, cookie: str, text: str) -> bool:
    return hmac.compare_digest(request.cookies.get(cookie, "").encode(), _digest(text).encode())


def _set(
    response: Response, request: Request, cookie: str, text: str, same_site: str, seconds: int
) -> None:
    response.set_cookie(
        cookie,
        _digest(text),
        max_age=seconds,
        path=f"{root_of(request)}{_SHOW}",
        secure=not is_loopback(request.url.hostname or ""),
        httponly=True,
        samesite="strict" if same_site == "strict" else "lax",
    )
