"""Forks of a turn: new turns that continue from a complete step of it.

The client reads the turn's history up to that step, and the new turn is started with the digest of
its messages. The worker reads them again, from the same run, and records them in the new turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client
from temporalio.common import Priority

from perdure import errors, limits
from perdure.base import Value
from perdure.clients.reading.recorded import state_of
from perdure.clients.turns import undoing
from perdure.clients.turns.starting import Started, Starter
from perdure.clients.turns.status import in_words
from perdure.temporal import access, start_request
from perdure.temporal.histories.fetching import recorded
from perdure.temporal.histories.origins import points
from perdure.temporal.histories.runs import describe_last, runs_up_to
from perdure.temporal.priorities import inherited
from perdure.temporal.search_marks import Marks
from perdure.turn import carry, effects, undo, withheld
from perdure.turn.carry import Carried, may_be_asked
from perdure.turn.facts import ApprovalNeeded, ChildScheduled, Recorded, Scheduled
from perdure.turn.fold import apply
from perdure.turn.keys import CallKey, ChildKey, ToolKey
from perdure.turn.state import TurnState
from perdure.turn.waiting import PROVIDER
from perdure.turn.wire import Origin, TurnRequest
from perdure.values.effects import EffectRecord
from perdure.values.messages import Text, UserMessage
from perdure.values.reports import Outcome

if TYPE_CHECKING:
    from perdure.clients.turns.handle import Turn

_UNDONE = (
    "Since then, the effects of these calls were taken back, or are about to be. Do not rely on"
    " them: {calls}"
)
_RESUMABLE = (PROVIDER, "resume")
"""The kinds of waits that `resume` ends."""


class Effect(Value):
    """A call that a turn has run, of a tool that is not read-only.

    Attributes:
        step: The number of its step.
        tool: The name of the tool.
        call_id: The id of the call.
        is_known: Whether a fork answers a call with the same effect from the record of this one.
        can_undo: Whether `Turn.undo` can take its effect back.
    """

    step: int
    tool: str
    call_id: str
    is_known: bool = False
    can_undo: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """A point from which a turn can be forked.

    Attributes:
        turn_id: The turn's id.
        run_id: The run in which the point is.
        task_queue: The task queue of the turn.
        state: The state of the turn at that point.
        unread: The messages that the turn ended with unread, for a turn that is resumed.
        is_checked: Whether the checks of the agent have let the answer at the point pass since, if
            there is an answer.
        order: The fairness key of the turn, which a fork has as well.
    """

    turn_id: str
    run_id: str
    task_queue: str
    state: TurnState
    unread: tuple[UserMessage, ...] = ()
    is_checked: bool = True
    order: Priority = Priority.default

    @property
    def step(self) -> int:
        """The number of the last step before the point; 0 for the task alone."""
        return self.state.step_count

    @property
    def request(self) -> TurnRequest:
        """The input of a fork that keeps the agent at the point, also after a handoff.

        The rules stay the rules of the agent that the turn was started with. The agent that a model
        has handed over to since then has its own model.
        """
        state, request = self.state, self.state.request
        assert request is not None
        if state.agent is None or state.last_agent == (request.handed_to or request.agent):
            return request
        return request.model_copy(update={"handed_to": state.other_agent or None, "model": None})

    @property
    def has_answers(self) -> bool:
        """Whether there are answers that are withheld unless the checks have let them pass."""
        return withheld.without_answers(self.state) is not self.state

    @property
    def carried(self) -> Carried:
        """What a fork takes over."""
        return carry.messages_of(withheld.without_answers(self.state, has_passed=self.is_checked))


@dataclass(frozen=True, slots=True)
class _Search:
    """The result of a search for a point in one run.

    Attributes:
        first: The number of complete steps at the first point of the run; None without a point.
        last: The same at the last point that was read.
        found: The state at the last point that fits.
    """

    first: int | None = None
    last: int | None = None
    found: TurnState | None = None


class Forks:
    """Finds the points from which turns can be forked, and starts the forks.

    `turn_of` returns the turn that was started.
    """

    def __init__(
        self, client: Client, marks: Marks, turn_of: Callable[[Started], Turn[Any]]
    ) -> None:
        self.turn_of = turn_of
        self._client = client
        self._marks = marks

    def starter(self, task_queue: str) -> Starter:
        """Return what starts turns on a task queue."""
        return Starter(self._client, task_queue, self._marks)

    async def point(self, turn_id: str, run_id: str, step: int | None) -> Point:
        """Return the point after a step; None for the last complete step.

        Raises:
            InvalidRequestError: The turn has no such complete step.
            TurnNotFoundError: The history is gone.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
        """

        def fits(state: TurnState) -> bool:
            return step is None or state.step_count == step

        return await self._with_checks(await self._last_point(turn_id, run_id, fits, step))

    async def _with_checks(self, point: Point) -> Point:
        """Return the point with whether any answer at the point has passed."""
        if not point.has_answers:
            return point
        return _checked(point, await state_of(self._client, point.turn_id, point.run_id))

    async def resume_point(self, turn_id: str, run_id: str) -> Point | None:
        """Return the last point after which a model can be asked; None for a turn that waits.

        Such a turn waits for a provider, or to be resumed, and continues as itself.

        Raises:
            InvalidRequestError: The turn completed, or is running.
            TurnNotFoundError: The history is gone.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
        """
        state = await state_of(self._client, turn_id, run_id)
        if state.ended is None:
            if state.waiting is not None and state.waiting.kind in _RESUMABLE:
                return None
            raise errors.InvalidRequestError(
                f"turn {turn_id!r} is not over and does not wait for a provider, so it cannot be"
                f" resumed: {_doing(state)}",
                context={"turn_id": turn_id},
            )
        if state.ended.outcome is Outcome.COMPLETED:
            raise errors.InvalidRequestError(
                f"turn {turn_id!r} completed, so there is nothing to resume; fork it with a message"
                " for its model: turn.fork(say=…), or perdure fork --say",
                context={"turn_id": turn_id, "outcome": state.ended.outcome.value},
            )
        point = await self._last_point(
            turn_id, run_id, lambda at_point: may_be_asked(carry.messages_of(at_point))
        )
        return replace(_checked(point, state), unread=state.unread)

    async def _last_point(
        self,
        turn_id: str,
        run_id: str,
        fits: Callable[[TurnState], bool],
        step: int | None = None,
    ) -> Point:
        """Return the last point that fits, up to `step` if it is given.

        A later run is read before the run that it continues, because it is retained longer.
        """
        described, runs = await self._runs(turn_id, run_id)
        info = described.workflow_execution_info
        order = inherited(info.priority)
        search = _Search()
        for run in reversed(runs):
            search = await self._search(turn_id, run, fits, step)
            if search.found is not None:
                return Point(turn_id, run, info.task_queue, search.found, order=order)
            if step is not None and search.last is not None and search.last < step:
                raise _no_step(turn_id, step, search.last)
        raise _no_point(turn_id, step, search.first)

    async def _search(
        self, turn_id: str, run: str, fits: Callable[[TurnState], bool], step: int | None
    ) -> _Search:
        """Look in one run for the last point that fits, up to `step` if it is given."""
        first, last, fitting = None, None, None
        with access.TURN.asking(turn_id):
            async with contextlib.aclosing(points(self._client, turn_id, run)) as states:
                async for state in states:
                    last = state.step_count
                    first = last if first is None else first
                    if step is not None and last > step:
                        break
                    if fits(state):
                        fitting = state
        return _Search(first, last, fitting)

    async def _runs(
        self, turn_id: str, run_id: str
    ) -> tuple[DescribeWorkflowExecutionResponse, Sequence[str]]:
        with access.TURN.asking(turn_id):
            described = await describe_last(self._client, turn_id, run_id, retry=True)
            return described, await runs_up_to(self._client, described)

    async def start(
        self,
        point: Point,
        say: str,
        turn_id: str | None,
        *,
        by: str | None = None,
        act: str | None = None,
        **changes: Any,
    ) -> Turn[Any]:
        """Start a fork, or find the existing fork with this id.

        `by` is who forked or resumed the turn, and `act` which of the two. `changes` are as for
        `start_request.fork_of`. Without an id, it gets the first free id among `<id>~1`, `<id>~2`
        and so on.

        Raises:
            InvalidRequestError: No model could be asked, or an argument is not valid.
            PerdureError: As `AgentClient.start` raises it.
        """
        request = point.state.request
        if request is not None and request.undo is not None:
            raise errors.InvalidRequestError(
                f"turn {point.turn_id!r} takes an effect back and asks no model, so nothing goes on"
                " from it; undo the call again instead",
                context={"turn_id": point.turn_id},
            )
        carried = point.carried
        if not say and not may_be_asked(carried):
            raise errors.InvalidRequestError(
                f"step {point.step} of turn {point.turn_id!r} is an answer, so a fork from there"
                " needs a message for the model: say=…, or --say; or fork from an earlier step",
                context={"turn_id": point.turn_id, "step": point.step},
            )
        origin = Origin(
            turn_id=point.turn_id,
            run_id=point.run_id,
            steps=point.step,
            digest=carried.digest,
            say=say,
            withheld=not point.is_checked,
            by=by,
        )
        turn_request = point.request if changes.get("agent") is None else point.state.request
        assert turn_request is not None
        turn_request = turn_request.model_copy(update={"shared_state": point.state.shared})
        end = await self._end_with_effects(point)
        turn_request = _with_effects(turn_request, point, end)
        said = (*await self._undone(turn_request, point, end), *point.unread)
        request = start_request.fork_of(turn_request, origin, said=said, **changes)
        starter = self.starter(point.task_queue)
        if turn_id is not None:
            return self.turn_of(
                await starter.start(request, turn_id, priority=point.order, act=act)
            )
        for number in count(1):
            ending = f"~{number}"
            free = f"{point.turn_id[: limits.TURN_ID_CHARACTERS - len(ending)]}{ending}"
            with contextlib.suppress(errors.TurnExistsError):
                started = await starter.start(
                    request, free, if_exists="error", priority=point.order, act=act
                )
                return self.turn_of(started)
        raise AssertionError  # there is always a free number

    async def _end_with_effects(self, point: Point) -> TurnState | None:
        """Return the state of the turn now; None if none of its tools has a known effect."""
        agent = point.state.agent
        # at its beginning, a turn does not know its agent
        if agent is not None and not any(tool.effect for tool in agent.tools):
            return None
        return await state_of(self._client, point.turn_id, point.run_id)

    async def _undone(
        self, request: TurnRequest, point: Point, end: TurnState | None
    ) -> tuple[UserMessage, ...]:
        """Return what to tell the model of effects that are in its messages, but not there."""
        kept = [
            record
            for record in request.effects
            if record.turn_id != point.turn_id or record.step <= point.step
        ]
        planned: Collection[EffectRecord] = ()
        if end is not None and end.ended is not None:
            planned = undo.then_undoes(end, point.turn_id, end.ended.outcome)
        gone = await undoing.taken_back(self._client, kept, planned)
        if not gone:
            return ()
        calls = "; ".join(map(undo.in_words, gone))
        return (UserMessage(parts=(Text(text=_UNDONE.format(calls=calls)),)),)

    async def effects(self, turn_id: str, run_id: str, step: int | None) -> tuple[Effect, ...]:
        """Return the calls after a step that were run and whose tools are not read-only.

        None is the last complete step.

        Raises:
            InvalidRequestError: The turn has no such complete step.
            TurnNotFoundError: The history is gone.
            PayloadDecodeError: This process lacks the codec or the key of the turn.
        """
        point = await self.point(turn_id, run_id, step)
        _, runs = await self._runs(turn_id, run_id)
        effects: dict[tuple[int, str], Effect] = {}
        for run in runs[runs.index(point.run_id) :]:
            await self._collect(turn_id, run, point.step, effects)
        return tuple(sorted(effects.values(), key=lambda effect: effect.step))

    async def _collect(
        self, turn_id: str, run: str, step: int, effects: dict[tuple[int, str], Effect]
    ) -> None:
        """Add the effects of a run after a step."""
        state = TurnState()
        with access.TURN.asking(turn_id):
            async for _, fact in recorded(self._client, turn_id, run):
                if fact is None:
                    continue
                state = apply(state, fact)
                effect = _effect_of(state, fact)
                if effect is None or effect.step <= step:
                    continue
                if isinstance(fact, ApprovalNeeded):
                    effects.pop((effect.step, effect.call_id), None)
                else:
                    effects[effect.step, effect.call_id] = effect


def _with_effects(request: TurnRequest, point: Point, end: TurnState | None) -> TurnRequest:
    """Return the input of a turn with what is known of its effects, also after the point.

    A fork does not undo them. `end` is the state of the turn now, None if it has no effects.
    """
    root = undo.root_of(request, point.turn_id)
    first = {"turn": request.effect_scopes.turn or root}
    scopes = request.effect_scopes.model_copy(update=first)
    known = request.effects if end is None else effects.passed_on(end, point.turn_id)
    return request.model_copy(update={"effects": known, "effect_scopes": scopes})


def _effect_of(state: TurnState, fact: Recorded) -> Effect | None:
    """Return the effect of a call that a fact is about, once it is run or is found not to have run.

    None for a read-only tool and for every other fact.
    """
    match fact:
        case Scheduled(ToolKey() as key) | ApprovalNeeded(key) | ChildScheduled(ChildKey() as key):
            return _effect(state, key)
        case _:
            return None


def _effect(state: TurnState, key: CallKey) -> Effect | None:
    open_call = state.open_step.find(key.call)
    if open_call is None or state.agent is None:
        return None
    tool = state.agent.tool(open_call.call.name)
    if tool is not None and tool.is_read_only:
        return None
    effect = tool.effect if tool is not None else None
    return Effect(
        step=key.step,
        tool=open_call.call.name,
        call_id=open_call.call.id,
        is_known=effect is not None and effect.has_key and not effect.may_recur,
        can_undo=effect is not None and effect.can_undo,
    )


def _checked(point: Point, end: TurnState) -> Point:
    """Return the point with whether its answer has passed, by the last state of the turn.

    The checks see the last answer of a turn alone. Without answers that they could see, there is
    nothing to withhold: a worker of an earlier release withholds answers of any agent.
    """
    if not point.has_answers:
        return point
    return replace(point, is_checked=end.is_checked and end.step_count == point.step)


def _no_point(turn_id: str, step: int | None, first: int | None) -> errors.PerdureError:
    """Return the error for a turn whose runs have no point that fits.

    `first` is the number of complete steps at the first point that was read.
    """
    if first:
        return _gone_before(turn_id, first)
    if step is not None and first is None:
        return _no_step(turn_id, step, None)
    return errors.InvalidRequestError(
        f"turn {turn_id!r} has no point from which a model could be asked: it ended before it had a"
        " task",
        context={"turn_id": turn_id},
    )


def _gone_before(turn_id: str, step: int) -> errors.TurnNotFoundError:
    """Return the error for a step that is in a run whose history is gone."""
    return errors.TurnNotFoundError(
        f"the history of turn {turn_id!r} before step {step} is gone: its retention is over, or it"
        " was deleted; the turn can be forked from a later step",
        context={"turn_id": turn_id, "step": step},
    )


def _no_step(turn_id: str, step: int, last: int | None) -> errors.InvalidRequestError:
    known = "it took over no messages" if last is None else f"the last one is {last}"
    return errors.InvalidRequestError(
        f"turn {turn_id!r} has no complete step {step}: {known}",
        context={"turn_id": turn_id, "step": step},
    )


def _doing(state: TurnState) -> str:
    waiting = state.waiting
    if waiting is not None and waiting.is_told:
        return f"it waits for {waiting.kind}"
    return f"it is running, {in_words(state)}"
