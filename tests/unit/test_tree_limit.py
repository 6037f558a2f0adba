"""The limit of turns in a tree, without workflows: it is shared like a budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import limits
from perdure.agents.definitions import AgentDefinition
from perdure.agents.delegates import Ancestor, Lineage, PinnedDelegate
from perdure.turn.decide import StartDelegates, moves_at_once, next_move
from perdure.turn.facts import AgentResolved, ChildEnded, ChildScheduled, ModelAnswered, TurnStarted
from perdure.turn.fold import apply, fold
from perdure.turn.keys import AgentKey, ChildKey, ModelKey
from perdure.turn.situation import Situation
from perdure.turn.state import TurnState
from perdure.turn.wire import Summary, TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage
from perdure.values.reports import Outcome, StopReason
from perdure.values.tasks import Task

from ..support.clerk import in_its_own_time
from ..support.delegating_turns import delegating, spawn

NAMES = ("editor", "researcher", "writer")


class Tree:
    """A tree whose turns delegate at random; some are lost with all that is below them.

    Attributes:
        started: The number of delegates' turns.
        refused: The number of refusals because of the limit.
    """

    def __init__(self, limit: int | None, draw: Random, *, parallel: bool) -> None:
        self.started = 0
        self.refused: list[str] = []
        self._limit, self._draw, self._parallel = limit, draw, parallel

    def grow(self, name: str = "editor", lineage: Lineage | None = None) -> TurnState:
        """A turn from its start to its end, with those below it."""
        others = [PinnedDelegate(name=other) for other in NAMES if other != name]
        agent = delegating(others=others, parallel=self._parallel, most=50).model_copy(
            update={"name": name, "max_depth": 4, "max_descendants": self._limit}
        )
        request = TurnRequest(agent=name, task=Task(content="go"), lineage=lineage)
        state = fold([TurnStarted(request), AgentResolved(AgentKey(), agent)])
        for step in range(1, self._draw.randint(2, 4)):
            state = self._work(
                apply(state, ModelAnswered(ModelKey(step), self._answer(others))), agent
            )
            self.refused += [
                result.content
                for result in state.steps[-1].results
                if "the tree of agents is limited" in result.content
            ]
        return state

    def _answer(self, others: list[PinnedDelegate]) -> ModelAnswer:
        asked = [
            spawn(*self._draw.choices([other.name for other in others], k=self._draw.randint(1, 3)))
            for _ in range(self._draw.randint(1, 3))
        ]
        numbered = tuple(
            call.model_copy(update={"id": f"c{place}"}) for place, call in enumerate(asked)
        )
        return ModelAnswer(
            message=AssistantMessage(parts=numbered), stop=StopReason.TOOL_CALLS, model="m"
        )

    def _work(self, state: TurnState, agent: AgentDefinition) -> TurnState:
        """Run the calls of a step; concurrent calls start all of their turns before one ends."""
        while state.open_step.calls:
            moves = (
                moves_at_once(state, agent)
                if self._parallel
                else (next_move(Situation(state, agent, None)),)
            )
            begun = list(_scheduled(state, moves))
            for fact in begun:
                state = apply(state, fact)
                self.started += 1
            for fact in self._draw.sample(begun, len(begun)):
                below = self.grow(fact.request.agent, fact.request.lineage)
                told = Summary(
                    agent=fact.request.agent,
                    outcome=Outcome.COMPLETED,
                    output="ok",
                    descendants=below.descendants,
                )
                state = apply(
                    state, ChildEnded(fact.key, told if self._draw.random() < 0.8 else None)
                )
        return state


def _scheduled(state: TurnState, moves: Sequence[object]) -> Iterator[ChildScheduled]:
    for move in moves:
        assert isinstance(move, StartDelegates)
        for place, errand in enumerate(move.errands, 1):
            lineage = Lineage(
                ancestors=(Ancestor(turn_id="t", key="k"),),
                depth_left=state.depth_left - 1,
                descendants_left=errand.descendants,
            )
            request = TurnRequest(
                agent=errand.agent, task=Task(content=errand.task), lineage=lineage
            )
            yield ChildScheduled(ChildKey(move.key.step, move.key.call, place), "t/c", request)


@pytest.mark.accepts("D18")
@in_its_own_time
@given(st.integers(1, 30), st.integers(), st.booleans())
def test_tree_has_never_more_turns_than_its_limit(limit: int, seed: int, parallel: bool) -> None:
    """For concurrent and for sequential turns; every turn within a share can be started."""
    tree = Tree(limit, Random(seed), parallel=parallel)

    root = tree.grow()

    assert tree.started <= root.descendants <= limit


@pytest.mark.accepts("D18")
def test_limit_of_a_tree_is_reached_and_said() -> None:
    """A tree that grows without end is stopped at the default, and earlier at a smaller limit."""
    trees = [Tree(limit, Random(7), parallel=False) for limit in (5, limits.DESCENDANTS)]
    for tree in trees:
        tree.grow()

    assert [bool(tree.refused) for tree in trees] == [True, True]
    assert trees[0].started <= 5 < trees[1].started <= limits.DESCENDANTS


def test_definition_of_an_earlier_release_limits_nothing() -> None:
    """Its turns continue as they started."""
    agent = delegating()
    state = fold(
        [
            TurnStarted(TurnRequest(agent="editor", task=Task(content="go"))),
            AgentResolved(AgentKey(), agent),
        ]
    )

    assert (agent.max_descendants, state.descendants_left) == (None, None)
