"""The order in which the work of turns is given to workers: Temporal's priority and fairness."""

from __future__ import annotations

import math
from typing import Annotated

from annotated_types import Interval
from temporalio.api.common.v1 import Priority as RecordedPriority
from temporalio.common import Priority

from perdure import errors, limits, validation
from perdure.text import harmless, size
from perdure.validation import Must

LAST_PRIORITY = 5
"""The lowest priority that a server supports by default."""

Priorities = (
    Annotated[
        int,
        Interval(ge=1, le=LAST_PRIORITY),
        Must(f"a whole number from 1, the first, to {LAST_PRIORITY}, the last"),
    ]
    | None
)
"""The type of a priority that a caller gives."""

Fairness = (
    Annotated[
        str,
        Must(
            f"a string of 1 to {limits.FAIRNESS_BYTES} bytes of visible characters",
            lambda value: (
                isinstance(value, str)
                and 0 < size(value) <= limits.FAIRNESS_BYTES
                and bool(value.strip())
                and harmless(value) == value
            ),
        ),
    ]
    | None
)
"""The type of a fairness key that a caller gives."""

_Weight = (
    Annotated[
        float,
        Must(
            f"a number from {limits.LEAST_WEIGHT} to {limits.MOST_WEIGHT}",
            lambda value: (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and math.isfinite(value)
                and limits.LEAST_WEIGHT <= value <= limits.MOST_WEIGHT
            ),
        ),
    ]
    | None
)


@validation.arguments("the turn")
def priority_of(
    priority: Priorities = None, fairness: Fairness = None, weight: _Weight = None
) -> Priority:
    """Return Temporal's priority. What is not given is inherited from a parent workflow.

    Args:
        priority: From 1, the first, to 5, the last.
        fairness: The key whose turns share the workers with turns of other keys.
        weight: The share of the key, from 0.001 to 1000.

    Raises:
        InvalidRequestError: A value is not valid, or there is a weight without a key.
    """
    if weight is not None and fairness is None:
        raise errors.InvalidRequestError(
            "the turn: weight is the share of a fairness key; name the key as fairness"
        )
    return Priority(priority_key=priority, fairness_key=fairness, fairness_weight=weight)


def inherited(recorded: RecordedPriority, chosen: Priority = Priority.default) -> Priority:
    """Return the priority of a workflow that another one continues, such as a fork.

    Args:
        recorded: The priority of the other workflow.
        chosen: The values that a caller has given; each overrides that of the other workflow.
    """
    key = chosen.fairness_key or recorded.fairness_key
    weight = chosen.fairness_weight or (recorded.fairness_weight if not chosen.fairness_key else 0)
    return Priority(
        priority_key=chosen.priority_key or recorded.priority_key or None,
        fairness_key=key or None,
        fairness_weight=weight or None,
    )
