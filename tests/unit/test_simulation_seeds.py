"""Seeds that found faults, in the product or in the simulator, keep every promise now."""

from __future__ import annotations

import pytest

from perdure.testing.simulation import Simulation, simulate
from perdure.testing.simulation.server.commands import LOCAL
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.simulate import Kind
from perdure.workflows.session.patches import REFUSED_FIRST

FOUND: dict[tuple[Kind, int], str] = {
    ("session", 5000184): "a message to the running turn is taken back while that turn begins",
    ("session", 5000513): "a refused update comes with the timer of the time while a job is polled",
    ("session", 5000620): "a reminder is due after the close of its session",
    ("session", 5000761): "a turn that takes an effect back sends a webhook before its call",
    ("session", 136): "an earlier release begins a turn that was started with `on_wait`",
    ("session", 157): "a turn that has told of a wait is reset",
    ("session", 55): "two runs draw the same randomness",
    ("session", 427): "a turn ends while a message to it waits for the messages before",
    ("turn", 312): "a provider is busy again before it was back",
    ("session", 340): "a session is forked after its reset, and the fork has a budget of its own",
    ("session", 309): "the result of a job with an effect says that the job has failed",
    ("session", 468): "a reminder that came after the point of a reset comes again",
    ("turn", 736): "the clock goes back between two messages to a receiver of push notifications",
    ("batch", 288): "news come while a batch lets a task pass before it goes on in a new run",
    (
        "batch",
        157,
    ): "a turn begins ten minutes after the cancel of its batch, by clocks that are wrong",
    (
        "batch",
        176,
    ): "a turn ends 20 minutes after the cancel of its batch, by clocks that are wrong",
    (
        "batch",
        313,
    ): "a turn begins five minutes after the cancel of its batch, by clocks that are wrong",
    ("batch", 558): "a job whose effect has a key fails, and its call is made again",
    ("batch", 5000174): "an addition comes in the task before that",
    ("batch", 5000243): "a part asks whether there is a batch before the batch knows the part",
    ("schedule", 82): "a job succeeds whose tool has said that it has no effect",
    (
        "schedule",
        331,
    ): "a deadline comes in the task in which a wait begins, and the turn has to end",
    ("schedule", 700016): "a message is sent again after the end of its session",
}
"""What happened in the seeds."""
FOCUSED: dict[tuple[Kind, int, tuple[str, ...]], str] = {
    ("session", 121, ("operators",)): "two turns have one id after a reset, and one takes back",
    (
        "session",
        9020017,
        ("operators",),
    ): "the first run of a turn is reset, and a later one has brought about an effect",
    (
        "turn",
        9620188,
        ("teams", "operators", "payments", "resets"),
    ): "a turn is reset a second time, to a point before that of the first reset",
    ("turn", 114, ("jobs",)): "a tool fails after its job has begun, and the job has a result",
}
"""The same with a focus."""
QUICK = (("session", 427), ("batch", 5000174), ("schedule", 700016))
CANCELLED_LOCALLY = 118
"""A session with a turn that is cancelled as it begins to wait for an event by key."""
RESET_WITH_WEBHOOK = 0
"""A turn that is reset after its webhook was begun."""
RESET_TWICE = 91
"""A turn that is reset to a task that has got updates, in which it begins its webhook."""
RESET_WHILE_ITS_END_IS_TOLD = 44
"""A turn that is reset to a point after its webhook was begun, before that has read the end."""
ENDS_AT_A_CANCEL = 197
"""A session with a turn that is cancelled in the task in which two calls end, the second first."""
CHANGED_AT_A_REFUSAL = 10, 14
"""Sessions, with more resets, that are closed as Temporal refuses a start, or whose sender takes a
message back then."""
SECOND_ATTEMPT = 15
"""A session that gets a message between two attempts to start a turn, after a reset."""
TURNS_LEFT = 33, 43
"""Batches that are over while a turn goes on, whose part was reset and then terminated."""
FIRED_EARLY = 20
"""A session with a turn whose timer fires while the clock of the server is behind."""


def cancelled_locally(made: Simulation) -> int:
    """How many local activities were cancelled in all histories."""
    return sum(
        attributes(event).marker_name == LOCAL
        and attributes(event).failure.HasField("canceled_failure_info")
        for run in made.server.runs
        for event in run.history.events
        if name_of(event) == "MARKER_RECORDED"
    )


def has_folded_earlier_ends(made: Simulation) -> bool:
    """Whether a turn of a simulation has a marker that it has folded ends as they came."""
    return any(
        name_of(event) == "MARKER_RECORDED" and b"ends-in-order" in event.SerializeToString()
        for run in made.server.runs
        for event in run.history.events
    )


@pytest.mark.accepts("S49")
@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(*found, id=why, marks=[] if found in QUICK else [pytest.mark.slow])
        for found, why in FOUND.items()
    ],
)
def test_seed_that_found_a_fault_keeps_every_promise(kind: Kind, seed: int) -> None:
    """Its story is told if it does not."""
    made = simulate(seed, kind=kind)

    assert made.broken is None, made.story


@pytest.mark.slow
@pytest.mark.accepts("S49")
@pytest.mark.parametrize(
    ("kind", "seed", "focus"), [pytest.param(*found, id=why) for found, why in FOCUSED.items()]
)
def test_seed_with_a_focus_that_found_a_fault_keeps_every_promise(
    kind: Kind, seed: int, focus: tuple[str, ...]
) -> None:
    """Its story is told if it does not."""
    made = simulate(seed, kind=kind, focus=focus)

    assert made.broken is None, made.story


@pytest.mark.accepts("S116")
def test_calls_that_end_in_the_task_of_a_cancel_are_folded_as_they_ended() -> None:
    """The turn folded them in the order of its calls, and readers in that of history."""
    made = simulate(ENDS_AT_A_CANCEL, kind="session", focus=["cancels"])

    assert made.broken is None, made.story
    assert has_folded_earlier_ends(made)


@pytest.mark.accepts("Y176", "S100")
def test_timer_that_fires_before_its_moment_is_set_again() -> None:
    """The machines of the service have different times: it fires when that of the turn is not up.

    The turn waited for this timer again and again then, within one workflow task.
    """
    made = simulate(FIRED_EARLY, kind="session", focus=["clocks"])

    assert made.broken is None, made.story
    assert made.counts["wrong clocks"]


@pytest.mark.slow
@pytest.mark.accepts("S49", "H89")
def test_webhook_of_a_turn_that_was_reset_tells_the_end_of_that_run() -> None:
    """And not that of the run which goes on instead, whose parent waits for it."""
    made = simulate(RESET_WITH_WEBHOOK, focus=["teams", "resets"])

    assert made.broken is None, made.story
    assert made.counts["resets"]


@pytest.mark.accepts("S106")
@pytest.mark.parametrize("seed", [RESET_TWICE, RESET_WHILE_ITS_END_IS_TOLD])
def test_webhook_of_a_turn_that_is_reset_at_its_end_is_sent(seed: int) -> None:
    """One about each end: an id that is in use is replaced, and a reset is no end."""
    made = simulate(seed, focus=["teams", "resets"])

    assert made.broken is None, made.story
    assert made.counts["resets"]


@pytest.mark.accepts("S104")
def test_message_between_two_attempts_to_start_a_turn_is_read() -> None:
    """The second attempt, under another id, begins with what the session has by then."""
    made = simulate(SECOND_ATTEMPT, kind="session", focus=["operators"])

    assert made.broken is None, made.story
    assert made.counts["resets"]


@pytest.mark.accepts("S107")
@pytest.mark.parametrize("seed", CHANGED_AT_A_REFUSAL)
def test_what_comes_as_a_start_is_refused_counts_before_the_next_start(seed: int) -> None:
    """The refusal comes before the update in history; the turn is started under another id."""
    made = simulate(seed, kind="session", focus=["operators", "resets"])

    assert made.broken is None, made.story
    assert REFUSED_FIRST in "".join(
        str(attributes(event)) for run in made.server.runs for event in run.history.events
    )


@pytest.mark.slow
@pytest.mark.accepts("S49")
@pytest.mark.parametrize("seed", TURNS_LEFT)
def test_turns_are_cancelled_whose_part_was_reset_and_terminated(seed: int) -> None:
    """A client that runs the batch again waits for them, and nobody else ends them."""
    made = simulate(seed, kind="batch", focus=["clocks", "operators"])

    assert made.broken is None, made.story
    assert made.counts["resets"]


@pytest.mark.accepts("S48")
def test_local_activity_may_be_cancelled_in_the_task_that_begins_it() -> None:
    """It ends as cancelled, also in a replay, and nothing else of the turn is lost."""
    made = simulate(CANCELLED_LOCALLY, kind="session", focus=["keyed events", "builds", "jobs"])

    assert made.broken is None, made.story
    assert cancelled_locally(made) == 1
