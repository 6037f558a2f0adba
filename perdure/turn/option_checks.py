"""What the options that turns and sessions share may hold."""

from __future__ import annotations

from perdure import errors, limits
from perdure.schemas.strict_schema import strict
from perdure.text import one_line, size
from perdure.values.turn_options import StoredOptions


def check_options(options: StoredOptions) -> None:
    """Refuse options that are too large, and an output schema that no model can be held to.

    Raises:
        TooLargeError: The labels or the instructions are over their limit.
        InvalidRequestError: The schema is recursive, or allows any value somewhere.
    """
    labels = sum(size(name) + size(value) for name, value in options.labels.items())
    if labels > limits.LABELS_BYTES:
        raise errors.TooLargeError(
            f"the labels are {labels} bytes, more than {limits.LABELS_BYTES}; they go with every"
            " tool call",
            context={"bytes": labels, "limit": limits.LABELS_BYTES},
        )
    instructions = size(options.instructions or "")
    if instructions > limits.INSTRUCTIONS_BYTES:
        raise errors.TooLargeError(
            f"the instructions are {instructions} bytes, more than {limits.INSTRUCTIONS_BYTES};"
            " they go with every request to a model",
            context={"bytes": instructions, "limit": limits.INSTRUCTIONS_BYTES},
        )
    try:
        strict({"type": "string"} if options.output_schema is None else options.output_schema)
    except ValueError as error:
        reason = one_line(str(error), 300)
        raise errors.InvalidRequestError(f"the output schema: {reason}") from None
