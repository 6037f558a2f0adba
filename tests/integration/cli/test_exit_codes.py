"""The exit code of a command depends on the turn's outcome: each outcome has its own code, tested
here with real turns.
"""

import asyncio
import re
from pathlib import Path

import pytest

from perdure import AgentReport, Outcome, errors
from perdure.__main__ import run
from perdure.clients.cli import exits

from ...support.ends import CASES, play

CODES = {
    "completed": 0,
    "refused": 1,
    "truncated": 3,
    "budget": 4,
    "finished": 4,
    "iterations": 5,
    "boundary": 6,
    "loop": 7,
    "cancelled": 8,
    "timeout": 9,
    "timed_out": 9,
    "terminated": 10,
}
"""By the case of `ends.py`."""


@pytest.mark.slow
@pytest.mark.accepts("P3")
async def test_every_outcome_has_an_exit_code_of_its_own(
    perdure_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`perdure show` exits with the code of the outcome, because scripts rely on them."""
    ends = await play(perdure_server, list(CODES))
    codes = {
        name: await asyncio.to_thread(
            run, ["show", end.report.turn_id, "--address", perdure_server]
        )
        for name, end in ends.items()
    }
    said = capsys.readouterr()

    assert codes == CODES
    assert {CASES[name].outcome for name in CODES} == set(Outcome)
    assert len(set(exits.OUTCOMES.values())) == len(Outcome)
    assert "perdure: the turn was cancelled: enough\n" in said.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (
            errors.OutputInvalidError(
                report=AgentReport(turn_id="t", agent="a", outcome=Outcome.COMPLETED)
            ),
            exits.FAILED,
        ),
        (
            errors.MaxIterationsError(
                report=AgentReport(turn_id="t", agent="a", outcome=Outcome.MAX_ITERATIONS)
            ),
            5,
        ),
        (errors.TurnNotFoundError(), exits.USAGE),
        (errors.TurnConflictError(), exits.USAGE),
        (errors.ConfigurationError(), exits.USAGE),
        (errors.ServerUnreachableError(), exits.UNREACHABLE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, errors.PerdureError) else "",
)
def test_error_is_told_by_what_became_of_the_turn(error: errors.PerdureError, code: int) -> None:
    """Without a turn it is a mistake or an unavailable server; a completed turn with an unusable
    answer counts as failed.
    """
    assert exits.of_error(error) == code


def test_every_exit_code_is_explained_once() -> None:
    """In one place in the code, and with the same text in the documentation."""
    page = (Path(__file__).parents[3] / "docs/command-line.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| (\d+) \| (.*?) \|$", page, re.MULTILINE))

    assert set(exits.OUTCOMES) == set(Outcome)
    assert set(exits.MEANINGS) == {
        *exits.OUTCOMES.values(),
        exits.USAGE,
        exits.UNREACHABLE,
        exits.INTERRUPTED,
        exits.NO_READER,
    }
    assert table == {str(code): meaning for code, meaning in exits.MEANINGS.items()}
