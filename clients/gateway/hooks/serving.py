"""The route of a hook: a delivery is verified, and answered once what it starts is recorded."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from perdure import errors, limits
from perdure.clients.client import AgentClient
from perdure.clients.gateway.hooks.definitions import Hook
from perdure.clients.gateway.hooks.starting import HookStart
from perdure.clients.gateway.hooks.tally import HookTally
from perdure.clients.gateway.hooks.templates import Delivery
from perdure.clients.gateway.inputs import Bodies, check_media_type, document_of, kept
from perdure.clients.gateway.problems import RefusedError, response_to
from perdure.temporal.acts.sources import through

_NO_CONTENT = 204
_ACCEPTED = 202


class ServedHook:
    """A hook in a process, with what its deliveries share.

    Each hook has memory and places of its own, so that a flood of deliveries to one neither slows
    the others nor the callers of the gateway.

    Attributes:
        hook: The hook.
        tally: What became of its deliveries in this process.
    """

    def __init__(self, client: AgentClient, hook: Hook) -> None:
        self.hook = hook
        self.tally = HookTally(hook.name)
        self._client = client
        self._bodies = Bodies(limits.HOOK_BODIES_BYTES)
        self._starts = asyncio.Semaphore(limits.HOOK_STARTS)
        self._waiting = 0

    def route(self) -> Route:
        """Return the route."""
        path = self.hook.table.path
        return Route(path, self._endpoint, methods=["POST"], name=f"hook {path}")

    async def _endpoint(self, request: Request) -> Response:
        try:
            response = await self._answer(request)
        except Exception as error:  # noqa: BLE001 - every error is answered
            refusal = _for_sender(error)
            response = response_to(refusal)
            self.tally.refuse(response.status_code, str(refusal))
        else:
            self.tally.accept(has_started=response.status_code == _ACCEPTED)
        return response

    async def _answer(self, request: Request) -> Response:
        """Return the answer to a delivery.

        Raises:
            RefusedError: It is not verified, or does not fit the hook.
            PerdureError: It cannot be started.
            TimeoutError: It takes too long.
        """
        hook, headers = self.hook, dict(request.headers)
        claim = hook.scheme.claim(headers)
        claim.check_time(time.time(), hook.table.replay_window)
        check_media_type(request)
        async with kept(request, self._bodies) as body, self._bodies.turn_of(len(body)):
            claim.check_body(hook.keys, body)
            document = document_of(body)
        answer = hook.scheme.handshake(headers, document)
        if answer is not None:
            return JSONResponse(answer)
        delivery = Delivery(hook.delivery_id(headers, document), headers, document)
        if not hook.takes(delivery):
            return Response(status_code=_NO_CONTENT)
        return await self._started(HookStart.of(hook, delivery))

    async def _started(self, start: HookStart) -> Response:
        async with asyncio.timeout(limits.HOOK_ANSWER.total_seconds()), self._place():
            with through("hook"):
                started = await start.make(self._client)
        written = to_json(started, exclude_none=True)
        return Response(written, _ACCEPTED, media_type="application/json")

    @contextlib.asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Wait for one of the places of this hook, and hold it during the block.

        Raises:
            RefusedError: Too many deliveries wait.
        """
        if self._waiting >= limits.HOOK_WAITING:
            raise _later(f"{limits.HOOK_WAITING} deliveries of this hook wait")
        self._waiting += 1
        try:
            async with self._starts:
                yield
        finally:
            self._waiting -= 1


def _for_sender(error: Exception) -> Exception:
    """Return the error that a sender gets: one that passes asks it to send the delivery again."""
    match error:
        case TimeoutError():
            return _later("the delivery was not recorded in time")
        case errors.SessionBusyError() | errors.TooManyRequestsError():
            return _later(error.message)
        case _:
            return error


def _later(reason: str) -> RefusedError:
    return RefusedError(
        503,
        "TOO_MANY_REQUESTS",
        f"{reason}; send it again later",
        headers={"Retry-After": str(limits.HTTP_RETRY.seconds)},
    )
