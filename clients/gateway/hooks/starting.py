"""What a delivery starts: a turn, a message, an event or the result of a call."""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import dataclass, field

from perdure import errors
from perdure.base import Value
from perdure.clients.client import AgentClient
from perdure.clients.gateway.hooks.definitions import Hook
from perdure.clients.gateway.hooks.templates import Delivery
from perdure.clients.gateway.ids import RESERVED, chosen_id
from perdure.clients.gateway.quotas import check_sessions, check_turns

logger = logging.getLogger("perdure")

_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,35}", re.ASCII)
_DIGEST_CHARACTERS = 32


class HookStarted(Value):
    """What a delivery has started.

    Attributes:
        turn: The id of the turn that was started, or has the event or the result of a call.
        event: The id of the event.
        key: The complete key of an event for all turns that wait for it.
        session: The id of the session that has the message.
        message: The id of the message.
    """

    turn: str | None = None
    event: str | None = None
    key: str | None = None
    session: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class HookStart:
    """What a delivery is to start.

    Attributes:
        hook: The hook that it was sent to.
        id: The id of the turn, the message or the event. The same delivery has the same.
        text: The task, the message, or what the event holds.
        target: The id of the session or the turn that gets it; None for a turn that begins, and for
            an event by key.
        key: The complete key of an event for all turns that wait for it.
        call: The token of a call that gets a result.
        has_failed: Whether the job of that call has failed.
    """

    hook: Hook
    id: str
    text: str
    target: str | None
    key: str | None = None
    call: str | None = field(default=None, repr=False)
    has_failed: bool = False

    @classmethod
    def of(cls, hook: Hook, delivery: Delivery) -> HookStart:
        """Return what a delivery is to start.

        Raises:
            RefusedError: It does not fit the templates of the hook.
            InvalidRequestError: It has no token of a call of the hook's tenant.
        """
        if (token := hook.call_token(delivery)) is not None:
            has_failed = hook.says_failed(delivery)
            return cls(hook, "", hook.text(delivery), None, call=token, has_failed=has_failed)
        target, short = hook.target_id(delivery), _short(delivery.id)
        if (key := hook.event_key(delivery)) is not None:
            return cls(hook, f"{hook.name}:{short}", hook.text(delivery), None, key)
        if target is None:
            own_id = chosen_id(hook.caller, f"hooks/{hook.name}/{short}")
            return cls(hook, own_id, hook.text(delivery), None)
        return cls(
            hook, f"{hook.name}:{short}", hook.text(delivery), chosen_id(hook.caller, target)
        )

    async def make(self, client: AgentClient) -> HookStarted:
        """Start the turn, or send the message or the event. Once this returns, it is recorded.

        Raises:
            PerdureError: It was refused, or Temporal does not answer.
            RefusedError: The tenant has too many turns or sessions.
        """
        if self.call is not None:
            return await self._result(client, self.call)
        if self.key is not None:
            return await self._event_by_key(client, self.key)
        if self.target is None:
            return await self._turn(client)
        if self.hook.table.event is None:
            return await self._message(client, self.target)
        return await self._event(client, self.target, self.hook.table.event)

    async def _turn(self, client: AgentClient) -> HookStarted:
        table, caller = self.hook.table, self.hook.caller
        assert table.agent is not None
        await check_turns(client, caller, self.id)
        try:
            await client.start(
                table.agent,
                self.text,
                id=self.id,
                fairness=caller.tenant,
                by=caller.subject,
                **table.common(caller),
            )
        except errors.TurnConflictError as error:
            if error.__cause__ is not None:  # there is no such turn
                raise
            logger.warning(
                "hook %s: turn %s, which exists, has another task: the hook was changed since",
                self.hook.name,
                self.id,
            )
        return HookStarted(turn=self.id)

    async def _message(self, client: AgentClient, session_id: str) -> HookStarted:
        table, caller = self.hook.table, self.hook.caller
        await check_sessions(client, caller, session_id)
        session = client.session(
            session_id, table.agent, idle=table.idle, fairness=caller.tenant, **table.common(caller)
        )
        await session.say(self.text, id=self.id, if_busy=table.if_busy, by=caller.subject)
        return HookStarted(session=session_id, message=self.id)

    async def _event(self, client: AgentClient, turn_id: str, name: str) -> HookStarted:
        by = self.hook.caller.subject
        await client.turn(turn_id).emit(name, self.text, id=self.id, by=by)
        return HookStarted(turn=turn_id, event=self.id)

    async def _result(self, client: AgentClient, token: str) -> HookStarted:
        by = self.hook.caller.subject
        turn_id = await client.finish_call(token, self.text, is_error=self.has_failed, by=by)
        return HookStarted(turn=turn_id)

    async def _event_by_key(self, client: AgentClient, key: str) -> HookStarted:
        name, by = self.hook.table.event, self.hook.caller.subject
        assert name is not None
        await client.emit(name, key=key, body=self.text, id=self.id, by=by)
        return HookStarted(event=self.id, key=key)


def _short(delivery_id: str) -> str:
    """Return the id of a delivery if it may be a part of any id, or else its digest."""
    if _PLAIN_ID.fullmatch(delivery_id) and delivery_id not in RESERVED:
        return delivery_id
    return hashlib.sha256(delivery_id.encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARACTERS]
