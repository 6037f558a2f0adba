"""What Perdure promises about the runs of a workflow, each of which goes on in the next one."""

from __future__ import annotations

from perdure import errors
from perdure.temporal import failures
from perdure.temporal.names import SESSION, TURN
from perdure.testing.simulation.choices import FORGED
from perdure.testing.simulation.observations import Simulated
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun
from perdure.testing.simulation.server.sdk import CONVERTER
from perdure.testing.simulation.server.server import BrokenError
from perdure.turn.history_limits import run_events
from perdure.turn.keys import HookKey, ModelKey, parse_key

_LAST_TASKS = 10
"""So many workflow tasks a full run may have, as tasks and answers cross."""


def full_runs_end(run: SimulatedRun) -> None:
    """A run that is full, and waits, goes on in a new run, however many updates come.

    It is looked at when it has twice the events that end a run.
    """
    run.full_tasks = run.full_tasks + 1 if _is_too_long(run) else 0
    if run.full_tasks > _LAST_TASKS:
        message = f"it has {len(run.history)} events, waits, and does not go on in a new run"
        raise BrokenError("full runs end", message, run)


def _is_too_long(run: SimulatedRun) -> bool:
    """Return whether a run has far more events than it should, and nothing of it runs."""
    if run.is_cancelled or len(run.history) < 2 * run_events(run.begun.task_timeout):
        return False
    if run.activities or run.children:
        return False
    if run.begun.type == SESSION:
        return run.session.running is None and run.session.closed is None
    return run.begun.type == TURN and run.read.waiting is not None


def first_runs_take_no_state(simulated: Simulated) -> None:
    """A first run does not take the input of a later run, with the state of another workflow.

    It fails, and does nothing before that but to begin its webhook.
    """
    for run in simulated.server.runs:
        if run.id.startswith(FORGED) and run.parent is None and not _has_refused(run):
            raise BrokenError("first runs take no state", f"it has ended with {run.closed}", run)


def _has_refused(run: SimulatedRun) -> bool:
    """Return whether a run has failed without an activity."""
    names = [name_of(event) for event in run.history.events]
    return run.closed == "WORKFLOW_EXECUTION_FAILED" and "ACTIVITY_TASK_SCHEDULED" not in names


def deadlines_name_errors(simulated: Simulated) -> None:
    """A turn that ends at its deadline names the error of the provider that it has waited for.

    Not if it has failed when the call was cancelled already, or before a message that is checked.
    """
    for run in simulated.server.runs:
        error = _error_of(run)
        if error is None or error.code != errors.TurnTimeoutError.code:
            continue
        failed = [one.error.code for one in run.read.attempts.unpardoned]
        known = [code for code in failed if code.startswith("LLM_")]
        if known and _has_waited(run) and (error.cause is None or error.cause.code != known[-1]):
            message = f"the last call has failed with {known[-1]}, and it says {error.cause}"
            raise BrokenError("deadlines name errors", message, run)


def _has_waited(run: SimulatedRun) -> bool:
    """Return whether the last call of a model ended by itself, and no message was checked since."""
    for event in reversed(run.history.events):
        if name_of(event) == "ACTIVITY_TASK_CANCEL_REQUESTED":
            return False
        if name_of(event) == "ACTIVITY_TASK_SCHEDULED":
            key = parse_key(attributes(event).activity_id)
            if isinstance(key, ModelKey) or (isinstance(key, HookKey) and key.moment == "message"):
                return isinstance(key, ModelKey)
    return False


def _error_of(run: SimulatedRun) -> errors.ErrorInfo | None:
    """Return the error that a turn has ended with; None if it has not failed."""
    last = run.history.events[-1]
    if run.begun.type != TURN or name_of(last) != "WORKFLOW_EXECUTION_FAILED":
        return None
    converter, failure = CONVERTER.failure_converter, attributes(last).failure
    summary = failures.summary_in(converter.from_failure(failure, CONVERTER.payload_converter))
    return None if summary is None else summary.error
