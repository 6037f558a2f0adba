"""Every interleaving of a small turn keeps its promises."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from perdure.testing.simulation.exhaustive.__main__ import SPACES
from perdure.testing.simulation.exhaustive.choices import OpenChoices, OpenClock
from perdure.testing.simulation.exhaustive.interleavings import Space, interleaving
from perdure.testing.simulation.exhaustive.states import described

SMALL = Space("message", kills=0)
_COUNTS = re.compile(
    r"(\d+) interleavings, (\d+) states; (\d+) simulated to their end, (\d+) up to a known state"
)


def searched(code: str) -> str:
    """The output of a process of its own, since a search forks."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def command(space: Space) -> str:
    """The output of the command for one space."""
    detours = [] if space.detours is None else ["--detours", str(space.detours)]
    module = [sys.executable, "-m", "perdure.testing.simulation.exhaustive"]
    done = subprocess.run(
        [*module, "--interference", space.interference, "--kills", str(space.kills), *detours],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.accepts("Y148")
@pytest.mark.parametrize(
    "space",
    [
        Space("message", kills=0, detours=0),
        *(pytest.param(space, marks=pytest.mark.slow) for space in (SMALL, *SPACES)),
    ],
    ids=str,
)
@pytest.mark.timeout(3000)
def test_every_interleaving_keeps_every_promise(space: Space) -> None:
    """All of them are simulated to their end, or to a state from which all were simulated."""
    said = command(space)
    counts = _COUNTS.search(said)

    assert counts is not None, said
    interleavings, states, ended, pruned = map(int, counts.groups())
    assert interleavings >= ended > 1
    assert states > pruned > 0
    assert "0 broken promises" in said


@pytest.mark.slow
@pytest.mark.accepts("Y149")
@pytest.mark.parametrize("space", [SMALL, Space("message", 1, 0)], ids=str)
def test_pruning_leaves_nothing_out(space: Space) -> None:
    """Without pruning, as many interleavings end, and they end in the same states."""
    found = [
        json.loads(
            searched(
                "import json\n"
                "from perdure.testing.simulation.exhaustive.interleavings import Space, exhaust\n"
                f"found = exhaust({space!r}, prunes={prunes}, helped={prunes})\n"
                "print(json.dumps([found.interleavings, found.ended, found.states]))"
            )
        )
        for prunes in (True, False)
    ]
    [interleavings, ended, states], [all_interleavings, all_ended, all_states] = found

    assert interleavings == all_interleavings == all_ended
    assert ended < all_ended
    assert states == all_states


@pytest.mark.accepts("Y149")
def test_an_interleaving_is_repeated_by_its_choices() -> None:
    """Its story is the same, and another choice gives another story."""
    first = interleaving(SMALL, (0, 0, 1))

    assert first.broken is None
    assert interleaving(SMALL, first.choices) == first
    assert interleaving(SMALL, ()).story != first.story


def test_a_kill_and_a_detour_are_spent() -> None:
    """What is left of them decides whether there is a choice."""
    choices = OpenChoices(lambda count, *, is_kill=False: count - 1, kills=1, detours=1)

    assert choices.event(3, is_last_free=True) == 2
    assert [choices.event(3, is_last_free=False) for _ in range(2)] == [2, 0]
    assert choices.event(3, is_last_free=True) == 2
    assert [choices.kill(), choices.kill()] == [True, False]
    assert choices.made == [2, 2, 1, 1]
    assert choices.below(9) == 0


def test_time_passes_when_nothing_else_is_pending() -> None:
    """A timer fires after everything else."""
    happened: list[str] = []
    clock = OpenClock(
        OpenChoices(lambda count, *, is_kill=False: 0, 0, None), are_delegates_apart=True
    )
    clock.after(5, lambda: happened.append("timer"))
    clock.later(9, lambda: happened.append("event"))
    begun = clock.now_ns
    while clock.step():
        happened.append(str((clock.now_ns - begun) // 10**9))

    assert happened == ["event", "0", "timer", "5"]


def test_what_is_pending_is_known_by_what_it_closes_over() -> None:
    """Two functions of one place with the same values are the same event."""

    def pending(value: Any) -> Any:
        return lambda: value

    assert described(pending([1, "a"])) == described(pending([1, "a"]))
    assert described(pending([1, "a"])) != described(pending([1, "b"]))
    with pytest.raises(TypeError, match="object"):
        described(pending(object()))
