"""The simulator: turns keep their promises, and what is simulated can be repeated."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perdure import Agent, Allow, Budget, Deny, MCPServer, ProposedCall, ToolOutcome, errors, tool
from perdure.batch.wire import BatchStopReason
from perdure.session.facts import MessageSteered, SessionClosed, SessionContinued, TurnRecorded
from perdure.temporal.names import BATCH, FINISH_CALL, RUN_MIDDLEWARE, TELL_OBSERVERS, WEBHOOK
from perdure.testing import simulation
from perdure.testing.simulation import Simulation, caller_promises, promises, simulate
from perdure.testing.simulation.__main__ import main
from perdure.testing.simulation.calls.waits import MONTH_S, WAITS
from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun, UpdateResponse
from perdure.testing.simulation.server.server import BrokenError
from perdure.testing.simulation.shrinking import shrink
from perdure.testing.simulation.simulate import KINDS, Kind
from perdure.toolboxes import asking
from perdure.turn import carry, undo
from perdure.turn.facts import (
    CallFinished,
    HandedOver,
    JobStopped,
    Polled,
    TaskBegan,
    WaitEnded,
)
from perdure.turn.fold import apply, fold
from perdure.turn.state import TurnState
from perdure.turn.wait_values import Woken
from perdure.workflows.session.patches import RESULTS_FIRST

from ..support.thorough import some

SEEDS = 500
"""Of each kind; those of `FAST` are simulated every time."""
FAST: dict[Kind, int] = {"turn": 100, "session": 25, "batch": 25, "schedule": 25}
CHUNK = 25
"""So many seeds are a test, which several processes can take from each other."""
CHUNKS = [
    pytest.param(kind, first, marks=[pytest.mark.slow] if first >= FAST[kind] else [])
    for kind in KINDS
    for first in range(0, SEEDS, CHUNK)
]
FOUND = {
    317: "resume arrives in the workflow task of a failed call",
    347: "resume arrives in the workflow task that takes over the run before",
}
"""Seeds whose turns had another state than their readers, and why."""
FOUND_IN_BATCHES = {
    3: "cancelled-while-it-fails",
    36: "notes-early-additions",
}
"""Seeds of batches that broke a promise, and the patch of the mend."""
FOUND_IN_SESSIONS = {
    31: "an update arrives in the workflow task that is told of a late message or of a record",
}
"""Seeds of sessions that had another state than their readers, and why."""
UNDONE: tuple[tuple[Kind, int], ...] = (("turn", 13), ("turn", 57), ("turn", 262))
"""Simulations in which effects are taken back, or settled after their turn has gone on."""
ENDS = {"closed: completed", "closed: failed", "closed: canceled", "closed: continued_as_new"}
FAULTS = {
    *("lost before its effect", "lost after its effect", "frozen", "shut down", "too slow"),
    *("done twice", "lost tasks", "evicted", "rejected closes", "tasks of rejected updates"),
}


MONTHS = (215,)
"""Seeds whose turn waits for a month, over a deploy."""


@tool
def post(text: str) -> str:
    """Post a text."""
    raise AssertionError("tools are not called in a simulation")


def no_posts(call: ProposedCall) -> Allow | Deny:
    """A policy of a user."""
    return Deny(reason="no posts") if call.tool == "post" else Allow()


def events_of(made: Simulation) -> list[bytes]:
    """All histories of a simulation."""
    return [
        event.SerializeToString(deterministic=True)
        for run in made.server.runs
        for event in run.history.events
    ]


def markers_of(made: Simulation) -> list[str]:
    """What the patches of all histories of a simulation have noted."""
    return [
        str(attributes(event).details)
        for run in made.server.runs
        for event in run.history.events
        if name_of(event) == "MARKER_RECORDED"
    ]


def is_handed(run: SimulatedRun) -> bool:
    """Whether the turn of a run was handed over in it."""
    return any(isinstance(fact, HandedOver) for fact in run.facts)


def depth(run: SimulatedRun) -> int:
    """How many turns are above that of a run."""
    return 0 if run.parent is None else 1 + depth(run.parent[0])


def ends_of_waits(made: Simulation) -> Iterator[Woken]:
    """The ends of the waits of all turns of a simulation."""
    for run in made.server.runs:
        for fact in run.facts:
            if isinstance(fact, WaitEnded):
                yield from fact.woken


@pytest.fixture(scope="module")
def simulated() -> list[Simulation]:
    """Some turns of all kinds of agents that have all features, one for each seed."""
    return [simulate(seed) for seed in range(120) if Choices(seed).all_features]


@pytest.mark.accepts("Y110", "Y117", "Y130", "Y131")
@pytest.mark.parametrize(("kind", "first"), CHUNKS)
def test_every_promise_is_kept(kind: Kind, first: int) -> None:
    """A broken promise is told with its story."""
    made = (simulate(seed, kind=kind) for seed in range(first, first + CHUNK))

    assert [one.story for one in made if one.broken] == []


@pytest.mark.slow
@pytest.mark.accepts("Y117")
def test_everything_happens_in_some_session() -> None:
    """People send all that a session takes, messages are steered and answers are refused."""
    runs = [run for seed in range(15) for run in simulate(seed, kind="session").server.runs]
    sent = {update.request.input.name for run in runs for update in run.updates.values()}
    facts = {type(fact) for run in runs for fact in run.session_facts}
    refused = [run for run in runs if run.read.agent and run.read.agent.answer_checks]
    events = {name_of(event) for run in runs for event in run.history.events}

    assert "EXTERNAL_WORKFLOW_EXECUTION_SIGNALED" in events
    assert sent >= {"say", "unqueue", "interrupt", "resume", "close", "decide", "steer"}
    assert facts >= {MessageSteered, SessionContinued, SessionClosed, TurnRecorded}
    assert refused


@pytest.mark.slow
@pytest.mark.accepts("Y130", "Y131")
def test_everything_happens_in_some_batch() -> None:
    """They have several parts and runs, are cancelled, raised and run again, and send webhooks."""
    batches = [simulate(seed, kind="batch") for seed in range(13)]
    runs = [run for made in batches for run in made.server.runs]
    happened = {name for made in batches for name, count in made.counts.items() if count}
    sent = {
        update.request.input.name
        for run in runs
        for update in run.updates.values()
        if run.begun.type == BATCH
    }
    ends = {(run.begun.type, run.closed.removeprefix("WORKFLOW_EXECUTION_")) for run in runs}
    stops = {run.batch.note.stop for run in runs if run.batch.note}

    assert happened >= {"lost uploads", "retries"}
    assert sent == {"add_budget"}
    assert ends >= {(BATCH, "CONTINUED_AS_NEW"), (WEBHOOK, "COMPLETED"), (WEBHOOK, "FAILED")}
    assert stops >= {None, BatchStopReason.CANCELLED, BatchStopReason.FAILED}
    assert max(run.part.request.part for run in runs if run.part.request) > 2


@pytest.mark.accepts("Y132", "Y134")
@pytest.mark.parametrize(("seed", "patch"), FOUND_IN_BATCHES.items())
def test_batch_that_broke_a_promise_keeps_it(seed: int, patch: str) -> None:
    """The mend is in its history."""
    made = simulate(seed, kind="batch")

    assert made.broken is None, made.story
    assert any(patch in marker for marker in markers_of(made))


@pytest.mark.accepts("Y155")
@pytest.mark.parametrize("seed", FOUND_IN_SESSIONS, ids=FOUND_IN_SESSIONS.__getitem__)
def test_session_that_differed_from_its_readers_does_not_any_more(seed: int) -> None:
    """The mend is in its history."""
    made = simulate(seed, kind="session")

    assert made.broken is None, made.story
    assert any(RESULTS_FIRST in marker for marker in markers_of(made))


@pytest.mark.accepts("Y115")
@pytest.mark.parametrize("seed", FOUND, ids=FOUND.__getitem__)
def test_turns_that_differed_from_their_readers_do_not_any_more(seed: int) -> None:
    """Folded in the order of history, the facts of one run give another state."""
    made = simulate(seed)
    in_order = [
        fold(fact for fact in run.facts if not isinstance(fact, TaskBegan))
        for run in made.server.runs
    ]

    assert made.broken is None, made.story
    assert [run.read for run in made.server.runs] != in_order


@pytest.mark.accepts("Y115")
def test_next_run_would_not_find_the_state_that_is_folded_in_the_order_of_history() -> None:
    """What a run carries over has another digest then."""
    digests = set()
    for run in simulate(317).server.runs:
        ordered = in_order = TurnState()
        for fact in run.facts:
            ordered = apply(ordered, fact)
            in_order = in_order if isinstance(fact, TaskBegan) else apply(in_order, fact)
            if ordered != in_order and not ordered.in_flight and not in_order.in_flight:
                digests |= {(carry.state_of(ordered).digest, carry.state_of(in_order).digest)}

    assert digests
    assert all(ours != theirs for ours, theirs in digests)


@pytest.mark.accepts("Y118")
@pytest.mark.timeout(60)
def test_turn_whose_time_is_up_takes_over_the_messages_of_its_session() -> None:
    """It waits for more time, and goes on in a new run: before, it tried that for ever."""
    hurried = Agent(
        name="first",
        model="model:first",
        budget=Budget(time=timedelta(seconds=1)),
        on_exhausted="pause",
    )
    made = simulate(7, [hurried], kind="session")
    goes_on = [run.read for run in made.server.runs if run.closed.endswith("AS_NEW")]
    waits = [one.waiting for one in goes_on if one.request and one.request.origin]

    assert made.broken is None, made.story
    assert [waiting.reason for waiting in waits if waiting and "the time of" in waiting.reason]


@pytest.mark.accepts("Y116")
def test_update_that_waits_for_the_run_before_is_refused_at_the_end() -> None:
    """A delegate ends because it cannot take over its run before: a message waits for that."""
    made = simulate(251)
    codes = {
        update.failure.application_failure_info.type
        for run in made.server.runs
        for update in run.updates.values()
        if update.answer is UpdateResponse.FAILED and update.failure is not None
    }

    assert made.broken is None, made.story
    assert errors.TurnOverError.code in codes


@pytest.mark.slow
def test_everything_happens_in_some_turn() -> None:
    """The seeds reach every end of a run, and every fault of the server and of workers.

    A model activity that did not find its transcript in the simulated history would fail.
    """
    simulated = [simulate(seed) for seed in (*range(60), 93)]  # a rejected close is rare
    happened = {name for made in simulated for name, count in made.counts.items() if count}
    written = {
        name_of(event)
        for made in simulated
        for run in made.server.runs
        for event in run.history.events
    }

    assert happened >= ENDS | FAULTS
    assert written >= {
        *("START_CHILD_WORKFLOW_EXECUTION_INITIATED", "CHILD_WORKFLOW_EXECUTION_COMPLETED"),
        *("WORKFLOW_EXECUTION_SIGNALED", "WORKFLOW_EXECUTION_UPDATE_COMPLETED", "TIMER_FIRED"),
        *("ACTIVITY_TASK_FAILED", "ACTIVITY_TASK_TIMED_OUT", "ACTIVITY_TASK_CANCELED"),
    }
    assert errors.TranscriptMismatchError.code not in {
        attributes(event).failure.application_failure_info.type
        for made in simulated
        for run in made.server.runs
        for event in run.history.events
        if name_of(event) == "ACTIVITY_TASK_FAILED"
    }


@pytest.mark.accepts("Y135")
def test_a_quarter_of_the_turns_delegates_and_a_tenth_hands_over(
    simulated: list[Simulation],
) -> None:
    """With delegates of delegates, several at once, and some with a budget of their own."""
    deep = [simulate(seed, focus=("teams",)).server.runs for seed in (10, 12)]
    trees = [made.server.runs for made in simulated]
    delegates = [runs for runs in trees if any(run.parent for run in runs)]
    handed = [runs for runs in trees if any(is_handed(run) for run in runs)]
    keys = {child.key for runs in deep for run in runs for child in run.read.children}

    assert len(delegates) >= len(trees) // 4
    assert len(handed) >= len(trees) // 10
    assert max(depth(run) for runs in deep for run in runs) >= 2
    assert max(key.child for key in keys) == 2


@pytest.mark.accepts("Y136")
def test_turns_are_reset_while_they_run_and_after_their_end(simulated: list[Simulation]) -> None:
    """The new run begins with the history of the old one, and gets what came later once more."""
    resets = [
        (run, *run.base) for made in simulated for run in made.server.runs if run.base is not None
    ]
    ends = {base.closed for _, base, _ in resets}
    again = {
        name_of(event) for run, _, point in resets for event in run.history.events[point - 1 :]
    }

    assert ends > {"WORKFLOW_EXECUTION_TERMINATED"}
    assert again >= {"WORKFLOW_EXECUTION_UPDATE_ADMITTED", "WORKFLOW_EXECUTION_UPDATE_ACCEPTED"}
    for run, base, point in resets:
        assert run.history.events[: point - 1] == base.history.events[: point - 1]


@pytest.mark.accepts("Y137")
def test_turns_are_forked_and_resumed(simulated: list[Simulation]) -> None:
    """By the client's own code, and some with other limits."""
    happened = {name for made in simulated for name, count in made.counts.items() if count}
    requests = [run.read.request for made in simulated for run in made.server.runs]
    forks = [request for request in requests if request and request.forked_from]

    assert happened >= {"forks", "resumes"}
    assert any(request.budget for request in forks)
    assert {request.model for request in forks} >= {None, "model:second"}


@pytest.mark.accepts("Y138")
def test_other_agents_are_deployed_while_turns_run(simulated: list[Simulation]) -> None:
    """A turn that begins then has the new definition, others keep theirs."""
    deployed = [made for made in simulated if made.counts["deploys"]]
    definitions = [
        {
            (agent.name, agent.instructions, str(agent.middleware), str(agent.delegates))
            for run in made.server.runs
            if (agent := run.read.agent)
        }
        for made in deployed
    ]

    assert len(deployed) >= len(simulated) // 5
    assert any(len(some) > len({name for name, *_ in some}) for some in definitions)


@pytest.mark.accepts("Y158")
def test_delegates_are_terminated(simulated: list[Simulation]) -> None:
    """What they have spent is read from their histories."""
    ends = {
        run.closed for made in simulated for run in made.server.runs if run.parent and run.facts
    }
    read = [
        child
        for made in simulated
        for run in made.server.runs
        for child in run.read.children
        if child.read is not None
    ]

    assert "WORKFLOW_EXECUTION_TERMINATED" in ends
    assert read


@pytest.mark.accepts("Y159")
def test_observers_are_notified(simulated: list[Simulation]) -> None:
    """By activities of the worker, in a part of the turns."""
    scheduled = [
        attributes(event).activity_type.name
        for made in simulated
        for run in made.server.runs
        for event in run.history.events
        if name_of(event) == "ACTIVITY_TASK_SCHEDULED"
    ]

    assert TELL_OBSERVERS in scheduled


@pytest.mark.accepts("Y160", "Y161")
def test_effects_are_taken_back_and_settled_afterwards() -> None:
    """By turns of their own, which agents and people start, and by what people say."""
    made = [simulate(seed, kind=kind) for kind, seed in UNDONE]
    happened = {name for one in made for name, count in one.counts.items() if count}
    back = [run.read for one in made for run in one.server.runs if run.takes_back]

    assert [one.story for one in made if one.broken] == []
    assert happened >= {"effects to take back", "undone by people", "settled afterwards"}
    assert {"undone", "not undone"} <= {undo.progress(state) for state in back}
    assert any(state.request and state.request.undo and state.request.undo.then for state in back)


@pytest.mark.accepts("Y157")
def test_last_answer_is_not_asked_for_when_its_time_is_up() -> None:
    """The pause before it and the deadline end in one workflow task: before, it was begun."""
    made = simulate(495)

    assert made.broken is None, made.story


@pytest.mark.accepts("W1", "W28")
def test_turn_waits_for_a_month_over_a_deploy() -> None:
    """In virtual time, and in other simulations an event or a message comes first."""
    agent = Agent(name="first", model="model:first", instructions="Wait.", tools=WAITS)
    made = [simulate(seed, [agent]) for seed in MONTHS]
    ends = [[end for end in ends_of_waits(one) if end.waited_s >= MONTH_S] for one in made]

    assert [one.story for one in made if one.broken] == []
    assert all(ends)
    assert all(one.server.counts["deploys"] for one in made)


@pytest.mark.accepts("Y139")
def test_simulated_agents_have_middleware(simulated: list[Simulation]) -> None:
    """Its code runs in the activities of the worker, and some answers are refused."""
    ran = {
        attributes(event).activity_type.name
        for made in simulated
        for run in made.server.runs
        for event in run.history.events
        if name_of(event) == "ACTIVITY_TASK_SCHEDULED"
    }
    stages = {
        stage.name
        for made in simulated
        for run in made.server.runs
        if run.read.agent
        for stage in run.read.agent.middleware
    }

    assert RUN_MIDDLEWARE in ran
    assert len(stages) >= 3


@pytest.mark.accepts("Y113")
@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_histories_again(kind: Kind) -> None:
    """Byte for byte, also when its choices are replayed instead of drawn."""
    for seed in some(range(5)):
        made = simulate(seed, kind=kind)
        again = simulate(seed, kind=kind, choices=made.choices)

        assert events_of(simulate(seed, kind=kind)) == events_of(made) == events_of(again)


def test_without_further_choices_a_turn_ends_at_once() -> None:
    """Where every choice is the first one, nothing goes wrong and nobody interferes."""
    made = simulate(0, choices=())

    assert made.broken is None
    assert [run.closed for run in made.server.runs] == ["WORKFLOW_EXECUTION_COMPLETED"]
    assert not set(made.counts) & FAULTS


@pytest.mark.accepts("Y114")
def test_a_user_simulates_their_own_agent_and_policy() -> None:
    """Its limits and its policy hold, and its tools are not called."""
    agent = Agent(
        name="poster",
        model="openai:gpt-5-mini",
        tools=[post],
        policy=no_posts,
        budget=Budget(usd=9),
    )
    made = [simulate(seed, [agent]) for seed in range(10)]

    assert [one.story for one in made if one.broken] == []
    assert {one.server.runs[0].read.request.agent for one in made} == {"poster"}  # type: ignore[union-attr]


@pytest.mark.accepts("J18")
def test_people_answer_the_questions_of_simulated_turns() -> None:
    """Rightly, and not at all; and an answer that nobody has given breaks a promise. In seed 6 the
    deadline comes while the turn tells of its wait.
    """
    agent = Agent(
        name="asker", model="model:first", toolboxes=[asking(expires=timedelta(seconds=60))]
    )
    made = [simulate(seed, [agent]) for seed in range(13)]
    results = [
        (one, result)
        for one in made
        for run in one.server.runs
        for step in run.read.steps
        for result in step.results
        if result.name == "ask"
    ]
    answered = [
        (one, result)
        for one, result in results
        if result.outcome is ToolOutcome.DONE and "the default" not in result.content
    ]

    assert [one.story for one in made if one.broken] == []
    assert {result.outcome for _, result in results} == {
        ToolOutcome.DONE,
        ToolOutcome.DENIED,
        ToolOutcome.NOT_RUN,
    }
    assert {result.content for _, result in answered} <= {"red", "green", '{"n":1}', '{"n":2}'}
    nobody: Any = SimpleNamespace(people=SimpleNamespace(sent=[]), server=answered[0][0].server)
    with pytest.raises(BrokenError, match="nobody has said"):
        caller_promises.answers_are_of_people(nobody)


def test_an_agent_that_cannot_be_simulated_is_refused() -> None:
    """Nobody is asked for the tools of an MCP server."""
    server = MCPServer(name="desk", url="http://127.0.0.1/desk")

    with pytest.raises(errors.ConfigurationError, match="cannot be simulated yet"):
        simulate(0, [Agent(name="a", model="openai:gpt-5-mini", toolboxes=[server])])


@pytest.mark.accepts("Y113")
def test_a_failing_simulation_is_shrunk() -> None:
    """To the shortest choices that fail in the same way."""

    def tried(choices: Any) -> list[int] | None:
        return list(choices) if sum(choices) >= 3 and 2 in choices else None

    found = shrink([0, 1, 1, 0, 2, 1, 0, 3, 0, 0, 1], lambda one: one, tried)

    assert sorted(filter(None, found)) in ([1, 2], [2, 3])
    assert len(found) <= 8


@pytest.mark.accepts("Y113")
def test_a_turn_is_told_as_a_story() -> None:
    """The story of a turn has its events in order, with what they are about."""
    made = next(one for one in map(simulate, range(20)) if one.counts["closed: completed"])
    times = [float(line.split(" s ")[0]) for line in made.story.splitlines()]

    assert times == sorted(times)
    assert "turn, run 1: started" in made.story.splitlines()[0]
    assert "activity task scheduled step-1" in made.story


@pytest.mark.slow
def test_the_command_simulates_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m perdure.testing.simulation` exits with 0 if no promise was broken."""
    code = main(["--seeds", "2", "--first", "7"])
    said = capsys.readouterr().out

    assert code == 0
    assert "0 of 2 seeds of a turn broke a promise" in said
    assert "0 of 2 seeds of a session broke a promise" in said
    assert "0 of 2 seeds of a batch broke a promise" in said
    assert "0 of 2 seeds of a schedule broke a promise" in said


@pytest.mark.slow
def test_the_command_uses_several_processes() -> None:
    """As `make simulate` does."""
    module = [sys.executable, "-m", "perdure.testing.simulation"]
    done = subprocess.run(
        [*module, "--seeds", "2", "--workers", "2", "--kinds", "turn"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "0 of 2 seeds of a turn broke a promise" in done.stdout


def test_the_command_tells_a_story(capsys: pytest.CaptureFixture[str]) -> None:
    """`--story` prints the events of one seed."""
    assert main(["--first", "3", "--story", "--kinds", "turn"]) == 0

    assert "turn, run 1: started" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.accepts("Y162")
def test_results_of_jobs_are_sent_and_polled_and_jobs_are_cancelled() -> None:
    """Some results are refused. Tools of jobs are in a sixth of the simulations."""
    made = [simulate(seed) for seed in range(240) if Choices(seed).has_jobs]
    runs = [run for one in made for run in one.server.runs]
    facts = {type(fact) for run in runs for fact in run.facts}
    sent = [
        one for run in runs for one in run.updates.values() if one.request.input.name == FINISH_CALL
    ]

    assert facts >= {CallFinished, Polled, JobStopped}
    assert {one.answer for one in sent} >= {UpdateResponse.COMPLETED, UpdateResponse.REJECTED}


def test_choices_are_recorded_and_repeated() -> None:
    """After the repeated ones, all are the first option."""
    made = Choices(7)
    first = [made.below(10) for _ in range(5)]
    again = Choices(0, made.made)

    assert [again.below(10) for _ in range(7)] == [*first, 0, 0]
    assert again.made == [*first, 0, 0]


def test_every_promise_has_a_name_and_a_meaning() -> None:
    """The page names all of them, with the first sentence of their docstrings."""
    page = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text(encoding="utf-8")
    checks = [*promises.AFTER_TASKS, *promises.ALWAYS, *promises.AT_THE_END]

    for check in checks:
        assert check.__doc__
        assert " ".join(check.__doc__.split("\n\n")[0].split()) in " ".join(page.split())


def test_modules_are_small() -> None:
    """A reader takes them one at a time."""
    lines = {
        path.name: len(path.read_text(encoding="utf-8").splitlines())
        for path in Path(simulation.__file__).parent.glob("*.py")
    }

    assert max(lines.values()) < 350
