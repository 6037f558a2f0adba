"""`perdure approvals`: the calls that wait for a person, with their arguments, and decisions.

Arguments are shown as JSON in which every character is visible, so that no field can be mistaken
for another and exactly the approved call runs. A list cuts long values, each with a note of its
length; with the turn's id they are shown in full.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.text import Text

from perdure import errors, validation
from perdure.clients.cli.drawing.amounts import time_in_words
from perdure.clients.cli.drawing.hints import Commands
from perdure.clients.cli.drawing.json_lines import tell
from perdure.clients.cli.drawing.progress import agents
from perdure.clients.cli.drawing.screen import put, wrapped
from perdure.clients.cli.drawing.table import draw
from perdure.clients.client import AgentClient
from perdure.clients.turns import waiting
from perdure.clients.turns.entries import TurnEntry
from perdure.clients.turns.handle import Turn
from perdure.errors import PayloadDecodeError
from perdure.temporal.search_attributes import State
from perdure.text import arguments_in_brief, arguments_indented, harmless, word
from perdure.values.approvals import PendingApproval

_INDENT = 4
_LEFT_OUT = ("TASK", "AGENT", "EXPIRES")
"""The columns to drop first on a narrow terminal."""


@dataclass(frozen=True)
class Asked:
    """The options of `perdure approvals`."""

    turn: str | None = None
    approve: Sequence[str] = ()
    deny: Sequence[str] = ()
    arguments: str | None = None
    reason: str = ""
    by: str | None = None
    agent: str | None = None
    labels: Sequence[tuple[str, str]] = ()
    as_json: bool = False
    address: str | None = None
    task_queue: str | None = None


async def decide(client: AgentClient, asked: Asked) -> int:
    """List the waiting calls, show those of a turn, or decide."""
    _check(asked)
    edited = _edited(asked.arguments)
    if asked.turn is None:
        return await _list(client, asked)
    turn = client.turn(asked.turn)
    if asked.approve or asked.deny:
        return await _decide(client, turn, asked, edited)
    is_plain = await waiting.is_only_run(client.temporal, turn)
    return _look(turn.id, asked, await turn.pending_approvals(), is_plain)


def _check(asked: Asked) -> None:
    """Refuse options that contradict each other."""
    option = "--approve" if asked.approve else "--deny"
    calls = [*asked.approve, *asked.deny]
    mistakes = {
        "--approve and --deny are two commands: either approve calls, or deny them": (
            asked.approve and asked.deny
        ),
        "--arguments goes with one --approve": (
            asked.arguments is not None and len(asked.approve) != 1
        ),
        "--reason belongs to a decision: name a call with --approve or --deny": (
            asked.reason and not calls
        ),
        "--by belongs to a decision: name a call with --approve or --deny": (
            asked.by is not None and not calls
        ),
        "--agent and --label filter the list of all turns: leave the turn's id out": (
            asked.turn is not None and (asked.agent or asked.labels)
        ),
        f"name the turn of the call: perdure approvals TURN {option} CALL": (
            asked.turn is None and calls
        ),
    }
    for words, is_mistake in mistakes.items():
        if is_mistake:
            raise errors.InvalidRequestError(words)


async def _decide(
    client: AgentClient, turn: Turn[Any], asked: Asked, edited: dict[str, Any] | None
) -> int:
    by = by_of(asked.by)
    for one in await waiting.named(
        client.temporal, turn, [*asked.approve, *asked.deny], to_run=bool(asked.approve)
    ):
        if asked.deny:
            await turn.deny(one, asked.reason, by=by)
        else:
            await turn.approve(one, reason=asked.reason, arguments=edited, by=by)
        decided = "denied" if asked.deny else "approved"
        if asked.as_json:
            tell(
                {
                    "turn": turn.id,
                    "call_id": one.call_id,
                    "tool": one.tool,
                    "decided": decided,
                    "by": by,
                }
            )
        else:
            put(f"{decided}  {_row(one, asked.arguments)}")
    return 0


async def _list(client: AgentClient, asked: Asked) -> int:
    entries = client.list(
        asked.agent, state=State.WAITING, labels=dict(asked.labels), task_queue=asked.task_queue
    )
    found = [row async for row in waiting.of_all(client.temporal, entries)]
    if asked.as_json:
        return _tell([(entry.id, one) for entry, one in found])
    if found:
        now = datetime.now(UTC)
        draw([_cells(entry, one, now) for entry, one in found], _LEFT_OUT, sys.stdout)
    readable = [entry.id for entry, one in found if isinstance(one, PendingApproval)]
    if readable:
        put(f"\nlook at one: {Commands(asked.address).of('approvals', readable[0])}", sys.stderr)
    elif not found:
        put("nothing waits for approval", sys.stderr)
    return 0


def _cells(
    entry: TurnEntry, one: PendingApproval | PayloadDecodeError, now: datetime
) -> dict[str, Text]:
    """Return the row of a call, or of a turn whose calls cannot be read."""
    if isinstance(one, PayloadDecodeError):
        call, tool, expires, arguments = "–", "–", "–", harmless(one.message)
    else:
        call, tool, arguments = word(one.call_id), word(one.tool), arguments_in_brief(one.arguments)
        expires = left(one.expires_at - now).removeprefix("expires ")
    return {
        "TURN": Text(word(entry.id), "bold"),
        "CALL": Text(call),
        "TOOL": Text(tool),
        "AGENT": Text(agents(entry.agent, entry.last_agent) or "–"),
        "EXPIRES": Text(expires, "dim"),
        "TASK": Text(harmless(entry.task) or "–", no_wrap=True, overflow="ellipsis"),
        "ARGUMENTS": Text(arguments),
    }


def _tell(found: Iterable[tuple[str, PendingApproval | PayloadDecodeError]]) -> int:
    for turn_id, one in found:
        tell(
            {
                "turn": turn_id,
                **({"error": one.to_dict()} if isinstance(one, PayloadDecodeError) else dict(one)),
            }
        )
    return 0


def _look(turn_id: str, asked: Asked, pending: tuple[PendingApproval, ...], is_plain: bool) -> int:
    """Show the calls of a turn, with their tokens if their ids alone are not sufficient."""
    if asked.as_json:
        return _tell([(turn_id, one) for one in pending])
    names = {
        one: one.call_id if is_plain and not one.reason else waiting.full(one) for one in pending
    }
    for one in pending:
        put(
            Text.assemble(
                (word(names[one]), "bold"),
                f"  {word(one.tool)}  ",
                (left(one.expires_at - datetime.now(UTC)), "dim"),
            )
        )
        if one.reason:
            put(
                wrapped(
                    Text(f"    {harmless(' '.join(one.reason.split()))}", "yellow"),
                    sys.stdout,
                    _INDENT,
                )
            )
        put(textwrap.indent(arguments_indented(one.arguments), "    "))
    if pending:
        commands, call = Commands(asked.address), names[pending[0]]
        put(f"\n{commands.of('approvals', turn_id, approve=call)}", sys.stderr)
        put(f"{commands.of('approvals', turn_id, deny=call)} --reason …", sys.stderr)
    else:
        put(f"nothing of turn {word(turn_id)} waits for approval", sys.stderr)
    return 0


def _row(one: PendingApproval, edited: str | None = None) -> str:
    return (
        f"{word(one.call_id)}  {word(one.tool)} "
        f" {arguments_in_brief(one.arguments if edited is None else edited)}"
    )


def left(time: timedelta) -> str:
    """Format the time left for an approval, in its two largest units."""
    return f"expires in {time_in_words(time)}" if time >= timedelta(seconds=1) else "expired"


def _edited(arguments: str | None) -> dict[str, Any] | None:
    if arguments is None:
        return None
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidRequestError(f"--arguments is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise errors.InvalidRequestError("--arguments must be a JSON object")
    return value


def by_of(named: str | None) -> str | None:
    """Return the name to record: `--by`, `PERDURE_BY` or the login name; None if none is valid."""
    if named is None:
        named = os.environ.get("PERDURE_BY") or None
    if named is not None:
        return named
    with contextlib.suppress(OSError, KeyError, ImportError):
        name = getpass.getuser()
        return name if validation.accepts(validation.By, name) else None
    return None
