"""What Perdure promises about the logins of a person at an MCP server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.common import RawValue

from perdure.agents.mcp_logins import KEY
from perdure.temporal.payloads import unpack
from perdure.testing.simulation.calls.logins import DIARY_TOOLS, NOTE, SHARE, Offer
from perdure.testing.simulation.observations import Simulated, chain, effects_of, last_runs
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun, UpdateResponse
from perdure.testing.simulation.server.server import BrokenError
from perdure.turn.facts import AgentResolved, HandedOver, Scheduled, ToolReturned
from perdure.turn.keys import ModelKey, ToolKey, parse_key
from perdure.turn.wire import ToolOutput, ToolRun
from perdure.values.approvals import Decision
from perdure.values.inquiries import ServerAnswer

ASKED, MADE, TOOLS = (
    "logins are asked for once",
    "refused calls are made once",
    "tools of a login stay",
)
_REFUSED = (UpdateResponse.REJECTED, UpdateResponse.FAILED)


def logins_are_asked_for_once(simulated: Simulated) -> None:
    """A person is asked once for the login that a call waits for, until somebody has answered.

    Nobody is asked again about a call that somebody has declined to log in for, or after a login
    with all that the server demands. An answer counts for one question.
    """
    for asked in simulated.world.diary.asked:
        if asked.has_scopes and asked.told.given:
            message = f"{asked.activity.key} asks for a login that has all that is demanded"
            raise BrokenError(ASKED, message, asked.activity.run)
    for last in last_runs(simulated.server) if simulated.world.diary.asked else ():
        _check_asked(simulated, chain(simulated.server, last))


def _check_asked(simulated: Simulated, runs: Sequence[SimulatedRun]) -> None:
    asked: set[tuple[int, int]] = set()
    waits: set[tuple[int, int]] = set()
    rounds = Counter[str]()
    for run in runs:
        made: dict[int, tuple[ToolKey, list[ServerAnswer]]] = {}
        for event in run.history.events:
            content, key = attributes(event), _key_of(event)
            if key is not None:
                [payload] = content.input.payloads
                called = unpack(RawValue(payload), ToolRun)
                made[event.event_id] = key, (given := _given(called))
                if (key.step, key.call) in waits:
                    waits.remove((key.step, key.call))
                    rounds[called.call_id] += bool(given and given[-1].action == "accept")
            elif name_of(event) == "ACTIVITY_TASK_COMPLETED" and _asks(content, made):
                key, given = made[content.scheduled_event_id]
                if (key.step, key.call) in asked and not given:
                    raise BrokenError(ASKED, f"{key} asks again, and nobody has answered", run)
                if given and given[-1].action != "accept":
                    message = f"{key} asks again after the answer {given[-1].action!r}"
                    raise BrokenError(ASKED, message, run)
                asked.add((key.step, key.call))
                waits.add((key.step, key.call))
    for call_id, count in rounds.items():
        if count > (answers := _answers(simulated, runs[-1].id, call_id)):
            message = f"{call_id} is made again {count} times, after {answers} answers"
            raise BrokenError(ASKED, message, runs[-1])


def _key_of(event: HistoryEvent) -> ToolKey | None:
    """Return the key of the call that an event schedules; None for all others."""
    if name_of(event) != "ACTIVITY_TASK_SCHEDULED":
        return None
    key = parse_key(attributes(event).activity_id)
    return key if isinstance(key, ToolKey) else None


def _given(called: ToolRun) -> list[ServerAnswer]:
    """Return what people have answered so far to the question that asks for a login."""
    answers = called.answers.given if called.answers is not None else ()
    return [one for one in answers if one.key == KEY]


def _asks(completed: Any, made: dict[int, tuple[ToolKey, list[ServerAnswer]]]) -> bool:
    """Return whether the result of a call asks for a login."""
    if completed.scheduled_event_id not in made:
        return False
    [payload] = completed.result.payloads
    inquiry = unpack(RawValue(payload), ToolOutput).inquiry
    return inquiry is not None and any(one.login is not None for one in inquiry.questions)


def _answers(simulated: Simulated, turn_id: str, call_id: str) -> int:
    """Return how often somebody has said that the person has logged in for a call."""
    return sum(
        isinstance(one.content, Decision)
        and (one.workflow_id, one.content.call_id) == (turn_id, call_id)
        and one.content.answer is not None
        and one.last.answer not in _REFUSED
        for one in simulated.people.sent
    )


def refused_calls_are_made_once(simulated: Simulated) -> None:
    """A call that its server has refused for want of a login is made once after the login.

    If its result says that it was not made, it has had no effect.
    """
    effects = [one for one in simulated.world.effects if one.tool in (NOTE, SHARE)]
    for last in last_runs(simulated.server) if effects else ():
        events = effects_of(simulated.server, last)
        made = Counter(
            (_step_of(one.activity.key), one.call_id)
            for one in effects
            if one.activity.event_id < events.get(one.activity.run, 0)
        )
        for step in last.read.steps:
            for result in step.results:
                count = made[step.number, result.call_id]
                if count > 1 or (count and "was not called" in result.content):
                    message = f"{result.call_id} was made {count} times, and says {result.content}"
                    raise BrokenError(MADE, message, last)


def _step_of(key: str) -> int:
    parsed = parse_key(key)
    assert isinstance(parsed, ToolKey)
    return parsed.step


def tools_of_a_login_stay(simulated: Simulated) -> None:
    """A turn has the tools that a login has brought, in the words of then, as far as it may.

    They stay the same after another login, after its end and in each run. An agent that the turn is
    handed to begins with those of its own definition.
    """
    for offer in simulated.world.diary.offers:
        key = parse_key(offer.activity.key)
        if isinstance(key, ModelKey) and not key.is_last:
            _check_offered(simulated, offer, key)


def _check_offered(simulated: Simulated, offer: Offer, key: ModelKey) -> None:
    run = offer.activity.run
    tools: dict[str, str] = {}
    allowed: Sequence[str] | None = None
    for fact in (fact for one in chain(simulated.server, run) for fact in one.facts):
        match fact:
            case AgentResolved(agent=agent) | HandedOver(agent=agent):
                tools = {
                    one.name: one.description for one in agent.tools if one.name in DIARY_TOOLS
                }
                allowed = agent.allowed
            case ToolReturned(output=output):
                for one in output.tools:
                    if allowed is None or one.name in allowed:
                        tools.setdefault(one.name, one.description)
            case Scheduled(key=scheduled) if scheduled == key:
                break
    if offer.tools != tools:
        message = f"{offer.activity.key} has {offer.tools}, and not {tools}"
        raise BrokenError(TOOLS, message, run)


AT_THE_END = (logins_are_asked_for_once, refused_calls_are_made_once, tools_of_a_login_stay)
