"""Errors as problem details (RFC 9457), with the codes of `perdure.errors`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import JsonValue
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from perdure import errors
from perdure.base import Value

logger = logging.getLogger("perdure")

MEDIA_TYPE = "application/problem+json"
STATUS: Mapping[type[errors.PerdureError], int] = {
    errors.InvalidRequestError: 422,
    errors.StaleCursorError: 410,
    errors.ErasedError: 410,
    errors.TurnOverError: 409,
    errors.UnknownAgentError: 422,
    errors.TooLargeError: 413,
    errors.TurnNotFoundError: 404,
    errors.SessionNotFoundError: 404,
    errors.ScheduleNotFoundError: 404,
    errors.BatchNotFoundError: 404,
    errors.TurnExistsError: 409,
    errors.TurnConflictError: 409,
    errors.TurnBudgetExceededError: 409,
    errors.ApprovalConflictError: 409,
    errors.CallFinishedError: 409,
    errors.SessionClosedError: 409,
    errors.SessionBusyError: 409,
    errors.ScheduleConflictError: 409,
    errors.ScheduleBusyError: 409,
    errors.BatchConflictError: 409,
    errors.TaskNotStartedError: 409,
    errors.TooManyRequestsError: 429,
    errors.LoginError: 502,
    errors.KeyStoreError: 503,
    errors.ServerUnreachableError: 503,
}
"""The status of an error that the caller can do something about. All others are 500."""
_LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_CODES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}


class Invalid(Value):
    """A part of a body that is not valid: a JSON pointer to it, and what is wrong."""

    pointer: str
    detail: str


class Problem(Value):
    """An error.

    Attributes:
        type: A URN that ends in the code.
        title: The status in words.
        status: The HTTP status.
        code: The stable code of the error, such as `TURN_NOT_FOUND`.
        detail: What happened, to what, and what to do.
        errors: The parts of the body or of the query that are not valid; otherwise empty.
    """

    type: str
    title: str
    status: int
    code: str
    detail: str
    errors: tuple[Invalid, ...] = ()


class RefusedError(Exception):
    """The HTTP request is refused, before Perdure is asked."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        invalid: Sequence[Invalid] = (),
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.headers, self.invalid = headers, tuple(invalid)


def response_to(error: Exception) -> Response:
    """Return the response to a request that failed."""
    return _response(*problem_of(error))


def problem_of(error: Exception) -> tuple[Problem, Mapping[str, str] | None]:
    """Return the problem of a request that failed, and the headers of the response.

    An error that only the operator can fix goes to the log, and the caller gets its code.
    """
    match error:
        case RefusedError():
            problem = _problem(error.status, error.code, error.detail, error.invalid)
            return problem, error.headers
        case errors.PerdureError() if (status := _status_of(error)) is not None:
            headers = {"Retry-After": "1"} if status in _LATER else None
            return _problem(status, error.code, error.message), headers
        case errors.PerdureError():
            logger.error("a request over HTTP failed: %s: %s", error.code, error.message)
            return _problem(500, error.code, "the log of the server has the reason"), None
        case TimeoutError():
            detail = "the request took too long; it may still take effect"
            return _problem(504, "TIMEOUT", detail), None
        case _:
            logger.error("a request over HTTP failed", exc_info=error)
            return _problem(500, "INTERNAL", "the log of the server has the reason"), None


async def of_http(_: Request, error: Exception) -> Response:
    """Return the response to a request that no route takes."""
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, HTTPStatus(error.status_code).name)
    return _response(_problem(error.status_code, code, str(error.detail)), error.headers)


def _status_of(error: errors.PerdureError) -> int | None:
    return next((STATUS[cls] for cls in type(error).__mro__ if cls in STATUS), None)


def _problem(status: int, code: str, detail: str, invalid: tuple[Invalid, ...] = ()) -> Problem:
    return Problem(
        type=f"urn:perdure:problem:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=detail,
        errors=invalid,
    )


def _response(problem: Problem, headers: Mapping[str, str] | None) -> Response:
    fields: dict[str, JsonValue | Any] = problem.model_dump(mode="json", exclude_defaults=True)
    return JSONResponse(fields, problem.status, headers, MEDIA_TYPE)
