"""What features add to a simulation: clients, servers, local tools, notices, hooks, schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from perdure.delivery.webhook import WaitMessage
from perdure.session.facts import ReminderDue, ReminderForgotten, ReminderSet
from perdure.temporal.names import (
    BATCH,
    FINISH_CALL,
    KEYED_EVENTS,
    PUSH,
    SCHEDULED_BATCH,
    SCHEDULED_MESSAGE,
    SETTLE_SCHEDULE,
)
from perdure.testing.simulation import Simulation, simulate
from perdure.testing.simulation.__main__ import main
from perdure.testing.simulation.batch_people import SCHEDULED
from perdure.testing.simulation.calls.keyed_events import KEYED
from perdure.testing.simulation.calls.logins import LOGINS
from perdure.testing.simulation.choices import LOSSES, Choices
from perdure.testing.simulation.delivery_promises import call_of
from perdure.testing.simulation.features.schedule_people import CHAT
from perdure.testing.simulation.features.schedules import MESSAGES
from perdure.testing.simulation.observations import ended_locally
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun, UpdateResponse
from perdure.testing.simulation.simulate import KINDS, Kind
from perdure.turn.facts import Decided, ToolReturned, WaitBegan, WaitEnded
from perdure.turn.waiting import CLIENT

SEEDS: dict[str, tuple[Kind, tuple[int, ...]]] = {
    "client tools": ("turn", (129, 70, 158)),
    "servers": ("turn", (194, 86)),
    "local tools": ("turn", (48, 144)),
    "live": ("turn", (135, 163)),
    "notices": ("turn", (110, 169, 152)),
    "hooks": ("turn", (1, 75)),
    "versions": ("turn", (156, 188)),
    "reminders": ("session", (149, 34, 49)),
}
"""Seeds that have each feature."""
LOST = ("lost after its effect", "shut down", "lost before its effect")
"""How an attempt can be lost."""
REFUSED_FOR_WAITS = 362
"""The seed of a turn whose URL for waits is refused, and that tells its end."""


def simulated(feature: str) -> list[Simulation]:
    """The simulations of a feature, which keep every promise."""
    kind, seeds = SEEDS[feature]
    made = [simulate(seed, kind=kind) for seed in seeds]
    assert all(Choices(seed, kind=kind).has(feature) for seed in seeds)
    assert [one.story for one in made if one.broken] == []
    return made


def runs_of(made: list[Simulation]) -> Iterator[SimulatedRun]:
    """All runs of simulations."""
    for one in made:
        yield from one.server.runs


def counts_of(made: list[Simulation]) -> Counter[str]:
    """How often what happened."""
    return sum((one.counts for one in made), Counter[str]())


@pytest.mark.accepts("S11")
def test_clients_send_results_once_twice_and_too_late() -> None:
    """The turn says that it waits for its client, and the first result counts."""
    made = simulated("client tools")
    kinds = {
        fact.kind for run in runs_of(made) for fact in run.facts if isinstance(fact, WaitBegan)
    }
    answers = {
        update.answer
        for run in runs_of(made)
        for update in run.updates.values()
        if update.request.input.name == FINISH_CALL
    }

    assert CLIENT in kinds
    assert answers >= {UpdateResponse.COMPLETED, UpdateResponse.REJECTED}


@pytest.mark.accepts("S12")
def test_servers_ask_people_who_answer_and_decline() -> None:
    """What they answer is told to the server with the next run of the call."""
    facts = [fact for run in runs_of(simulated("servers")) for fact in run.facts]
    asked = [
        fact for fact in facts if isinstance(fact, ToolReturned) and fact.output.inquiry is not None
    ]
    answered = [fact for fact in facts if isinstance(fact, Decided) and fact.decision.answer]

    assert asked
    assert answered


@pytest.mark.accepts("S70")
def test_people_log_in_for_calls_that_wait() -> None:
    """A call returns with the tools of the server, or is made after the login; a person is asked
    about some calls more than once, and what is said about an earlier question is refused.
    """
    made = [simulate(seed, focus=(LOGINS,)) for seed in (0, 6, 7, 34)]
    returned = [
        fact.output for run in runs_of(made) for fact in run.facts if isinstance(fact, ToolReturned)
    ]
    asked = [one for one in returned if one.inquiry and one.inquiry.questions[0].login]
    answers = {
        update.answer
        for run in runs_of(made)
        for update in run.updates.values()
        if update.id.startswith("login-")
    }

    assert [one.story for one in made if one.broken] == []
    assert any(one.tools for one in returned)
    assert len(asked) >= counts_of(made)["logins asked for"] > 0
    assert answers >= {UpdateResponse.COMPLETED, UpdateResponse.REJECTED}


@pytest.mark.accepts("S70")
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_people_log_in_for_turns_of_all_kinds(kind: Kind) -> None:
    """While delegates, handoffs, resets, forks and other builds come."""
    made = [simulate(seed, kind=kind, focus=(LOGINS, "teams", "builds")) for seed in range(20)]

    assert [one.story for one in made if one.broken] == []
    assert counts_of(made)["logins"] > 0


@pytest.mark.accepts("S13")
def test_local_calls_are_in_history_once() -> None:
    """As markers, which a replay reads."""
    made = simulated("local tools")
    ended = [
        ended_locally(event)
        for run in runs_of(made)
        for event in run.history.events
        if ended_locally(event) is not None
    ]

    assert counts_of(made)["local activities"] >= len(ended) > 0


@pytest.mark.accepts("S14")
def test_live_text_is_told_in_pieces() -> None:
    """Past history."""
    assert counts_of(simulated("live"))["pieces of live text"] > 2


@pytest.mark.accepts("S15")
def test_waits_are_told_by_webhooks() -> None:
    """Of several kinds, also of waits that go on in a new run."""
    deliveries = [
        call_of(run).message
        for run in runs_of(simulated("notices"))
        if run.begun.type == "AgentWebhook"
    ]
    kinds = {message.data.kind for message in deliveries if isinstance(message, WaitMessage)}

    assert len(kinds) > 1


@pytest.mark.accepts("S10")
def test_end_of_a_turn_is_told_whose_url_for_waits_is_refused() -> None:
    """The webhook about the end is delivered, or its failure is recorded."""
    made = simulate(REFUSED_FOR_WAITS)
    [turn] = [run for run in made.server.runs if run.id == "turn"]
    request = turn.read.request

    assert made.broken is None, made.story
    assert request is not None
    assert request.on_wait != request.on_done
    assert any(run.id.startswith("turn/on_done-") for run in made.server.runs)


@pytest.mark.accepts("S16")
def test_reminders_are_set_given_up_and_due() -> None:
    """In sessions whose turns run meanwhile."""
    facts = {type(fact) for run in runs_of(simulated("reminders")) for fact in run.session_facts}

    assert facts >= {ReminderSet, ReminderForgotten, ReminderDue}


@pytest.mark.accepts("V49")
def test_agents_have_both_versions() -> None:
    """Of one name, in one simulation as well."""
    made = simulated("versions")
    agents = [run.read.agent for run in runs_of(made) if run.read.agent is not None]

    assert {agent.version.name for agent in agents} == {"v1", "v2"}


@pytest.mark.accepts("S17")
def test_deliveries_to_hooks_start_turns() -> None:
    """Most of them are sent more than once."""
    made = simulated("hooks")
    started = {run.id for run in runs_of(made) if run.id.startswith("hooks/")}

    assert started
    assert counts_of(made)["hooks"] > len(started)


@pytest.mark.accepts("S24")
def test_turns_get_events_by_key() -> None:
    """Several turns and calls get the same, also those that begin to wait after it."""
    made = [simulate(seed, focus=(KEYED,)) for seed in range(12)]
    ends = [
        end
        for run in runs_of(made)
        for fact in run.facts
        if isinstance(fact, WaitEnded)
        for end in fact.woken
        if end.event_key and end.by == "event"
    ]
    keepers = {run.id for run in runs_of(made) if run.begun.type == KEYED_EVENTS}

    assert [one.story for one in made if one.broken] == []
    assert counts_of(made)["events by key"] >= len(keepers) > 1
    assert ends


@pytest.mark.accepts("S24")
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_events_by_key_come_to_turns_of_all_kinds(kind: Kind) -> None:
    """While other builds become the current one."""
    made = [simulate(seed, kind=kind, focus=(KEYED, "builds")) for seed in range(20)]

    assert [one.story for one in made if one.broken] == []
    assert any(run.begun.type == KEYED_EVENTS and run.begun.continued for run in runs_of(made))


@pytest.mark.accepts("S25", "S32")
def test_receivers_of_push_notifications_are_told() -> None:
    """Of waits and of the end; one that the worker refuses is told nothing, and some are cancelled
    before they begin.
    """
    made = [simulate(seed, focus=("push", "builds")) for seed in range(8)]
    pushes = [run for run in runs_of(made) if run.begun.type == PUSH]

    assert [one.story for one in made if one.broken] == []
    assert counts_of(made)["push notifications"] > 0
    assert {run.closed for run in pushes} >= {
        "WORKFLOW_EXECUTION_CANCELED",
        "WORKFLOW_EXECUTION_COMPLETED",
        "WORKFLOW_EXECUTION_FAILED",
    }


@pytest.mark.accepts("S18")
def test_schedules_start_skip_and_pause() -> None:
    """What their turns have spent is counted by an activity."""
    made = [simulate(seed, kind="schedule") for seed in range(25)]
    happened = counts_of(made)
    activities = {
        attributes(event).activity_type.name
        for run in runs_of(made)
        for event in run.history.events
        if name_of(event) == "ACTIVITY_TASK_SCHEDULED"
    }

    assert [one.story for one in made if one.broken] == []
    assert happened["started by schedules"] < happened["slots"]
    assert SETTLE_SCHEDULE in activities


@pytest.mark.accepts("S27")
def test_schedules_send_messages_to_a_session() -> None:
    """Some while a turn of it runs."""
    made = [simulate(seed, kind="schedule", focus=(MESSAGES,)) for seed in range(12)]
    ends = {run.closed for run in runs_of(made) if run.begun.type == SCHEDULED_MESSAGE}
    turns = [run for run in runs_of(made) if run.id.startswith(f"{CHAT}/")]

    assert [one.story for one in made if one.broken] == []
    assert ends >= {"WORKFLOW_EXECUTION_COMPLETED"}
    assert turns


@pytest.mark.accepts("S28")
def test_batches_are_started_by_schedules() -> None:
    """Their tasks are stored by a worker that is lost at times."""
    made = [simulate(seed, kind="batch", focus=(SCHEDULED,)) for seed in range(8)]
    begun = {run.begun.continued for run in runs_of(made) if run.begun.type == BATCH}
    stored = [run for run in runs_of(made) if run.begun.type == SCHEDULED_BATCH]

    assert [one.story for one in made if one.broken] == []
    assert any(run.begun.run_id in begun for run in stored)


@pytest.mark.accepts("S19")
@pytest.mark.parametrize("kind", ["session", "batch"])
def test_sessions_and_batches_have_jobs_as_often_as_turns(kind: Kind) -> None:
    """A third of them and a sixth more, instead of a sixth."""
    having = [seed for seed in range(300) if Choices(seed, kind=kind).has_jobs]

    assert 90 <= len(having) <= 180


@pytest.mark.accepts("S21")
def test_focus_has_its_features_and_no_other() -> None:
    """Its aims happen far more often, and a shorter story of it has the same focus."""
    focused = [Choices(seed, focus=("jobs", LOSSES)) for seed in range(20)]
    some, many = (
        sum(counts_of([simulate(seed, focus=focus) for seed in range(4)])[fate] for fate in LOST)
        for focus in (("waits",), ("waits", LOSSES))
    )

    assert all(choices.has_jobs and choices.aims_at(LOSSES) for choices in focused)
    assert not any(choices.all_features or choices.has_waits for choices in focused)
    assert not any(choices.has(feature) for choices in focused for feature in SEEDS)
    assert many > 4 * some


@pytest.mark.accepts("S22")
@pytest.mark.parametrize(
    "kind", ["turn", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("session", "batch"))]
)
def test_runs_move_to_other_builds(kind: Kind) -> None:
    """And keep every promise."""
    made = [simulate(seed, kind=kind, focus=("builds",)) for seed in range(4)]

    assert [one.story for one in made if one.broken] == []
    assert counts_of(made)["moves"] > 0


@pytest.mark.accepts("S21")
def test_focus_is_chosen_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """As features and aims."""
    code = main(["--seeds", "2", "--kinds", "turn", "--focus", "builds", LOSSES])

    assert code == 0
    assert "2 seeds of a turn" in capsys.readouterr().out


@pytest.mark.accepts("S33")
@pytest.mark.parametrize(("kind", "seed"), [("session", 88), ("batch", 58), ("turn", 2013)])
def test_checks_know_the_order_within_a_workflow_task(kind: Kind, seed: int) -> None:
    """Of a reminder after a close, of a result beside a poll, and of a wait beside a cancel."""
    made = simulate(seed, kind=kind)

    assert made.broken is None, made.story


@pytest.mark.accepts("S34", "S35")
def test_turn_goes_on_in_a_new_run_while_a_poll_ends() -> None:
    """The result of its job has come from outside; the next run does not poll."""
    made = simulate(342, kind="session", focus=["jobs"])
    goes_on = [run.read for run in made.server.runs if run.closed.endswith("CONTINUED_AS_NEW")]

    assert made.broken is None, made.story
    assert [state.in_flight for state in goes_on if state.in_flight]


@pytest.mark.accepts("S127")
@pytest.mark.parametrize("kind", ["turn", "session"])
def test_people_send_messages_that_input_guardrails_refuse(kind: Kind) -> None:
    """Turns end for that, and no promise is broken."""
    made = [simulate(seed, kind=kind, focus=["inputs"]) for seed in range(8)]
    ends = [run.read.ended for one in made for run in one.server.runs if run.read.ended]
    errors = [end.summary.error for end in ends if end.summary and end.summary.error]

    assert [one.story for one in made if one.broken] == []
    assert [error for error in errors if error.code == "GUARDRAIL"]
