"""Conversations of OpenAI's API: a conversation is a session."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final, Literal

from pydantic import JsonValue, RootModel

from perdure import errors
from perdure.base import Value
from perdure.clients.gateway import subjects
from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.inputs import Body, Query
from perdure.clients.gateway.operations import Call, operation
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.responses.items import (
    ItemList,
    ListedItem,
    ListItems,
    items_of,
    page_of,
)
from perdure.clients.gateway.responses.refusals import bad, refusal, unsupported
from perdure.clients.sessions.handle import Session
from perdure.session.facts import SessionContinued, SessionStarted
from perdure.session.wire import SessionRequest

PATH: Final = "/conversations"
_ITEMS: Final = f"{PATH}/{{id:path}}/items"
_NEW = "conv_"
_TIME, _RANDOM, _CHECK = 8, 16, 8
"""The digits of the parts of the id of a new conversation."""


class CreateConversation(Body):
    """A conversation to begin. Its first response brings what is in it."""

    items: list[dict[str, JsonValue]] | None = None
    metadata: dict[str, str] | None = None


class AnyItems(Body):
    """Items that are not taken."""

    items: Any = None


class UpdateConversation(Body):
    """The metadata of a conversation."""

    metadata: dict[str, str] | None = None


class ConversationObject(Value):
    """A session as a conversation.

    Attributes:
        id: The session's id.
        object: Always `conversation`.
        created_at: When it was begun, or its id was made, in whole seconds since 1970.
        metadata: Its labels.
    """

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: dict[str, str] = {}


class DeletedConversation(Value):
    """A conversation that takes no more messages."""

    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: Literal[True] = True


class OneItem(RootModel[ListedItem]):
    """An item of a conversation."""


class Included(Query):
    """What an item is asked with. It is ignored."""

    include: Any = None


@operation("POST", PATH, may="start", refuse=refusal)
async def create_conversation(call: Call, body: CreateConversation) -> ConversationObject:
    """Return the id of a new conversation, which its first response begins. Nothing is stored."""
    if body.items:
        raise bad("items", "a conversation has no items before its first response")
    if body.metadata:
        raise bad("metadata", "give it to the first response of the conversation")
    return ConversationObject(id=_new_id(call.caller), created_at=int(time.time()))


@operation("GET", f"{_ITEMS}/{{item_id}}", may="read", refuse=refusal)
async def retrieve_item(call: Call, query: Included) -> OneItem:
    """Return an item of a conversation."""
    item_id = call.request.path_params["item_id"]
    for item in await _items(call):
        if item.id == item_id:
            return OneItem(item)
    raise RefusedError(404, "ITEM_NOT_FOUND", f"the conversation has no item {item_id!r}")


@operation("GET", _ITEMS, may="read", refuse=refusal)
async def list_items(call: Call, query: ListItems) -> ItemList:
    """List the items of the turns of a conversation that are over."""
    return page_of(await _items(call), query)


@operation("POST", _ITEMS, may="read", refuse=refusal)
async def create_items(call: Call, body: AnyItems) -> None:
    """Refuse to add items: those of a conversation are those of its responses."""
    raise unsupported(call.request, HTTPStatus.METHOD_NOT_ALLOWED.value)


@operation("DELETE", f"{_ITEMS}/{{item_id}}", may="read", refuse=refusal)
async def delete_item(call: Call) -> None:
    """Refuse to remove an item: turns have read it."""
    raise unsupported(call.request, HTTPStatus.METHOD_NOT_ALLOWED.value)


@operation("GET", f"{PATH}/{{id:path}}", may="read", refuse=refusal)
async def retrieve_conversation(call: Call) -> ConversationObject:
    """Return a conversation."""
    return await _conversation(call)


@operation("POST", f"{PATH}/{{id:path}}", may="control", refuse=refusal)
async def update_conversation(call: Call, body: UpdateConversation) -> ConversationObject:
    """Return a conversation, whose metadata cannot be changed."""
    known = await _conversation(call)
    if (body.metadata or {}) != known.metadata:
        raise bad("metadata", "the labels of a session are those that it was begun with")
    return known


@operation("DELETE", f"{PATH}/{{id:path}}", may="control", refuse=refusal)
async def delete_conversation(call: Call) -> DeletedConversation:
    """Close a conversation: it takes no more messages, and a turn that runs goes on to its end.

    What was said stays in Temporal until its retention is over.
    """
    known = await _conversation(call)
    with contextlib.suppress(errors.SessionNotFoundError, errors.SessionClosedError):
        await call.client.session(known.id).close("deleted", by=call.caller.subject)
    return DeletedConversation(id=known.id)


async def beginning(session: Session[Any]) -> tuple[datetime, SessionRequest] | None:
    """Return when a session was begun, and with what; None if it has not begun.

    Of a long session, the time is that of its last run.

    Raises:
        PerdureError: Temporal does not answer, or the session cannot be read.
    """
    with contextlib.suppress(errors.SessionNotFoundError):
        async for first in session.events():
            match first.fact:
                case SessionStarted(request):
                    return first.at, request
                case SessionContinued(snapshot):
                    return first.at, snapshot.session
    return None


async def _conversation(call: Call) -> ConversationObject:
    """Return the conversation of a request, which may have no response yet.

    Raises:
        SessionNotFoundError: There is none, and its id was not made here for the tenant.
    """
    session = call.client.session(call.id)
    begun = await beginning(session)
    if begun is not None:
        at, request = begun
        began = int(at.timestamp())
        return ConversationObject(
            id=session.id,
            created_at=began,
            metadata=subjects.shown(request.labels, request.subject),
        )
    made = _made_at(call.caller, session.id)
    if made is None:
        raise errors.SessionNotFoundError(f"there is no conversation {session.id!r}")
    return ConversationObject(id=session.id, created_at=made)


async def _items(call: Call) -> list[ListedItem]:
    """Return the items of the turns of a conversation that are over.

    Raises:
        SessionNotFoundError: There is no such conversation.
    """
    known = await _conversation(call)
    try:
        conversation = await call.client.session(known.id).conversation()
    except errors.SessionNotFoundError:
        return []
    return [
        item
        for part in conversation.parts
        for item in items_of(part.messages, f"item_{part.number}_")
    ]


def _new_id(caller: Caller) -> str:
    """Return the complete id of a new conversation, with the time and a check of the tenant."""
    unique = f"{int(time.time()):0{_TIME}x}{secrets.token_hex(_RANDOM // 2)}"
    return f"{caller.prefix}{_NEW}{unique}{_check(caller, unique)}"


def _made_at(caller: Caller, session_id: str) -> int | None:
    """Return the time when an id was made, in seconds; None if it was not made for the tenant."""
    own = session_id.removeprefix(caller.prefix)
    unique, check = own.removeprefix(_NEW)[:-_CHECK], own[-_CHECK:]
    is_ours = own.startswith(_NEW) and len(unique) == _TIME + _RANDOM
    if not is_ours or check != _check(caller, unique):
        return None
    return int(unique[:_TIME], 16)


def _check(caller: Caller, unique: str) -> str:
    return hashlib.sha256(f"{caller.prefix}{unique}".encode()).hexdigest()[:_CHECK]
