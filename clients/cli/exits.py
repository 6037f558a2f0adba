"""Exit codes: one for each outcome of a turn, and a few more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the help lists the codes, and should not import these
    from perdure.errors import PerdureError
    from perdure.values.reports import AgentReport

DONE, FAILED, USAGE, UNREACHABLE, INTERRUPTED, NO_READER = 0, 1, 2, 20, 130, 141

OUTCOMES = {
    "completed": DONE,
    "failed": FAILED,
    "truncated": 3,
    "budget_exhausted": 4,
    "max_iterations": 5,
    "boundary": 6,
    "loop": 7,
    "cancelled": 8,
    "timed_out": 9,
    "terminated": 10,
}
"""By the values of `perdure.Outcome`."""

MEANINGS = {
    DONE: "the turn completed, or another command succeeded",
    FAILED: "the turn failed: an error, a refusal, a guardrail",
    USAGE: (
        "nothing was done: a mistake in the command or the set-up, no such turn, or one that cannot"
        " be decoded"
    ),
    3: "the answer is truncated",
    4: "the budget is spent; a turn that finishes has a last answer",
    5: "the turn used all of its iterations",
    6: "the model asked for what the agent may not do",
    7: "the model repeats itself",
    8: "the turn was cancelled",
    9: "the turn exceeded its time limit, or its deadline",
    10: "the turn was terminated from outside",
    UNREACHABLE: "Temporal or a required worker does not answer",
    INTERRUPTED: "Ctrl-C; a turn that was followed continues",
    NO_READER: "the output is no longer read, as in `perdure list | head -1`",
}


def of_report(report: AgentReport) -> int:
    """Return the exit code of a turn that has an answer."""
    return OUTCOMES[report.outcome]


def of_error(error: PerdureError) -> int:
    """Return the exit code of a turn without an answer, or of a command that failed."""
    if error.report is not None:
        return of_report(error.report) or FAILED
    from perdure.errors import ServerUnreachableError

    return UNREACHABLE if isinstance(error, ServerUnreachableError) else USAGE
