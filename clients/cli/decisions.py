"""`perdure approvals`: what waits for a person, what exactly it would do, and what the person says.

Arguments are shown as JSON of which every character can be seen, so that no field can pass for
another and what is approved is exactly what runs. A list cuts long values, each with a note of its
length; with the turn's id all of them are shown.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure import errors
from perdure.clients.agent_client import AgentClient
from perdure.clients.cli import options, waiting
from perdure.clients.cli.amounts import time_in_words
from perdure.clients.cli.arguments import examples
from perdure.clients.cli.hints import Commands
from perdure.clients.cli.json_lines import tell
from perdure.clients.cli.screen import Paint, columns_of, put
from perdure.clients.cli.widths import wrapped
from perdure.errors import PayloadDecodeError
from perdure.temporal.search_attributes import State
from perdure.text import arguments_in_brief, arguments_indented, harmless, word
from perdure.values.approvals import PendingApproval

_INDENT = 4


def register(subparsers: Any, connecting: Any, run: Any) -> None:
    """Add the command."""
    command = subparsers.add_parser(
        "approvals",
        help="what waits for a person",
        description="List the calls that wait for a person, look at those of a turn, and decide.",
        epilog=examples(
            "perdure approvals",
            "perdure approvals ticket-4711",
            "perdure approvals ticket-4711 --approve call_1_1",
            'perdure approvals ticket-4711 --deny call_1_2 --reason "the customer called"',
            "perdure approvals --agent support --label team=north",
        ),
    )
    command.add_argument(
        "turn", metavar="TURN", nargs="?", help="the turn's id: its calls, with all arguments"
    )
    said = command.add_mutually_exclusive_group()
    said.add_argument(
        "--approve",
        metavar="CALL",
        action="append",
        default=[],
        help="let this call run; may be repeated",
    )
    said.add_argument(
        "--deny",
        metavar="CALL",
        action="append",
        default=[],
        help="refuse this call; may be repeated",
    )
    command.add_argument(
        "--arguments",
        metavar="JSON",
        help="with --approve: run it with these arguments in place of its own",
    )
    command.add_argument("--reason", default="", help="why; with --deny the model is told")
    options.deciding(command)
    command.add_argument("--agent", metavar="NAME", help="list only calls of this agent's turns")
    options.labelled(command, "list only calls of turns with this label; may be repeated")
    command.add_argument(
        "--json",
        action="store_true",
        help="a line of JSON for each call, with all of its arguments",
    )
    connecting(command)
    command.set_defaults(run=run)


async def decide(client: AgentClient, arguments: argparse.Namespace) -> int:
    """Do what the arguments say."""
    calls = [*arguments.approve, *arguments.deny]
    edited = _edited(arguments)
    if arguments.reason and not calls:
        raise errors.InvalidRequestError(
            "--reason says why a call is decided so: name it with --approve or --deny"
        )
    if arguments.by is not None and not calls:
        raise errors.InvalidRequestError(
            "--by says who decides: name a call with --approve or --deny"
        )
    if arguments.turn is not None and (arguments.agent or arguments.label):
        raise errors.InvalidRequestError(
            "--agent and --label filter the list of all turns: leave the turn's id out"
        )
    if arguments.turn is None:
        if calls:
            raise errors.InvalidRequestError(
                "say whose call: perdure approvals TURN"
                f" {'--approve' if arguments.approve else '--deny'} CALL"
            )
        return await _list(client, arguments)
    turn = await client.get(arguments.turn)
    if not calls:
        is_plain = await waiting.is_only_run(client.temporal, turn)
        return _look(arguments, await turn.pending_approvals(), is_plain)
    by = options.by_of(arguments)
    for one in await waiting.named(client.temporal, turn, calls, to_run=bool(arguments.approve)):
        if arguments.deny:
            await turn.deny(one, arguments.reason, by=by)
        else:
            await turn.approve(one, reason=arguments.reason, arguments=edited, by=by)
        decided = "denied" if arguments.deny else "approved"
        if arguments.json:
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
            put(f"{decided}  {_row(one, arguments.arguments)}")
    return 0


async def _list(client: AgentClient, arguments: argparse.Namespace) -> int:
    paint = Paint()
    entries = client.list(
        arguments.agent,
        state=State.WAITING,
        labels=dict(arguments.label),
        task_queue=arguments.task_queue,
    )
    found = [row async for row in waiting.of_all(client.temporal, entries)]
    if arguments.json:
        return _tell([(entry.id, one) for entry, one in found])
    for entry, one in found:
        said = (
            one.message
            if isinstance(one, PayloadDecodeError)
            else f"{_row(one)}  {left(one.expires_at - datetime.now(UTC))}"
        )
        put(_fitting(f"{paint('bold', word(entry.id))}  {said}"))
    readable = [entry.id for entry, one in found if isinstance(one, PendingApproval)]
    if readable:
        put(
            f"\nlook at one: {Commands(arguments.address).of('approvals', readable[0])}", sys.stderr
        )
    elif not found:
        put("nothing waits for approval", sys.stderr)
    return 0


def _tell(found: Iterable[tuple[str, PendingApproval | PayloadDecodeError]]) -> int:
    for turn_id, one in found:
        tell(
            {
                "turn": turn_id,
                **({"error": one.to_dict()} if isinstance(one, PayloadDecodeError) else dict(one)),
            }
        )
    return 0


def _look(
    arguments: argparse.Namespace, pending: tuple[PendingApproval, ...], is_plain: bool
) -> int:
    """Show the calls of a turn; with their tokens where their ids alone would not be taken."""
    if arguments.json:
        return _tell([(arguments.turn, one) for one in pending])
    paint = Paint()
    names = {
        one: one.call_id if is_plain and not one.reason else waiting.full(one) for one in pending
    }
    for one in pending:
        put(
            f"{paint('bold', word(names[one]))}  {word(one.tool)} "
            f" {left(one.expires_at - datetime.now(UTC))}"
        )
        if one.reason:
            put(paint("yellow", f"    {harmless(' '.join(one.reason.split()))}"))
        put(textwrap.indent(arguments_indented(one.arguments), "    "))
    if pending:
        commands, call = Commands(arguments.address), names[pending[0]]
        put(f"\n{commands.of('approvals', arguments.turn, approve=call)}", sys.stderr)
        put(f"{commands.of('approvals', arguments.turn, deny=call)} --reason …", sys.stderr)
    else:
        put(f"nothing of turn {word(arguments.turn)} waits for approval", sys.stderr)
    return 0


def _fitting(row: str) -> str:
    """A row in as many lines as a terminal needs.

    Nothing of a call is left out because it is narrow.
    """
    columns = columns_of(sys.stdout)
    return row if columns is None else wrapped(row, columns, _INDENT)


def _row(one: PendingApproval, edited: str | None = None) -> str:
    return (
        f"{word(one.call_id)}  {word(one.tool)} "
        f" {arguments_in_brief(one.arguments if edited is None else edited)}"
    )


def left(time: timedelta) -> str:
    """How long an approval may still be given, in its two largest units."""
    return f"expires in {time_in_words(time)}" if time >= timedelta(seconds=1) else "expired"


def _edited(arguments: argparse.Namespace) -> dict[str, Any] | None:
    if arguments.arguments is None:
        return None
    if len(arguments.approve) != 1:
        raise errors.InvalidRequestError("--arguments goes with one --approve")
    try:
        value = json.loads(arguments.arguments)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidRequestError(f"--arguments is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise errors.InvalidRequestError("--arguments must be a JSON object")
    return value
