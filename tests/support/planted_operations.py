"""Faults that show when an operator, a supervisor or a crowd of people interferes."""

from __future__ import annotations

from .planted import BATCHES, MESSAGES, PLANTED, Planted
from .planted_features import OF_FEATURES

NO_TIME_LEFT = (
    "worker/supervision/lost_work.py",
    "            type=WORKER_SHUTDOWN,",
    "            type=WORKER_SHUTDOWN,\n            next_retry_delay={},",
)
"""A pause of no time, which the server takes for no time left."""
TAKES_STATE = (
    "workflows/ancestors.py",
    "    if workflow.info().continued_run_id is None and (not patch or workflow.patched(patch)):",
    "    if False:",
)
"""The check of the inputs of runs."""

OF_OPERATIONS = (
    Planted(
        "an attempt that an operator has caused is made",
        "activities/heartbeats.py",
        "    if info.attempt > 1 or info.current_attempt_scheduled_time != info.scheduled_time:",
        "    if False:",
        ("effects at most once",),
        focus=("pauses",),
    ),
    Planted(
        "a second attempt is refused although the workflow lets the server repeat it",
        "activities/heartbeats.py",
        "    if info.retry_policy is None or info.retry_policy.maximum_attempts != 1:",
        "    if info.is_local:",
        ("nothing is stuck",),
        kind="session",
        focus=("losses",),
    ),
    Planted(
        "a supervisor leaves no time to try again what a killed worker had, so a session loses a"
        " turn",
        *NO_TIME_LEFT,
        (MESSAGES, "webhooks are delivered or recorded"),
        kind="session",
        focus=("losses",),
    ),
    Planted(
        "a supervisor leaves no time to try again what a killed worker had, so a schedule does not"
        " count a turn",
        *NO_TIME_LEFT,
        ("schedules keep their limits", "webhooks are delivered or recorded"),
        kind="schedule",
        focus=("losses",),
    ),
    Planted(
        "a supervisor leaves no time to try again what a killed worker had, so a webhook is not"
        " sent",
        *NO_TIME_LEFT,
        ("webhooks are delivered or recorded",),
        focus=("losses",),
    ),
    Planted(
        "a run that is to end takes in updates",
        "workflows/update_answers.py",
        "        if self._is_ending:",
        "        if False:",
        ("full runs end",),
        focus=("streams",),
    ),
    Planted(
        "a session that is to end takes in updates",
        "workflows/update_answers.py",
        "        if self._is_ending:",
        "        if False:",
        ("full runs end",),
        kind="session",
        focus=("streams",),
    ),
    Planted(
        "a first run of a turn takes the input of a later run",
        *TAKES_STATE,
        ("first runs take no state",),
        focus=("forgers",),
    ),
    Planted(
        "a first run of a session takes the input of a later run",
        *TAKES_STATE,
        ("first runs take no state",),
        kind="session",
        focus=("forgers",),
    ),
    Planted(
        "a deadline hides the error of the provider that the turn has waited for",
        "workflows/turn/loop.py",
        "            if raised is error and failures:",
        "            if False:",
        ("deadlines name errors",),
        focus=("deadlines",),
    ),
)
"""Found when somebody does what few simulations have."""

ALL = (*PLANTED, *OF_FEATURES, *OF_OPERATIONS, *BATCHES)
"""All faults, in the order in which the page has them."""
