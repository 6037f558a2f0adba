"""Every verb of every resource, to be called in one way."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from perdure import Budget, errors
from perdure.clients import AgentClient

from .spending import SOON_S

NOW = datetime.now(UTC)


async def all_of(events: AsyncIterator[Any]) -> int:
    return len([event async for event in events])


Verb = Callable[[Any], Awaitable[Any]]
EXISTING = f"turn-{secrets.token_hex(4)}"
"""The id of a turn with another task than the one that `start` gives."""
READS: dict[str, dict[str, Verb]] = {
    "client": {},
    "turn": {
        "status": lambda turn: turn.status(),
        "events": lambda turn: all_of(turn.events()),
        "live": lambda turn: all_of(turn.live()),
        "wait": lambda turn: turn.wait(),
        "result": lambda turn: turn.result(),
        "last_step": lambda turn: turn.last_step(),
        "effects_after": lambda turn: turn.effects_after(),
        "pending_approvals": lambda turn: turn.pending_approvals(),
    },
    "session": {
        "status": lambda session: session.status(),
        "events": lambda session: all_of(session.events()),
        "messages": lambda session: session.messages(),
        "turns": lambda session: session.turns(),
        "conversation": lambda session: session.conversation(),
        "find": lambda session: session.find("a message"),
        "wait": lambda session: session.wait(),
    },
    "batch": {
        "status": lambda batch: batch.status(),
        "results": lambda batch: all_of(batch.results()),
        "wait": lambda batch: batch.wait(),
    },
    "schedule": {
        "status": lambda schedule: schedule.status(),
        "task": lambda schedule: schedule.task(),
        "turns": lambda schedule: all_of(schedule.turns()),
        "results": lambda schedule: anext(schedule.results()),
        "wait": lambda schedule: schedule.wait(),
    },
}
WRITES: dict[str, dict[str, Verb]] = {
    "client": {
        "start": lambda client: client.start("spender", "go", id=EXISTING),
    },
    "turn": {
        "cancel": lambda turn: turn.cancel("no longer needed"),
        "add_budget": lambda turn: turn.add_budget(iterations=1),
        "steer": lambda turn: turn.steer("hello"),
        "emit": lambda turn: turn.emit("built"),
        "fork": lambda turn: turn.fork(say="again"),
        "resume": lambda turn: turn.resume(),
    },
    "session": {
        "say": lambda session: session.say("hello"),
        "interrupt": lambda session: session.interrupt(),
        "forget_reminder": lambda session: session.forget_reminder("a reminder"),
        "unqueue": lambda session: session.unqueue("a message"),
        "resume": lambda session: session.resume(),
        "add_budget": lambda session: session.add_budget(Budget(usd=1)),
        "close": lambda session: session.close(),
        "cancel": lambda session: session.cancel(),
        "fork": lambda session: session.fork(id=f"{session.id}-2"),
    },
    "batch": {
        "cancel": lambda batch: batch.cancel(),
        "add_budget": lambda batch: batch.add_budget(Budget(usd=1)),
        "retry": lambda batch: batch.retry(),
    },
    "schedule": {
        "run_now": lambda schedule: schedule.run_now(),
        "pause": lambda schedule: schedule.pause(),
        "cancel": lambda schedule: schedule.cancel(),
        "add_budget": lambda schedule: schedule.add_budget(Budget(usd=1)),
        "resume": lambda schedule: schedule.resume(),
        "backfill": lambda schedule: schedule.backfill(NOW, NOW),
        "change": lambda schedule: schedule.change(cron="0 4 * * *"),
        "delete": lambda schedule: schedule.delete(),
    },
}
MISSING = {
    "client": errors.TurnNotFoundError,
    "turn": errors.TurnNotFoundError,
    "session": errors.SessionNotFoundError,
    "batch": errors.BatchNotFoundError,
    "schedule": errors.ScheduleNotFoundError,
}


def handles(client: AgentClient, ids: dict[str, str]) -> dict[str, Any]:
    return {
        "client": client,
        "turn": client.turn(ids["turn"]),
        "session": client.session(ids["session"]),
        "batch": client.batch(ids["batch"]),
        "schedule": client.schedule(ids["schedule"]),
    }


async def end_of(call: Awaitable[Any]) -> type[BaseException] | None:
    """The class of the error with which a call ends; None for a call that succeeds."""
    end: object
    [end] = await asyncio.gather(asyncio.wait_for(call, SOON_S), return_exceptions=True)
    return type(end) if isinstance(end, BaseException) else None
