"""What must be the same in the simulator and on a real server, without ids and times."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any

from pydantic import BaseModel
from temporalio.api.history.v1 import HistoryEvent

from perdure.session.facts import SessionFact
from perdure.session.state import SessionState
from perdure.temporal.names import SESSION
from perdure.testing.simulation.server.commands import LOCAL, PATCH, gist
from perdure.testing.simulation.server.history import COMMANDS, attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.turn.facts import ChildTold, Recorded, Scheduled, TaskBegan
from perdure.turn.keys import AgentKey, ChildKey, PolicyKey, ToolKey
from perdure.turn.state import TurnState

from .reading import RealRun
from .script import ROOT, relative

_RUN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ROOT = re.compile(r"fidelity-[0-9a-f]{12}")
_DIGEST = re.compile(r"'digest': '[0-9a-f]*'")
_SECOND = re.compile(r"(/(?:[a-z]+-)?\d+)-[0-9a-f]{4}\b")
_TIMES = {"duration_ms", "since", "until", "expires_at", "requested_at", "time", "duration"}
_OF_NAMESPACE = {"indexed"}
"""Whether the namespace has Perdure's search attributes; that of the simulator has none."""
_SECRETS = {"call_secret"}
_IN_ANY_ORDER = {"children"}
"""Delegates that run at once, in the order of their ends."""
_AT_ONCE = (ToolKey, PolicyKey, ChildKey)
_COMPARED = COMMANDS - {"WORKFLOW_PROPERTIES_MODIFIED", "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES"}
"""A workflow shows its state once for each task: their number depends on what arrives together."""
_RESOLVES = (("agent",), (LOCAL,), (PATCH,))
"""What the commands are about by which a turn resolves its agent. A real worker does it within the
workflow task if it has the agent at hand, and local activities are not simulated."""


@dataclass(frozen=True)
class Shown:
    """What is compared of a run of a turn or a session.

    Attributes:
        facts: Its facts: those that have an order, and then those of calls, which may run at once.
        commands: How often its workflow has made which command.
        digest: The digest of its transcript, or the messages of the session.
        spent: What it says that it has spent.
    """

    facts: tuple[str, ...]
    commands: Counter[tuple[str, ...]]
    digest: str
    spent: str


def shown(facts: Sequence[Recorded], events: Sequence[HistoryEvent], state: TurnState) -> Shown:
    """Return what is compared of a run of a turn."""
    kept = [fact for fact in facts if not isinstance(fact, TaskBegan) and not _resolves(fact)]
    in_order = [_named(fact) for fact in kept if not _is_at_once(fact)]
    at_once = sorted(_named(fact) for fact in kept if _is_at_once(fact))
    digest, spent = state.transcript.digest, str(plain(state.charged))
    return Shown((*in_order, *at_once), _commands(events), digest, spent)


def shown_of_session(
    facts: Sequence[SessionFact], events: Sequence[HistoryEvent], state: SessionState
) -> Shown:
    """Return what is compared of a run of a session."""
    told = tuple(map(_named, facts))
    return Shown(told, _commands(events), str(plain(state.messages)), str(plain(state.ledger)))


def _commands(events: Sequence[HistoryEvent]) -> Counter[tuple[str, ...]]:
    commands = [_command(event, events) for event in events if name_of(event) in _COMPARED]
    return Counter(tuple(map(plain, one)) for one in commands if one[1:2] not in _RESOLVES)


def _command(event: HistoryEvent, events: Sequence[HistoryEvent]) -> tuple[str, ...]:
    """Return the command of an event, with the id of the activity that it is about."""
    if name_of(event) == "ACTIVITY_TASK_CANCEL_REQUESTED":
        scheduled = events[attributes(event).scheduled_event_id - 1]
        return (name_of(event), attributes(scheduled).activity_id)
    return gist(event)


def _resolves(fact: Recorded) -> bool:
    """Whether the fact is that the agent is about to be resolved by an activity."""
    return isinstance(fact, Scheduled) and isinstance(fact.key, AgentKey)


def _is_at_once(fact: Recorded) -> bool:
    """Whether a fact is of a call, of which several run at the same time."""
    return isinstance(fact, ChildTold) or isinstance(getattr(fact, "key", None), _AT_ONCE)


def _named(fact: Recorded | SessionFact) -> str:
    return f"{type(fact).__name__} {plain(fact)}"


def plain(value: Any) -> Any:
    """Return a value without the ids and times of a server."""
    match value:
        case str() if not isinstance(value, Enum):
            return _SECOND.sub(r"\1-again", _ROOT.sub(ROOT, _RUN.sub("run", value)))
        case datetime():
            return "a moment"
        case BaseModel():
            return _plain_fields({name: getattr(value, name) for name in type(value).model_fields})
        case dict():
            return _plain_fields(value)
        case list() | tuple():
            return [plain(one) for one in value]
        case _ if is_dataclass(value):
            return _plain_fields({one.name: getattr(value, one.name) for one in fields(value)})
        case _:
            return value


def _plain_fields(values: dict[str, Any]) -> dict[str, Any]:
    return {
        plain(str(name)): sorted(plain(one), key=str) if name in _IN_ANY_ORDER else plain(one)
        for name, one in values.items()
        if name not in _TIMES | _OF_NAMESPACE | _SECRETS and one not in (None, (), "", False)
    }


Answers = Sequence[tuple[str, str]]
"""What was answered to the updates, with their ids, in their order."""


def differences(
    simulated: tuple[Sequence[SimulatedRun], Answers], real: tuple[Sequence[RealRun], Answers]
) -> str:
    """How the runs of a script differ, and what was answered; empty if they do not.

    A run that only the simulator or only reality has differs, too.
    """
    ours = _by_name((relative(run.id), _simulated(run)) for run in simulated[0])
    theirs = _by_name((run.id, _real(run)) for run in real[0])
    if any("-again" in name for name in ours | theirs):
        ours = {name: _without_digests(run) for name, run in ours.items()}
        theirs = {name: _without_digests(run) for name, run in theirs.items()}
    found = {name: _compared(ours.get(name), theirs.get(name)) for name in ours | theirs}
    answers = [[f"{one}: {plain(told)}" for one, told in play[1]] for play in (simulated, real)]
    found["answers"] = _lines(*answers)
    return "\n".join(f"{name}: {how}" for name, how in found.items() if how)


def _by_name(runs: Iterable[tuple[str, Shown]]) -> dict[str, Shown]:
    """Return the runs by the names of their turns or sessions, with their numbers."""
    counts, found = Counter[str](), dict[str, Shown]()
    for name, run in runs:
        counts[name] += 1
        found[f"{name} run {counts[name]}"] = run
    return found


def _without_digests(run: Shown) -> Shown:
    """Return a run without digests: models may be told second ids, which are random."""
    facts = tuple(_DIGEST.sub("digest", fact) for fact in run.facts)
    return replace(run, facts=facts, digest="")


def _simulated(run: SimulatedRun) -> Shown:
    events = run.history.events
    if run.begun.type == SESSION:
        return shown_of_session(run.session_facts, events, run.session)
    return shown(run.facts, events, run.read)


def _real(run: RealRun) -> Shown:
    if run.session is not None:
        return shown_of_session(run.session_facts, run.events, run.session)
    return shown(run.facts, run.events, run.turn)


def _compared(ours: Shown | None, theirs: Shown | None) -> str:
    if ours is None or theirs is None:
        return f"only in {'the simulator' if theirs is None else 'reality'}"
    return difference(ours, theirs)


def difference(ours: Shown, theirs: Shown) -> str:
    """Describe how a simulated run differs from the real one; empty if they are the same."""
    if ours.facts != theirs.facts:
        return f"the facts differ\n{_lines(ours.facts, theirs.facts)}"
    if ours.commands != theirs.commands:
        more, fewer = ours.commands - theirs.commands, theirs.commands - ours.commands
        return f"commands of the simulated turn alone: {more}, of the real one: {fewer}"
    if ours.digest != theirs.digest:
        return f"the digests are {ours.digest} and {theirs.digest}"
    if ours.spent != theirs.spent:
        return f"simulated, {ours.spent} was spent, and really {theirs.spent}"
    return ""


def _lines(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """Return the lines that only one of them has; all of them if only the order differs."""
    if list(ours) == list(theirs):
        return ""
    if sorted(ours) != sorted(theirs):
        more, fewer = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
        ours, theirs = list(more.elements()), list(fewer.elements())
    return "\n".join([*(f"simulated: {one}" for one in ours), *(f"real: {one}" for one in theirs)])
