"""What Perdure promises about the questions that an MCP server asks people during a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pydantic_core import from_json
from temporalio.common import RawValue

from perdure.temporal.payloads import unpack
from perdure.testing.simulation.calls.servers import AskingCall, ToldAnswers
from perdure.testing.simulation.observations import Simulated, chain, effects_of, last_runs
from perdure.testing.simulation.people import SentRequest
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun, UpdateResponse
from perdure.testing.simulation.server.server import BrokenError
from perdure.turn.inquiries import CONSENT
from perdure.turn.keys import ToolKey, parse_key
from perdure.turn.wire import ToolOutput, ToolRun
from perdure.values.approvals import Decision
from perdure.values.inquiries import ServerAnswer

PROMISE = "servers are told answers once"

_REFUSED = (UpdateResponse.REJECTED, UpdateResponse.FAILED)


def servers_are_told_answers_once(simulated: Simulated) -> None:
    """A server is told each answer of a person once, for the call and the question it was given to.

    The next run of the call tells it an answer to each question, or that there is none. The polls
    of a job tell it again until there is a result. An answer that was refused is not told, and one
    that was accepted is not lost over runs of the turn and resets.
    """
    server = simulated.world.servers
    for told in server.told:
        for answer in told.answers.given:
            if server.asked.get(answer.key) != told.place:
                message = f"{told.place} tells the answer to {answer.key!r} of another call"
                raise BrokenError(PROMISE, message, told.activity.run)
            if answer.action == "accept":
                _check_given(simulated, told, answer)
    for last in last_runs(simulated.server) if server.asked else ():
        _check_once(simulated, last)
        _check_complete(chain(simulated.server, last))


def _check_given(simulated: Simulated, told: ToldAnswers, answer: ServerAnswer) -> None:
    """Check that a person has given this answer about the call, and was not refused."""
    has_form = answer.key in simulated.world.servers.forms
    said = answer.content if has_form else CONSENT
    given = [
        one
        for one in simulated.people.sent
        if isinstance(one.content, Decision)
        and one.content.answer is not None
        and from_json(one.content.answer) == said
    ]
    if not any(_is_taken(simulated, one, told.place) for one in given):
        message = f"nobody has given {said!r} as the answer to {answer.key!r}"
        raise BrokenError(PROMISE, message, told.activity.run)


def _is_taken(simulated: Simulated, sent: SentRequest, place: AskingCall) -> bool:
    """Return whether a run of the turn has taken an answer; one after a reset may refuse it."""
    copies = [
        run.updates[sent.id]
        for run in simulated.server.runs
        if run.id == place.turn_id == sent.workflow_id and sent.id in run.updates
    ]
    return any(copy.answer not in _REFUSED for copy in copies)


def _check_once(simulated: Simulated, last: SimulatedRun) -> None:
    """Check that no answer is told in two runs of a call, and none for two questions."""
    events = effects_of(simulated.server, last)
    runs = Counter[str]()
    questions: dict[str, str] = {}
    for told in simulated.world.servers.told:
        is_of_turn = told.activity.event_id < events.get(told.activity.run, 0)
        for answer in told.answers.given if is_of_turn else ():
            runs[answer.key] += not told.is_poll
            text = str(answer.content) if answer.content else answer.key
            if questions.setdefault(text, answer.key) != answer.key:
                message = f"{text} is told for {questions[text]!r} and for {answer.key!r}"
                raise BrokenError(PROMISE, message, last)
    if twice := [key for key, count in runs.items() if count > 1]:
        raise BrokenError(PROMISE, f"the answers to {twice} are told in two runs of a call", last)


def _check_complete(runs: list[SimulatedRun]) -> None:
    """Check that the next run of a call tells an answer to each question of the run before."""
    asked: dict[tuple[int, int], list[str]] = {}
    for run in runs:
        keys: dict[int, ToolKey] = {}
        for event in run.history.events:
            content = attributes(event)
            if name_of(event) == "ACTIVITY_TASK_SCHEDULED":
                key = parse_key(content.activity_id)
                if isinstance(key, ToolKey):
                    keys[event.event_id] = key
                    [payload] = content.input.payloads
                    _check_told(run, key, unpack(RawValue(payload), ToolRun), asked)
            elif name_of(event) == "ACTIVITY_TASK_COMPLETED":
                ended = keys.get(content.scheduled_event_id)
                if ended is not None:
                    [payload] = content.result.payloads
                    inquiry = unpack(RawValue(payload), ToolOutput).inquiry
                    if inquiry is not None:
                        questions = [question.key for question in inquiry.questions]
                        asked[ended.step, ended.call] = questions


def _check_told(
    run: SimulatedRun, key: ToolKey, made: ToolRun, asked: Mapping[tuple[int, int], list[str]]
) -> None:
    questions = asked.get((key.step, key.call))
    if questions is None or made.answers is None:
        return
    told = [answer.key for answer in made.answers.given]
    if told != questions:
        message = f"{key} tells the answers to {told}, and was asked {questions}"
        raise BrokenError(PROMISE, message, run)
