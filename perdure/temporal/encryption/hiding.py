"""What this process hides, as its environment says.

Logs, search attributes and spans depend on it, and nothing that a replay compares.
"""

from __future__ import annotations

import os

from perdure import errors

VARIABLE = "PERDURE_ENCRYPTION_KEYS"
FILE_VARIABLE = "PERDURE_ENCRYPTION_KEYS_FILE"
LABELS_VARIABLE = "PERDURE_LABELS_PLAIN"
_ANSWERS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def encrypts() -> bool:
    """Return whether this process encrypts, so that its logs leave out what errors quote."""
    return VARIABLE in os.environ or FILE_VARIABLE in os.environ


def labels_are_plain() -> bool:
    """Return whether labels and names of tools may stand where nothing encrypts them.

    Labels are search attributes then, and names of tools activity types.

    Raises:
        ConfigurationError: The variable is neither a yes nor a no.
    """
    value = os.environ.get(LABELS_VARIABLE, "yes").strip().lower()
    if value not in _ANSWERS:
        raise errors.ConfigurationError(
            f"{LABELS_VARIABLE} must be one of {', '.join(_ANSWERS)}, not {value!r}"
        )
    return _ANSWERS[value]
