"""The errors of Temporal's server, as those of Perdure: the same for all that callers ask about."""

from __future__ import annotations

from typing import Any

from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.errors import PerdureError


def translated(
    error: RPCError, subject: str, missing: PerdureError, context: dict[str, Any]
) -> PerdureError:
    """Translate Temporal's error.

    Args:
        error: The server's error.
        subject: What it was asked about, with its name, such as `turn 'x'`.
        missing: The error if the server does not have it.
        context: The context of the other errors.
    """
    match error.status:
        case RPCStatusCode.NOT_FOUND if "namespace" in error.message.lower():
            return errors.ConfigurationError(
                f"Temporal's error: {error.message.rstrip('.')}; `perdure setup --namespace NAME"
                " --create-namespace` creates one"
            )
        case RPCStatusCode.NOT_FOUND:
            return missing
        case RPCStatusCode.PERMISSION_DENIED | RPCStatusCode.UNAUTHENTICATED:
            return errors.ConfigurationError(
                f"Temporal does not let this client ask about {subject}: {error.message}"
            )
        case RPCStatusCode.INVALID_ARGUMENT:
            return errors.InvalidRequestError(f"{subject}: {error.message}", context=context)
        case _:
            return errors.ServerUnreachableError(
                f"Temporal cannot be asked about {subject}: {error.message}", context=context
            )
