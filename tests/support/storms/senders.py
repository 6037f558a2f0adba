"""People and services that send events, answers and results again and again until one is
acknowledged, each over a way of its own, and record what became of each attempt.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import httpx

from perdure import errors
from perdure.clients import AgentClient

from ..e2e.gateways import TOKEN

UNKNOWN = {
    errors.ServerUnreachableError.code,
    errors.TooManyRequestsError.code,
    errors.TurnNotFoundError.code,
    "TIMEOUT",
}
"""The codes of errors after which the same is sent again."""

Kind = Literal["event", "answer", "result"]


class RefusedError(Exception):
    """It was not taken, and says why. It must not be recorded."""


class UnknownError(Exception):
    """Nobody said whether it was taken."""


class Way(Protocol):
    """How something reaches a turn.

    Each method returns once it is acknowledged, and raises `RefusedError` or `UnknownError`.
    """

    async def question(self, turn_id: str, text: str) -> tuple[str, str] | None:
        """The id and the token of the call that asks this; None if none asks it now."""

    async def emit(self, turn_id: str, event: str, id: str, body: str) -> None: ...

    async def answer(self, turn_id: str, call: tuple[str, str], answer: str) -> None: ...

    async def finish(self, token: str, result: str) -> None: ...


class ByClient:
    """By Python."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client

    async def question(self, turn_id: str, text: str) -> tuple[str, str] | None:
        found = await _said(self._client.turn(turn_id).pending_approvals())
        for call in found:
            if call.question is not None and call.question.text == text:
                return call.call_id, call.token
        return None

    async def emit(self, turn_id: str, event: str, id: str, body: str) -> None:
        await _said(self._client.turn(turn_id).emit(event, body, id=id))

    async def answer(self, turn_id: str, call: tuple[str, str], answer: str) -> None:
        call_id, token = call
        await _said(self._client.turn(turn_id).answer(call_id, answer, token=token))

    async def finish(self, token: str, result: str) -> None:
        await _said(self._client.finish_call(token, result))


async def _said(asked: Awaitable[Any]) -> Any:
    """What a client says."""
    try:
        return await asked
    except errors.PerdureError as error:
        raise (UnknownError if error.code in UNKNOWN else RefusedError)(str(error)) from None


class ByGateway:
    """Over HTTP, each time by one of the gateways that run now."""

    def __init__(self, urls: list[str], luck: random.Random) -> None:
        self._urls, self._luck = urls, luck

    async def question(self, turn_id: str, text: str) -> tuple[str, str] | None:
        status = await self._ask("GET", f"/v1/turns/{turn_id}")
        for wait in status["waits"]:
            call = wait["call"] or {}
            if (call.get("question") or {}).get("text") == text:
                return call["call_id"], call["token"]
        return None

    async def emit(self, turn_id: str, event: str, id: str, body: str) -> None:
        event_body = {"name": event, "body": body, "id": id}
        await self._ask("POST", f"/v1/turns/{turn_id}/events", event_body)

    async def answer(self, turn_id: str, call: tuple[str, str], answer: str) -> None:
        body = {"call_id": call[0], "token": call[1], "answer": answer}
        await self._ask("POST", f"/v1/turns/{turn_id}/answer", body)

    async def finish(self, token: str, result: str) -> None:
        await self._ask("POST", f"/v1/calls/{token}", {"result": result})

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(
            base_url=self._luck.choice(self._urls), headers=headers, timeout=60
        ) as http:
            try:
                response = await http.request(method, path, json=body)
            except httpx.TransportError as error:
                raise UnknownError(repr(error)) from None
        if response.is_success:
            return response.json() if response.content else None
        code = response.json()["code"]
        assert response.status_code != 500, response.text
        raise (UnknownError if code in UNKNOWN else RefusedError)(response.text)


@dataclass
class Sending:
    """What somebody sent, and what became of each attempt, in order.

    Attributes:
        kind: What it is.
        turn_id: The turn that it is for.
        what: The name of the call that it is for.
        id: The id of an event; empty for anything else.
        content: The body, the answer or the result.
        ends: `acknowledged`, `unknown`, or why it was refused.
    """

    kind: Kind
    turn_id: str
    what: str
    content: str
    id: str = ""
    ends: list[str] = field(default_factory=list)

    @property
    def is_acknowledged(self) -> bool:
        """Whether somebody was told that it was taken."""
        return "acknowledged" in self.ends

    @property
    def is_refused(self) -> bool:
        """Whether it was refused, and no attempt may have been taken before that."""
        return bool(self.ends) and not {"acknowledged", "unknown"} & set(self.ends)


async def deliver(sending: Sending, attempt: Callable[[], Awaitable[None]]) -> None:
    """Send something until it is acknowledged or refused."""
    while True:
        try:
            await attempt()
            sending.ends.append("acknowledged")
            return
        except RefusedError as refused:
            sending.ends.append(str(refused))
            return
        except UnknownError:
            sending.ends.append("unknown")
        await asyncio.sleep(0.1)  # before the next attempt
