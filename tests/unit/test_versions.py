"""Versions of an agent: which one a turn gets, and what a worker refuses. Pure."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from perdure import Agent, Registry, Rollout, StopRule, errors
from perdure.agents.versions import Tally
from perdure.temporal import search_attributes
from perdure.temporal.encryption import hiding
from perdure.temporal.start_request import fork_of
from perdure.turn.wire import Origin, TurnRequest
from perdure.worker import AgentWorker
from perdure.worker.assembly import build
from perdure.worker.settings import WorkerSettings
from perdure.worker.setup_checks import found

GOLDEN = "112222221221211212111221"
IDS = [f"turn-{number}" for number in range(10_000)]


def agent(version: str = "", **fields: Any) -> Agent:
    return Agent(**{"name": "support", "model": "offline:librarian", "version": version, **fields})


def built(agents: list[Agent], rollouts: dict[str, Rollout]) -> None:
    """Begin a worker."""
    build(AgentWorker(agents, rollouts=rollouts), WorkerSettings())


def checked(rollout: Rollout) -> Rollout:
    """The rollout of a worker with three versions."""
    return rollout.among("support", ["v1", "v2", "v3"])


def chosen(rollout: Rollout) -> dict[str, str]:
    return {id: checked(rollout).choice("support", id) for id in IDS}


@pytest.mark.accepts("V32")
def test_share_of_turns_is_the_weight() -> None:
    """The rest gets the default."""
    versions = list(chosen(Rollout({"v2": 0.1, "v3": 0.3})).values())

    assert [versions.count(name) / len(IDS) for name in ("v1", "v2", "v3")] == pytest.approx(
        [0.6, 0.1, 0.3], abs=0.02
    )


@pytest.mark.accepts("V32")
def test_choice_is_the_same_in_each_process_and_release() -> None:
    """It is a hash of the agent and the id, which must not change: turns are resolved again after a
    reset.
    """
    rollout = checked(Rollout({"v2": 0.5}, default="v1"))

    assert "".join(rollout.choice("support", id)[1] for id in IDS[:24]) == GOLDEN
    assert [rollout.choice(name, "turn-0") for name in ("a", "b", "c", "d")] != ["v1"] * 4


@pytest.mark.accepts("V32")
@given(st.floats(0, 1), st.floats(0, 1), st.text(max_size=20))
def test_greater_weight_moves_turns_only_to_that_version(one: float, two: float, id: str) -> None:
    less, more = sorted([one, two])
    before = Rollout({"v2": less}, default="v1").choice("support", id)
    after = Rollout({"v2": more}, default="v1").choice("support", id)

    assert (before, after) != ("v2", "v1")


@pytest.mark.accepts("V32")
def test_all_turns_of_a_tenant_have_one_version() -> None:
    """Those without a tenant are chosen by their id."""
    rollout = checked(Rollout({"v2": 0.5}, default="v1", by="tenant"))
    of_tenants = [{rollout.choice("support", f"@t{n}/{id}") for id in IDS[:50]} for n in range(20)]
    without = {rollout.choice("support", id) for id in IDS[:50]}

    assert all(len(versions) == 1 for versions in of_tenants)
    assert set.union(*of_tenants) == without == {"v1", "v2"}


@pytest.mark.accepts("V38")
def test_fork_of_a_fork_is_chosen_by_the_first_turn() -> None:
    """Of a session's turn, by the session; who resumes or forks is no part of what it is."""
    first = TurnRequest(agent="support", task="go")
    origin = Origin(turn_id="t", run_id="r", steps=1, digest="d")
    fork = fork_of(first, origin)
    second = fork_of(fork, origin.model_copy(update={"turn_id": "t~1"}))
    of_session = fork_of(first.model_copy(update={"session": "s"}), origin)

    turns = (first, fork, second, of_session)
    assert [turn.subject_of("x") for turn in turns] == ["x", "t", "t", "s"]
    assert second.origin is not None
    of_another = second.origin.model_copy(update={"subject": ""})
    assert second.digest() == second.model_copy(update={"origin": of_another}).digest()


@pytest.mark.accepts("V38")
def test_fork_with_another_agent_has_not_the_version_of_the_first() -> None:
    turn = TurnRequest(agent="support", task="go", version="v2")
    origin = Origin(turn_id="t", run_id="r", steps=1, digest="d")

    assert fork_of(turn, origin).version == "v2"
    assert fork_of(turn, origin, agent="other").version is None
    assert fork_of(turn, origin, agent="other", version="v7").version == "v7"


RULE = StopRule(times_worse=2, over=50, failures=5)


@pytest.mark.accepts("V46")
@pytest.mark.parametrize(
    ("version", "default", "stops"),
    [
        (Tally(50, 10), Tally(450, 45), True),
        (Tally(50, 9), Tally(450, 45), False),
        (Tally(49, 49), Tally(450, 0), False),
        (Tally(50, 4), Tally(450, 0), False),
        (Tally(50, 5), Tally(450, 0), True),
        (Tally(50, 50), Tally(), False),
        (Tally(50, 50), Tally(10, 6), False),
    ],
)
def test_rule_stops_a_version_that_fails_more_often(
    version: Tally, default: Tally, stops: bool
) -> None:
    """With enough turns, enough failures, and something to compare."""
    assert RULE.stops(version, default) is stops


BAD: dict[str, tuple[Any, str]] = {
    "share above 1": (lambda: Rollout({"v2": 1.1}), "version 'v2' must be a number from 0 to 1"),
    "share below 0": (lambda: Rollout({"v2": -0.1}), "from 0 to 1, not -0.1"),
    "share that is no number": (lambda: Rollout({"v2": "10%"}), "not '10%'"),  # type: ignore[dict-item]
    "share that is not finite": (lambda: Rollout({"v2": float("nan")}), "not nan"),
    "sum": (lambda: Rollout({"v2": 0.6, "v3": 0.6}), "its shares are 1.2 together"),
    "no mapping": (lambda: Rollout(0.1), "weights must be a mapping"),  # type: ignore[arg-type]
    "by": (lambda: Rollout({"v2": 0.1}, by="user"), "by must be"),  # type: ignore[arg-type]
    "no rule": (lambda: Rollout({"v2": 0.1}, stop=2), "stop must be a StopRule"),  # type: ignore[arg-type]
    "times": (lambda: StopRule(times_worse=1), "times_worse must be a number above 1"),
    "infinite": (lambda: StopRule(times_worse=float("inf")), "times_worse must be a number"),
    "over": (lambda: StopRule(over=0), "over must be a whole number"),
    "failures": (lambda: StopRule(failures=0), "failures must be a whole number"),
    "name": (lambda: agent("v 2"), "version 'v 2': use 1 to 64 of"),
    "at": (lambda: agent("a@b"), "version 'a@b': use"),
    "line": (lambda: agent("v2\n"), "use 1 to 64 of"),
    "twice": (lambda: Registry([agent("v1"), agent("v1")]), "named 'support@v1' is registered"),
    "without": (lambda: Registry([agent(), agent("v2")]), "has no version; give each one"),
    "without, later": (lambda: Registry([agent("v2"), agent()]), "has no version; give each one"),
}


@pytest.mark.accepts("V35")
@pytest.mark.parametrize("case", BAD)
def test_value_that_makes_no_sense_is_refused(case: str) -> None:
    """When it is made."""
    make, words = BAD[case]

    with pytest.raises(errors.ConfigurationError, match=words):
        make()


OF_WORKERS: dict[str, tuple[list[str], dict[str, Rollout], str]] = {
    "no rollout": (["v1", "v2"], {}, "agent support has the versions v1, v2; say which turns"),
    "unknown version": (
        ["v1", "v2"],
        {"support": Rollout({"v3": 0.1})},
        "no version 'v3'.* v1, v2",
    ),
    "unknown default": (
        ["v1", "v2"],
        {"support": Rollout({"v2": 0.1}, default="v0")},
        "no version 'v0'",
    ),
    "no default": (["v1", "v2", "v3"], {"support": Rollout({"v2": 0.1})}, "of all other turns"),
    "nothing left": (["v1", "v2"], {"support": Rollout({"v1": 0.5, "v2": 0.5})}, "default="),
    "unknown agent": (["v1"], {"sales": Rollout({"v2": 0.1})}, "a rollout of agent 'sales'"),
    "no versions": ([""], {"support": Rollout({"v2": 0.1})}, "has no versions"),
    "another type": (["v1"], {"support": 0.1}, "a Rollout"),  # type: ignore[dict-item]
}


@pytest.mark.accepts("V35")
@pytest.mark.parametrize("case", OF_WORKERS)
def test_worker_does_not_start_with_a_rollout_that_does_not_fit(case: str) -> None:
    """The error names the versions that there are."""
    versions, rollouts, words = OF_WORKERS[case]

    with pytest.raises(errors.ConfigurationError, match=words):
        built([agent(version) for version in versions], rollouts)


@pytest.mark.accepts("V35")
def test_check_of_a_worker_finds_a_rollout_that_does_not_fit() -> None:
    """Before it starts, beside the versions of its agents."""
    app = AgentWorker([agent("v1"), agent("v2")], rollouts={"support": Rollout({"v3": 0.1})})
    by_subject = {finding.subject: finding for finding in found(app)}

    assert by_subject["rollouts"].state == "failed"
    assert "no version 'v3'" in by_subject["rollouts"].words
    assert {"agent support@v1", "agent support@v2"} <= by_subject.keys()


@pytest.mark.accepts("V39")
@pytest.mark.parametrize(
    "labels",
    [
        {"version": "v2"},
        {"version:v2": ""},
        {"version:": "v2"},
        {"version:v2" + "=" * 300: "x"},
        {"version:" + "v" * 300: "x"},
    ],
)
def test_no_label_is_taken_for_the_version(labels: dict[str, str]) -> None:
    """Whatever its name: also one that is shortened."""
    written = list(search_attributes.searchable(labels))

    assert search_attributes.version_in(written) == ""
    assert search_attributes.version("v2") not in written


@pytest.mark.accepts("V39")
def test_labels_beside_the_version_fit() -> None:
    """The longest name, and more labels than there is room for."""
    labels = {f"label{number}": "x" * 100 for number in range(40)}
    [update] = search_attributes.of_version("v" * 64, labels)
    written = list(update.value or ())
    assert len(json.dumps(written)) <= 2_048
    assert search_attributes.version_in(written) == "v" * 64
    assert search_attributes.labels_of(written).items() <= labels.items()
    assert len(written) > 10


@pytest.mark.accepts("G13", "V39")
def test_labels_beside_the_version_are_kept_out_if_they_are_not_plain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The version is no secret of a caller, and lists are still filtered by it."""
    monkeypatch.setenv(hiding.LABELS_VARIABLE, "no")
    [update] = search_attributes.of_version("v2", {"customer": "4711"})

    assert update.value == [search_attributes.version("v2")]
