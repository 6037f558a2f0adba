"""What Perdure promises to the caller of a turn: limits and definition hold until the end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pydantic_core import from_json

from perdure.session.wire import SessionRequest
from perdure.temporal.names import SESSION, TURN
from perdure.testing.simulation.choices import FORGED
from perdure.testing.simulation.observations import Simulated, agents_named, sessions
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.server import BrokenError
from perdure.turn.wire import TurnRequest
from perdure.values.approvals import Decision
from perdure.values.messages import ToolOutcome, ToolResult

PROMISE = "limits of the caller hold"
ANSWERS = "answers are of people"
ASK = "ask"


def definition_is_pinned(simulated: Simulated) -> None:
    """A turn keeps its definition: a deploy changes neither the instructions nor the model of it.

    After a handoff, these are those of the agent that has the turn.
    """
    if simulated.world.unpinned:
        message = f"{simulated.world.unpinned} was sent another definition"
        raise BrokenError("definition is pinned", message)


def live_text_is_of_its_call(simulated: Simulated) -> None:
    """Live text is what the model says in this call, from its beginning, and nothing else."""
    if simulated.hearing.misheard:
        raise BrokenError("live text is of its call", simulated.hearing.misheard)


def limits_of_the_caller_hold(simulated: Simulated) -> None:
    """What a caller has limited stays limited in forks, resumed turns, later runs and delegates.

    No tool has an effect that the caller has not allowed, also after a handoff; delegates have
    their own tools. If the task requires approval, no tool changes anything that nobody approved,
    also for delegates. A fork has the rules of the agent that its caller has named, and keeps each
    limit of the budget that it was not given anew. A turn of a session begins with the rules of the
    agent that its users have named last, also after a handoff.
    """
    request = simulated.request
    if isinstance(request, TurnRequest | SessionRequest):
        _check_effects(simulated, request)
    if isinstance(request, TurnRequest):
        _check_approvals(simulated, request)
        _check_budgets(simulated, request)
    _check_named(simulated)


def answers_are_of_people(simulated: Simulated) -> None:
    """An answer to a question is that of one person, as the person gave it, and counts once.

    Nobody is asked what cannot be asked, and what does not fit is never an answer. Without an
    answer, the result is the default of the question, or says that there is none.
    """
    given: dict[tuple[str, str], set[str]] = {}
    for one in simulated.people.sent:
        if isinstance(one.content, Decision) and one.content.answer is not None:
            place = one.workflow_id, one.content.call_id
            given.setdefault(place, set()).add(f"{one.content.by}: {one.content.answer}")
    for run in simulated.server.runs:
        for step in run.read.steps:
            for result in step.results:
                if result.name == ASK and result.outcome is ToolOutcome.DONE:
                    _check_answer(run, result, step.decisions, given)


def _check_answer(
    run: SimulatedRun,
    result: ToolResult,
    decisions: Sequence[Decision],
    given: Mapping[tuple[str, str], Collection[str]],
) -> None:
    answers = [one for one in decisions if one.call_id == result.call_id and one.answer is not None]
    if not answers and "so this is the default" in result.content:
        return
    if len(answers) != 1:
        message = f"{result.call_id} has {len(answers)} answers, and reads {result.content}"
        raise BrokenError(ANSWERS, message, run)
    [answer] = answers
    sent = f"{answer.by}: {answer.answer}"
    if sent not in given.get((run.id, result.call_id), ()):
        raise BrokenError(ANSWERS, f"nobody has said {sent} about {result.call_id}", run)
    if from_json(answer.answer or "null") in ("", 5, {"n": "one"}):
        raise BrokenError(ANSWERS, f"{answer.answer} is no answer to {result.call_id}", run)


def _check_effects(simulated: Simulated, request: TurnRequest | SessionRequest) -> None:
    """Check that no tool was called that the caller has not allowed."""
    allowed = request.allowed if isinstance(request, TurnRequest) else request.allowed_tools
    for effect in simulated.world.effects if allowed is not None else ():
        if _is_of_caller(effect.activity.run) and effect.tool not in (allowed or ()):
            message = f"{effect.tool} is called, and the caller allows {allowed}"
            raise BrokenError(PROMISE, message, effect.activity.run)


def _check_approvals(simulated: Simulated, request: TurnRequest) -> None:
    """Check that people have approved what changes anything, if the task requires that."""
    if not request.task.requires_human_approval:
        return
    approved = {
        (one.workflow_id, one.content.call_id)
        for one in simulated.people.sent
        if isinstance(one.content, Decision) and one.content.approve
    }
    for effect in simulated.world.effects:
        run = effect.activity.run
        is_of_turn = _is_asked_for(run.root)
        if is_of_turn and not effect.only_reads and (run.id, effect.call_id) not in approved:
            message = f"{effect.tool} ({effect.call_id}) is called, and nobody has approved it"
            raise BrokenError(PROMISE, message, run)


def _check_budgets(simulated: Simulated, request: TurnRequest) -> None:
    """Check that each turn of the caller has its limits and the rules of its agent."""
    limited = [name for name, limit in request.budget or () if limit is not None]
    for run in simulated.server.runs:
        if run.parent is not None or run.read.request is None or not _is_asked_for(run):
            continue
        if run.read.request.agent != request.agent:
            message = f"it begins with the rules of {run.read.request.agent}, after {request.agent}"
            raise BrokenError(PROMISE, message, run)
        lost = [name for name in limited if getattr(run.read.request.budget, name, None) is None]
        if lost:
            message = f"the caller has limited {lost}, and {run.id} has no such limit"
            raise BrokenError(PROMISE, message, run)


def _check_named(simulated: Simulated) -> None:
    """Check that the turns of a session begin with the rules of the agents that users have named.

    A turn before may have been handed over to another agent, which then has the next one, too. But
    the guardrails and limits are those of the agent that the session, or a message, was meant for.
    """
    named: dict[str, str] = {}
    for runs in sessions(simulated.server).values():
        named |= agents_named(runs)
    for run in simulated.server.runs:
        request = run.read.request
        is_of_session = request is not None and request.session is not None
        if not is_of_session or run.id not in named or run.is_left:
            continue
        if request is not None and request.agent != named[run.id]:
            message = f"it begins with the rules of {request.agent}, and named is {named[run.id]}"
            raise BrokenError(PROMISE, message, run)


def _is_of_caller(run: SimulatedRun) -> bool:
    """Return whether a run is of a turn of the caller that is not that of a delegate."""
    if not _is_asked_for(run):
        return False
    return run.begun.type == TURN and (run.parent is None or run.parent[0].begun.type == SESSION)


def _is_asked_for(run: SimulatedRun) -> bool:
    """Return whether the caller has asked for a turn, and no hook, forger or who takes back."""
    return not run.takes_back and not run.id.startswith(("hooks/", FORGED))
