"""In the simulator, operators reset what is no turn at the root, and releases follow each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.agents.definitions import RULES
from perdure.temporal.failures import RUN_ENDS
from perdure.testing.simulation import Simulation, simulate
from perdure.testing.simulation.features.earlier_release import PATCHES
from perdure.testing.simulation.server.commands import PATCH
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.simulate import Kind
from perdure.worker.supervision.lost_work import failure_of_lost

ROOT = Path(__file__).parents[2]
OPERATED: tuple[tuple[Kind, int, tuple[str, ...]], ...] = (
    ("session", 9000006, ("operators",)),
    ("batch", 9000023, ("operators",)),
    ("turn", 9000004, ("teams", "operators")),
)
"""Seeds that reset a session, a part of a batch, and a delegate."""
CONTINUED: tuple[tuple[Kind, int, tuple[str, ...]], ...] = (
    ("session", 9000234, ("operators",)),
    ("session", 9000039, ("operators",)),
)
"""Seeds that reset a run of a session, and of a turn of a session, which was continued."""


PAUSED: tuple[tuple[Kind, int], ...] = (("turn", 9), ("session", 20))
"""Seeds in which an attempt is stopped by an operator, and another one is refused."""

STREAMS: tuple[tuple[Kind, int], ...] = (("turn", 10), ("session", 2))
"""Seeds in which somebody sends updates without a pause to a run that is nearly full."""

FORGERIES: tuple[tuple[Kind, int], ...] = (("turn", 9), ("session", 3), ("schedule", 29))
"""Seeds in which somebody starts a workflow with the input of a later run."""


def failures_of(made: Simulation) -> set[str]:
    """What the activities say that failed, in all histories."""
    return {
        str(attributes(event).failure.message)
        for run in made.server.runs
        for event in run.history.events
        if name_of(event) == "ACTIVITY_TASK_FAILED"
    }


def patches_of(made: Simulation) -> set[str]:
    """What the markers of patches in all histories say."""
    return {
        str(attributes(event).details["patch-data"].payloads[0].data)
        for run in made.server.runs
        for event in run.history.events
        if name_of(event) == "MARKER_RECORDED" and attributes(event).marker_name == PATCH
    }


def ids_in(path: Path, constants: dict[str, str]) -> Iterator[str]:
    """Yield the ids of the patches that a module asks for, or the names of what has them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "patched":
            [asked] = node.args
            if isinstance(asked, ast.Constant):
                yield str(asked.value)
            elif isinstance(asked, ast.Name | ast.Attribute):
                name = asked.id if isinstance(asked, ast.Name) else asked.attr
                if name in constants:
                    yield constants[name]


def constants_in(path: Path) -> dict[str, str]:
    """The texts that a module gives a name."""
    return {
        target.id: str(node.value.value)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


@pytest.mark.accepts("S81", "S83")
@pytest.mark.parametrize(("kind", "seed", "focus"), OPERATED)
def test_what_is_reset_keeps_every_promise(kind: Kind, seed: int, focus: tuple[str, ...]) -> None:
    """The parent hears of the new run alone, and nothing of the old one is left."""
    made = simulate(seed, kind=kind, focus=focus)
    resets = [run for run in made.server.runs if run.base is not None]

    assert made.broken is None, made.story
    assert resets
    assert all(run.base[0].is_replaced for run in resets if run.base)


@pytest.mark.slow
@pytest.mark.accepts("S81")
@pytest.mark.parametrize(("kind", "seed", "focus"), CONTINUED)
def test_run_that_was_continued_is_reset(kind: Kind, seed: int, focus: tuple[str, ...]) -> None:
    """The run that continues it is terminated, and the new one goes on instead."""
    made = simulate(seed, kind=kind, focus=focus)
    bases = [run.base[0] for run in made.server.runs if run.base is not None]
    ends = [name_of(base.history.events[-1]) for base in bases]

    assert made.broken is None, made.story
    assert "WORKFLOW_EXECUTION_CONTINUED_AS_NEW" in ends


@pytest.mark.accepts("S82")
def test_earlier_release_has_earlier_rules_and_lacks_patches_until_the_deploy() -> None:
    """What it lacks is in no history before the deploy, and what it has is in some."""
    made = [simulate(seed, focus=("earlier release", "teams")) for seed in range(9000000, 9000012)]
    rules = {
        run.read.agent.rules
        for one in made
        for run in one.server.runs
        if run.read.agent is not None
    }

    assert [one.story for one in made if one.broken] == []
    assert min(rules) < RULES
    assert any(one.counts["deploys of this release"] for one in made)
    assert any(map(patches_of, made))


@pytest.mark.accepts("S82")
def test_earlier_release_knows_each_patch() -> None:
    """A patch that a later release adds belongs into the table."""
    files = list((ROOT / "workflows").rglob("*.py"))
    shared = {name: value for path in files for name, value in constants_in(path).items()}
    ids = {one for path in files for one in ids_in(path, {**shared, **constants_in(path)})}

    assert ids <= set(PATCHES)


@pytest.mark.accepts("S135")
@pytest.mark.parametrize(("kind", "seed"), PAUSED)
def test_attempts_that_operators_cause_are_refused(kind: Kind, seed: int) -> None:
    """As a real worker does. One that runs is stopped, and counts as lost, too."""
    made = simulate(seed, kind=kind, focus=("pauses",))
    failures = failures_of(made)

    assert made.broken is None, made.story
    assert made.counts["paused activities"]
    assert made.counts["reset activities"]
    assert any("handed this out a second time" in said for said in failures)
    assert any("an operator paused or reset this" in said for said in failures)


@pytest.mark.accepts("S136")
def test_attempts_of_a_killed_worker_end_as_its_supervisor_reports() -> None:
    """A failure that leaves no time for another attempt would end an activity for good."""
    made = [simulate(seed, kind="session", focus=("losses",)) for seed in range(4)]

    assert [one.story for one in made if one.broken] == []
    assert any(failure_of_lost().message in failures_of(one) for one in made)


@pytest.mark.accepts("S137")
@pytest.mark.parametrize(("kind", "seed"), STREAMS)
def test_run_ends_although_updates_come_without_a_pause(kind: Kind, seed: int) -> None:
    """It refuses those that come when it is about to end."""
    made = simulate(seed, kind=kind, focus=("streams",))
    failures = [one.failure for run in made.server.runs for one in run.updates.values()]
    types = [one.application_failure_info.type for one in failures if one is not None]

    assert made.broken is None, made.story
    assert made.counts["updates of a stream"] > 20
    assert made.counts["closed: continued_as_new"]
    assert RUN_ENDS in types


@pytest.mark.accepts("S138", "Y193")
@pytest.mark.parametrize(("kind", "seed"), FORGERIES)
def test_input_of_a_later_run_is_refused_by_a_first_run(kind: Kind, seed: int) -> None:
    """It asks nobody, and counts nothing of what the input says in the total of a schedule."""
    made = simulate(seed, kind=kind, focus=("forgers",))

    assert made.broken is None, made.story
    assert made.counts["forged inputs"]


@pytest.mark.accepts("S105")
def test_run_after_a_reset_does_not_reach_the_children_of_the_run_before_as_its_own() -> None:
    """Those are left whose earlier release cancels them as its own, and told by a promise."""
    made = simulate(372, kind="session", focus=("operators", "earlier release"))

    assert made.broken is None, made.story
    assert made.counts["children of a run before a reset"]
