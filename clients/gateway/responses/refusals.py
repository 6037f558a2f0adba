"""Errors in the form of OpenAI's API, with Perdure's codes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from perdure.clients.gateway.problems import Invalid, Problem, RefusedError, problem_of
from perdure.text import one_line

_STATUS: Mapping[int, int] = {410: 400, 413: 400, 414: 400, 415: 400, 422: 400}
"""OpenAI's clients have a class for 400, and none for these."""
_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
_AGAIN = ("TOO_MANY_REQUESTS", "ISSUER_UNREACHABLE")
"""The codes of requests that were refused before anything was done, and may succeed later."""
_SHOWN = 200
_SUPPORTED = (
    "this gateway has responses, conversations, models and chat.completions below /openai/v1"
)
_REASONS: Mapping[str, str] = {
    "/files": "the gateway stores nothing; give a file in the input, as file_data or file_url",
    "/uploads": "the gateway stores nothing; give a file in the input, as file_data or file_url",
    "/items": "the items of a conversation are those of its responses; create a response",
    "/compact": "an agent shortens its messages by itself, before they are too long for its model",
    "/responses/": "a turn is in Temporal until its retention is over; cancel it to stop it",
    "/models/": "agents belong to their workers",
}
"""Why a path is not supported, by a part of it."""
_DIGITS = re.compile(r"\.(\d+)(?=\.|$)")


def refusal(error: Exception) -> Response:
    """Return the response to a request that failed.

    OpenAI's clients repeat a request after a conflict and after an error of the server. That could
    start a turn twice, so they are told not to, unless the request was refused for the moment.
    """
    problem, headers = problem_of(error)
    again = {"X-Should-Retry": "true" if problem.code in _AGAIN else "false"}
    content = {"error": _fields(problem)}
    return JSONResponse(content, _status(problem), {**(headers or {}), **again})


def error_of(error: Exception) -> Mapping[str, str | None]:
    """Return the fields of an error, as a stream has it."""
    return _fields(problem_of(error)[0])


def _status(problem: Problem) -> int:
    return _STATUS.get(problem.status, problem.status)


def _fields(problem: Problem) -> Mapping[str, str | None]:
    is_ours = _status(problem) >= HTTPStatus.INTERNAL_SERVER_ERROR
    otherwise = "server_error" if is_ours else "invalid_request_error"
    return {
        "message": problem.detail,
        "type": _TYPES.get(_status(problem), otherwise),
        "param": _parameter(problem.errors),
        "code": problem.code,
    }


def unsupported(
    request: Request, status: int = 404, headers: Mapping[str, str] | None = None
) -> RefusedError:
    """Return the error for a path or a method of OpenAI's API that the gateway does not have."""
    path = request.url.path
    reason = next((why for part, why in _REASONS.items() if part in path), _SUPPORTED)
    return RefusedError(
        status,
        "NOT_SUPPORTED",
        f"{request.method} {one_line(path, _SHOWN)} is not supported: {reason}",
        headers=headers,
    )


def bad(parameter: str, detail: str) -> RefusedError:
    """Return the error for a parameter that is not valid, such as `input[0].content`."""
    pointer = "#/" + re.sub(r"\[(\d+)\]", r"/\1", parameter).replace(".", "/")
    return RefusedError(
        422,
        "INVALID_REQUEST",
        f"{parameter}: {detail}",
        invalid=[Invalid(pointer=pointer, detail=detail)],
    )


def _parameter(invalid: tuple[Invalid, ...]) -> str | None:
    """Return the name of the first parameter that is not valid."""
    if not invalid or invalid[0].pointer == "#":
        return None
    dotted = invalid[0].pointer.removeprefix("#/").replace("/", ".")
    return _DIGITS.sub(r"[\1]", dotted)
