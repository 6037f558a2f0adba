"""A client of AG-UI for tests: each event is read by the protocol's models, and their order is
held to the rules of its specification.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from ag_ui.core import BaseEvent, Event
from httpx_sse import aconnect_sse
from pydantic import TypeAdapter
from starlette.requests import Request

from perdure.clients.gateway import Caller

from . import served as gateway

_EVENT: TypeAdapter[Any] = TypeAdapter(Event)
_ENDS = ("RUN_FINISHED", "RUN_ERROR")
_OPENED = {
    "TEXT_MESSAGE_START": "message_id",
    "TOOL_CALL_START": "tool_call_id",
    "STEP_STARTED": "step_name",
    "SUBAGENT_STARTED": "subagent_run_id",
    "REASONING_START": "message_id",
}
_CLOSED = {
    "TEXT_MESSAGE_END": "TEXT_MESSAGE_START",
    "TOOL_CALL_END": "TOOL_CALL_START",
    "STEP_FINISHED": "STEP_STARTED",
    "SUBAGENT_FINISHED": "SUBAGENT_STARTED",
    "SUBAGENT_ERROR": "SUBAGENT_STARTED",
    "REASONING_END": "REASONING_START",
}

_CALLERS = {
    "iris": Caller("iris@example.com", "agui"),
    "ivan": Caller("ivan@example.com", "agui", frozenset({"read"})),
    "olga": Caller("olga@example.com", "theirs"),
}
"""Callers of tenants of their own: other tests compare all sessions of theirs."""


def _by_name(request: Request) -> Caller | None:
    return _CALLERS.get(request.headers.get("authorization", "").removeprefix("Bearer "))


served = partial(gateway.served, auth=_by_name, name="iris")


def user(text: str, id: str) -> dict[str, Any]:
    """A message of the user."""
    return {"id": id, "role": "user", "content": text}


def asking(thread: str, run: str, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The input of a run, as a browser sends it."""
    empty: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return {"threadId": thread, "runId": run, "messages": [*messages], **empty, **more}


def answering(thread: str, run: str, interrupts: Iterable[Any], **payload: Any) -> dict[str, Any]:
    """The input of a run that answers interrupts, all in one way; without a payload, by none."""
    resolved = {"status": "resolved", "payload": payload} if payload else {"status": "cancelled"}
    resume = [{"interruptId": one.id, **resolved} for one in interrupts]
    return asking(thread, run, resume=resume)


class Told(list[Any]):
    """The events of a run, in order, and the id of the last of them that has one."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []

    @property
    def kinds(self) -> list[str]:
        return [one.type.value for one in self]

    def of(self, kind: str) -> list[Any]:
        return [one for one in self if one.type.value == kind]

    @property
    def text(self) -> str:
        return "".join(one.delta for one in self.of("TEXT_MESSAGE_CONTENT"))

    @property
    def snapshot(self) -> list[Any]:
        """The messages of the last snapshot."""
        messages: list[Any] = self.of("MESSAGES_SNAPSHOT")[-1].messages
        return messages

    @property
    def end(self) -> Any:
        assert self.kinds[-1] in _ENDS, self.kinds
        return self[-1]

    @property
    def interrupts(self) -> list[Any]:
        found: list[Any] = self.end.outcome.interrupts
        return found


async def events(
    http: httpx.AsyncClient, agent: str, given: dict[str, Any], after: str = "", **headers: str
) -> AsyncIterator[tuple[str, BaseEvent]]:
    """The events of a run as they come, each with the last id that came."""
    if after:
        headers["Last-Event-ID"] = after
    async with aconnect_sse(http, "POST", f"/agui/{agent}", json=given, headers=headers) as source:
        assert source.response.status_code == 200, await source.response.aread()
        async for one in source.aiter_sse():
            if one.data:
                yield one.id, _EVENT.validate_json(one.data)


async def run(
    http: httpx.AsyncClient,
    agent: str,
    given: dict[str, Any],
    after: str = "",
    *,
    until: str = "",
    **headers: str,
) -> Told:
    """The events of a run, up to the first of a kind or to its end. They are in a right order."""
    told = Told()
    async with contextlib.aclosing(events(http, agent, given, after, **headers)) as stream:  # type: ignore[type-var]
        async for cursor, event in stream:
            told.append(event)
            if cursor and cursor not in told.ids:
                told.ids.append(cursor)
            if event.type.value == until:
                return told
    hold_to_the_rules(told)
    return told


def hold_to_the_rules(told: Told) -> None:
    """Check the order of the events of a complete run."""
    assert told.kinds[0] == "RUN_STARTED"
    assert [kind for kind in told.kinds if kind in _ENDS] == told.kinds[-1:]
    is_open: Counter[tuple[str, str]] = Counter()
    for event in told:
        kind = event.type.value
        if kind in _OPENED:
            is_open[kind, getattr(event, _OPENED[kind])] += 1
        elif kind in _CLOSED:
            opener = _CLOSED[kind]
            is_open[opener, getattr(event, _OPENED[opener])] -= 1
        elif kind in ("TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS"):
            opener = kind.rpartition("_")[0] + "_START"
            assert is_open[opener, getattr(event, _OPENED[opener])] == 1, kind
        elif kind == "RUN_FINISHED":
            assert not +is_open, is_open
        assert set(is_open.values()) <= {0, 1}, is_open


def shown(told: Told) -> dict[str, str]:
    """The texts of the messages, by id, that a page shows after these events."""
    texts: dict[str, str] = {}
    for event in told:
        match event.type.value:
            case "MESSAGES_SNAPSHOT":
                texts = {one.id: str(one.content) for one in event.messages}
            case "TEXT_MESSAGE_START":
                texts.setdefault(event.message_id, "")
            case "TEXT_MESSAGE_CONTENT":
                texts[event.message_id] += event.delta
            case "TOOL_CALL_START":
                texts.setdefault(event.parent_message_id, str(None))
            case "TOOL_CALL_RESULT":
                texts[event.message_id] = event.content
            case "REASONING_MESSAGE_CONTENT":
                texts[event.message_id] = event.delta
    return texts


def official_client() -> tuple[str, str] | None:
    """The paths of Node.js and of the folder with `@ag-ui/client`; None if one is missing."""
    node = shutil.which("node")
    modules = Path(os.environ.get("PERDURE_NODE_MODULES", "node_modules")).absolute()
    has_client = (modules / "@ag-ui" / "client").is_dir()
    return (node, str(modules)) if node is not None and has_client else None
