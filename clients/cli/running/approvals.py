"""`perdure approvals`: the calls that wait for a person, with their arguments, and decisions.

Arguments are shown as JSON in which every character is visible, so that no field can be mistaken
for another and exactly the approved call runs. A list cuts long values, each with a note of its
length; with the turn's id they are shown in full.
"""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.text import Text

from perdure import errors
from perdure.clients.cli.common import sender
from perdure.clients.cli.drawing.hints import CommandHints
from perdure.clients.cli.drawing.json_lines import tell
from perdure.clients.cli.drawing.progress import agents
from perdure.clients.cli.drawing.screen import put, wrapped
from perdure.clients.cli.drawing.table import draw
from perdure.clients.cli.running import answers
from perdure.clients.client import AgentClient
from perdure.clients.turns import waiting
from perdure.clients.turns.entries import TurnEntry
from perdure.clients.turns.handle import Turn
from perdure.errors import PayloadDecodeError
from perdure.text import arguments_in_brief, arguments_indented, harmless, word
from perdure.values.approvals import Kind, PendingApproval
from perdure.values.moments import period_in_words
from perdure.values.states import State

_INDENT = 4
_KINDS: dict[Kind, str] = {
    "approval": "",
    "outcome": ", outcome unknown",
    "question": ", question",
    "form": ", form",
    "elsewhere": ", done elsewhere",
}
_LEFT_OUT = ("TASK", "AGENT", "EXPIRES")
"""The columns to drop first on a narrow terminal."""


@dataclass(frozen=True)
class ApprovalOptions:
    """The options of `perdure approvals`."""

    turn: str | None = None
    approve: Sequence[str] = ()
    deny: Sequence[str] = ()
    arguments: str | None = None
    reason: str = ""
    by: str | None = None
    agent: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    as_json: bool = False
    address: str | None = None
    task_queue: str | None = None


async def decide(client: AgentClient, options: ApprovalOptions) -> int:
    """List the waiting calls, show those of a turn, or decide."""
    _check(options)
    edited = _edited(options.arguments)
    if options.turn is None:
        return await _list(client, options)
    turn = client.turn(options.turn)
    if options.approve or options.deny:
        return await _decide(client, turn, options, edited)
    is_plain = await waiting.is_only_run(client.temporal, turn)
    return _look(turn.id, options, await turn.pending_approvals(), is_plain)


def _check(options: ApprovalOptions) -> None:
    """Refuse options that contradict each other."""
    option = "--approve" if options.approve else "--deny"
    calls = [*options.approve, *options.deny]
    mistakes = {
        "--approve and --deny are two commands: either approve calls, or deny them": (
            options.approve and options.deny
        ),
        "--arguments goes with one --approve": (
            options.arguments is not None and len(options.approve) != 1
        ),
        "--reason belongs to a decision: name a call with --approve or --deny": (
            options.reason and not calls
        ),
        "--by belongs to a decision: name a call with --approve or --deny": (
            options.by is not None and not calls
        ),
        "--agent and --label filter the list of all turns: leave the turn's id out": (
            options.turn is not None and (options.agent or options.labels)
        ),
        f"name the turn of the call: perdure approvals TURN {option} CALL": (
            options.turn is None and calls
        ),
    }
    for message, is_mistake in mistakes.items():
        if is_mistake:
            raise errors.InvalidRequestError(message)


async def _decide(
    client: AgentClient, turn: Turn[Any], options: ApprovalOptions, edited: dict[str, Any] | None
) -> int:
    by = sender(options.by)
    for call in await waiting.named(
        client.temporal, turn, [*options.approve, *options.deny], to_run=bool(options.approve)
    ):
        if options.deny:
            await turn.deny(call, options.reason, by=by)
        else:
            await turn.approve(call, reason=options.reason, arguments=edited, by=by)
        decided = "denied" if options.deny else "approved"
        if options.as_json:
            tell(
                {
                    "turn": turn.id,
                    "call_id": call.call_id,
                    "tool": call.tool,
                    "decided": decided,
                    "by": by,
                }
            )
        else:
            put(f"{decided}  {_row(call, options.arguments)}")
    return 0


async def _list(client: AgentClient, options: ApprovalOptions) -> int:
    entries = client.turns(
        options.agent, state=State.WAITING, labels=options.labels, task_queue=options.task_queue
    )
    waiting_calls = [entry async for entry in waiting.of_all(client.temporal, entries)]
    if options.as_json:
        return _tell([(entry.id, call) for entry, call in waiting_calls])
    if waiting_calls:
        now = datetime.now(UTC)
        draw([_cells(entry, call, now) for entry, call in waiting_calls], _LEFT_OUT, sys.stdout)
    else:
        put("nothing waits for approval", sys.stderr)
    readable = (entry.id for entry, call in waiting_calls if isinstance(call, PendingApproval))
    first = next(readable, None)
    if first is not None:
        hint = CommandHints(options.address).of("approvals", first)
        put(f"\nlook at one: {hint}", sys.stderr)
    return 0


def _cells(
    entry: TurnEntry, call: PendingApproval | PayloadDecodeError, now: datetime
) -> dict[str, Text]:
    """Return the row of a call, or of a turn whose calls cannot be read."""
    if isinstance(call, PayloadDecodeError):
        call_id, tool, expires, arguments = "–", "–", "–", harmless(call.message)
    else:
        call_id, tool = word(call.call_id), word(call.tool) + _kind(call)
        arguments = arguments_in_brief(call.arguments)
        expires = until_expiry(call.expires_at - now).removeprefix("expires ")
    return {
        "TURN": Text(word(entry.id), "bold"),
        "CALL": Text(call_id),
        "TOOL": Text(tool),
        "AGENT": Text(agents(entry.agent, entry.last_agent) or "–"),
        "EXPIRES": Text(expires, "dim"),
        "TASK": Text(harmless(entry.task) or "–", no_wrap=True, overflow="ellipsis"),
        "ARGUMENTS": Text(arguments),
    }


def _tell(calls: Iterable[tuple[str, PendingApproval | PayloadDecodeError]]) -> int:
    for turn_id, call in calls:
        tell(
            {
                "turn": turn_id,
                **(
                    {"error": call.to_dict()}
                    if isinstance(call, PayloadDecodeError)
                    else dict(call)
                ),
            }
        )
    return 0


def _show(call: PendingApproval, name: str) -> None:
    """Print a call that waits, with what is known of it and all of its arguments."""
    left = until_expiry(call.expires_at - datetime.now(UTC))
    left = left.replace("expires in", "given up in") if call.is_job else left
    tool = f"  {word(call.tool)}{_kind(call)}  "
    put(Text.assemble((word(name), "bold"), tool, (left, "dim")))
    if call.is_job:
        put(wrapped(Text(f"    {harmless(call.note)}"), sys.stdout, _INDENT))
    if call.reason:
        reason = Text(f"    {harmless(' '.join(call.reason.split()))}", "yellow")
        put(wrapped(reason, sys.stdout, _INDENT))
    if call.question is None:
        put(textwrap.indent(arguments_indented(call.arguments), "    "))
        return
    for line in answers.lines(call.question):
        put(wrapped(Text(f"    {line}"), sys.stdout, _INDENT))


def _kind(call: PendingApproval) -> str:
    """Return what follows the name of a call's tool, unless the call needs approval."""
    return _KINDS[call.kind]


def _look(
    turn_id: str, options: ApprovalOptions, pending: tuple[PendingApproval, ...], is_plain: bool
) -> int:
    """Show the calls of a turn, with their tokens if their ids alone are not sufficient."""
    if options.as_json:
        return _tell([(turn_id, call) for call in pending])
    names = [
        (
            call,
            call.call_id
            if call.is_job or (is_plain and (call.is_unknown or not call.reason))
            else waiting.full(call),
        )
        for call in pending
    ]
    for call, name in names:
        _show(call, name)
    if pending:
        put("", sys.stderr)
        for line in _commands(CommandHints(options.address), turn_id, names):
            put(line, sys.stderr)
    else:
        put(f"nothing of turn {word(turn_id)} waits for approval", sys.stderr)
    return 0


def _commands(
    hints: CommandHints, turn_id: str, names: Sequence[tuple[PendingApproval, str]]
) -> Iterator[str]:
    """Yield the commands that decide about the first call of each kind."""
    asked = next((name for call, name in names if call.kind == "approval"), None)
    if asked is not None:
        yield hints.of("approvals", turn_id, approve=asked)
        yield f"{hints.of('approvals', turn_id, deny=asked)} --reason …"
    logins = [name for call, name in names if call.question and call.question.login]
    if logins:
        yield hints.to_log_in(turn_id, [name.partition(":")[0] for name in logins])
        yield f"{hints.of('approvals', turn_id, deny=logins[0])} --reason …"
    question = next((name for call, name in names if call.is_question and name not in logins), None)
    if question is not None:
        yield hints.of("answer", turn_id, shlex.quote(question), "ANSWER")
        yield f"{hints.of('approvals', turn_id, deny=question)} --reason …"
    unknown = next((name for call, name in names if call.is_unknown), None)
    if unknown is not None:
        name = shlex.quote(unknown)
        yield hints.of("settle", turn_id, name, "done", "--result …")
        yield hints.of("settle", turn_id, name, "absent")
        yield hints.of("settle", turn_id, name, "again")


def _row(call: PendingApproval, edited: str | None = None) -> str:
    return (
        f"{word(call.call_id)}  {word(call.tool)} "
        f" {arguments_in_brief(call.arguments if edited is None else edited)}"
    )


def until_expiry(time: timedelta) -> str:
    """Format the time left for an approval, in its two largest units."""
    return f"expires in {period_in_words(time)}" if time >= timedelta(seconds=1) else "expired"


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
