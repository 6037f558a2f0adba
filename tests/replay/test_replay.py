"""Replays in a fresh process with an empty cache, of the stored histories and of histories recorded
now.
"""

from __future__ import annotations

import asyncio
import base64
import getpass
import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from perdure import errors
from perdure.temporal.histories.turn_history import HistoryReader
from perdure.turn import carry
from perdure.turn.facts import TurnContinued
from perdure.turn.fold import fold
from perdure.turn.state import TurnState
from perdure.values.budgets import Spending
from perdure.values.reports import Outcome
from perdure.workflows import AgentTurn

from ..conftest import Runtime, fold_history
from ..support.histories import OUTCOMES, STORED, stored
from .record import FOLDER, KINDS, record, texts

FRESH = Path(__file__).parent / "fresh.py"


@pytest.mark.accepts("Y6", "Y58")
@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
async def test_stored_history_replays(path: Path) -> None:
    """The current code makes the same decisions as the code that recorded it."""
    replayed = await Replayer(workflows=[AgentTurn]).replay_workflow(stored(path))

    assert replayed.replay_failure is None


@pytest.mark.accepts("Y6")
@pytest.mark.parametrize("content", ["", []], ids=["no word", "no part"])
async def test_history_of_a_turn_that_no_client_would_start_today_replays(content: object) -> None:
    """Validation became stricter; earlier input is still read as it was."""
    told = json.loads((FOLDER / "plain.json").read_text(encoding="utf-8"))
    given = {
        "agent": "adder",
        "task": {"content": content},
        "options": {"max_output_tokens": 10**40},
        "allowed_tools": [],
    }
    [payload] = told["events"][0]["workflowExecutionStartedEventAttributes"]["input"]["payloads"]
    payload["data"] = base64.b64encode(json.dumps(given).encode()).decode()
    history = WorkflowHistory.from_json("adder/plain", json.dumps(told))

    replayed = await Replayer(workflows=[AgentTurn]).replay_workflow(history)
    state = await folded(history)

    assert replayed.replay_failure is None
    assert state.request is not None
    assert state.request.options is not None
    assert (state.request.options.max_output_tokens, len(state.steps)) == (10**40, 1)


@pytest.mark.accepts("Y6", "Y12")
@pytest.mark.parametrize(
    ("name", "outcome"),
    [("loop_in_one_answer", Outcome.LOOP), ("warned_in_one_answer", Outcome.COMPLETED)],
)
async def test_turn_that_began_by_the_earlier_rule_of_loops_ends_by_it(
    name: str, outcome: Outcome
) -> None:
    """Three equal calls in one answer were a loop, for which a turn ended or its model was warned:
    the rule is that of the pinned agent.
    """
    history = stored(FOLDER.parent / f"earlier/{name}.json")

    replayed = await Replayer(workflows=[AgentTurn]).replay_workflow(history)
    state = await folded(history)

    assert replayed.replay_failure is None
    assert state.ended is not None
    assert state.ended.summary is not None
    assert (state.ended.outcome, state.transcript.digest, len(state.steps[0].results)) == (
        outcome,
        state.ended.summary.digest,
        3,
    )


@pytest.mark.accepts("Y6", "E24")
async def test_turn_that_began_when_the_limit_of_iterations_did_not_pause_ends_at_it() -> None:
    """Its agent pauses when the budget is spent; before rules 2 that did not apply to its limit of
    iterations.
    """
    history = stored(FOLDER.parent / "earlier/limit_of_a_pausing_agent.json")

    replayed = await Replayer(workflows=[AgentTurn]).replay_workflow(history)
    state = await folded(history)

    assert replayed.replay_failure is None
    assert state.agent is not None
    assert state.ended is not None
    assert (state.agent.on_exhausted, state.agent.rules, state.ended.outcome) == (
        "pause",
        1,
        Outcome.MAX_ITERATIONS,
    )


@pytest.mark.accepts("Y6")
async def test_turn_that_ended_without_search_attributes_when_they_were_not_yet_set_replays() -> (
    None
):
    """Before its agent was known: the history of a turn whose client set some at its start, and
    that set none at its end.
    """
    told = json.loads((FOLDER / "unknown_agent.json").read_text(encoding="utf-8"))
    marks = {
        name: {
            "metadata": {"encoding": "anNvbi9wbGFpbg==", "type": "S2V5d29yZA=="},
            "data": "IngiCg==",
        }
        for name in ("PerdureAgent", "PerdureState")
    }
    told["events"][0]["workflowExecutionStartedEventAttributes"]["searchAttributes"] = {
        "indexedFields": marks
    }

    replayed = await Replayer(workflows=[AgentTurn]).replay_workflow(
        WorkflowHistory.from_json("adder/unknown", json.dumps(told))
    )

    assert replayed.replay_failure is None


@pytest.mark.table(10)
@pytest.mark.accepts("Y6", "Y12")
@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
async def test_stored_history_folds_to_what_its_workflow_said(path: Path) -> None:
    """A current reader gets the same transcript: length, digest, counters and usage are those of
    its summary.
    """
    state = await folded(stored(path))

    assert (state.ended and state.ended.outcome) == OUTCOMES[path.stem]
    if state.ended and (summary := state.ended.summary) is not None:
        seen = (
            state.transcript.length,
            state.transcript.digest,
            state.step_count,
            state.accounts.model_calls,
            state.tool_calls,
            state.accounts.usage,
        )
        told = (
            summary.length,
            summary.digest,
            summary.steps,
            summary.model_calls,
            summary.tool_calls,
            summary.usage,
        )
        assert seen == told
        # the first histories are older than budgets
        assert summary.spent in (Spending(), state.charged)


@pytest.mark.accepts("Y25", "Y12")
async def test_stored_run_takes_over_what_the_run_before_left() -> None:
    """The next run of today would take over the same from the stored one."""
    first, second = (stored(FOLDER / f"{name}.json") for name in ("first_run", "second_run"))
    [began] = await HistoryReader(DataConverter.default).facts(second.events[0])

    assert isinstance(began, TurnContinued)
    assert began.continuation.continues.digest == carry.state_of(await folded(first)).digest


@pytest.mark.accepts("Y23", "Y6")
async def test_history_that_ended_at_the_limit_of_events_of_an_earlier_release_replays() -> None:
    """It ended typed, where a turn of today goes on in a new run."""
    history = stored(FOLDER.parent / "earlier/limit_of_events.json")

    replayed = await Replayer(workflows=[AgentTurn]).replay_workflow(history)
    state = await folded(history)

    assert replayed.replay_failure is None
    assert state.ended is not None
    assert state.ended.summary is not None
    assert state.ended.summary.error is not None
    assert state.ended.summary.error.code == errors.TooLargeError.code


async def folded(history: WorkflowHistory) -> TurnState:
    """The state that a reader folds from a history without a server."""
    reader, state = HistoryReader(DataConverter.default), TurnState()
    for event in history.events:
        state = fold(await reader.facts(event), state)
    return state


@pytest.mark.accepts("Y6")
def test_every_kind_is_stored() -> None:
    """A new kind of turn has to be recorded: `python -m tests.replay.record KIND`."""
    assert sorted(OUTCOMES) == [path.stem for path in STORED] == sorted(KINDS)


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_history_tells_nothing_of_the_machine_that_recorded_it(path: Path) -> None:
    """No host, process, user or folder, in plain or encoded form."""
    text = texts(path.read_text(encoding="utf-8"))
    here = [
        socket.gethostname(),
        f"/{getpass.getuser()}/",
        str(Path.cwd()),
        tempfile.gettempdir(),
        sys.prefix,
        "site-packages",
        ".py",
    ]

    assert [word for word in here if word in text] == []
    assert '"identity": "worker"' in text


def replay_afresh(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, FRESH, folder, "1"], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.accepts("Y5")
async def test_histories_of_every_kind_replay_in_a_fresh_process(
    runtime: Runtime, tmp_path: Path
) -> None:
    """Recorded now, and replayed by a new process without a cache."""
    for name, kind in KINDS.items():
        async with runtime(kind.app(), model=kind.models()) as client:
            history = await record(client, name, turn_id=f"{name}-{tmp_path.name}")
            state = await fold_history(client.temporal, history)
        (tmp_path / f"{name}.json").write_text(history.to_json(), encoding="utf-8")
        assert (state.ended and state.ended.outcome) == OUTCOMES[name]

    replayed = await asyncio.to_thread(replay_afresh, tmp_path)

    assert (replayed.returncode, replayed.stdout[:3]) == (0, f"{len(KINDS)} "), replayed.stderr


@pytest.mark.accepts("Y5")
@pytest.mark.slow
async def test_history_of_another_decision_does_not_replay(tmp_path: Path) -> None:
    """A check of the check: a history whose first model call has another name is refused by the
    fresh process.
    """
    text = (FOLDER / "plain.json").read_text(encoding="utf-8")
    (tmp_path / "changed.json").write_text(
        text.replace("perdure.call_model", "perdure.call_someone"), encoding="utf-8"
    )

    replayed = await asyncio.to_thread(replay_afresh, tmp_path)

    assert replayed.returncode != 0
    assert "Nondeterminism" in replayed.stderr
