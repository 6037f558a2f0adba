"""Exceptions of an activity as failures: which of them are final."""

from __future__ import annotations

import pytest
from temporalio.exceptions import ApplicationError

from perdure import errors
from perdure.activities.error_log import logged
from perdure.temporal import failures

GONE = errors.TurnNotFoundError("the history is gone")
KEYLESS = errors.PayloadDecodeError("the key is missing")
BUG = KeyError("the history is empty")


@pytest.mark.accepts("Y72")
@pytest.mark.parametrize(
    ("raised", "final", "is_final"),
    [
        (GONE, errors.PerdureError, True),
        (KEYLESS, errors.PerdureError, True),
        (BUG, errors.PerdureError, True),
        (GONE, failures.UNREADABLE, True),
        (KEYLESS, failures.UNREADABLE, False),
        (BUG, failures.UNREADABLE, False),
    ],
)
def test_failure_is_final_if_another_attempt_would_not_change_it(
    raised: Exception, final: failures.Final, is_final: bool
) -> None:
    """A bug may be mended, so it is not, unless every error is."""
    with pytest.raises(ApplicationError) as failed, failures.typed(final), logged():
        raise raised

    assert failed.value.non_retryable is is_final
