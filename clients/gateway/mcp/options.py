"""The options of a turn that the tool `start_turn` takes."""

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from pydantic import Field

from perdure import validation
from perdure.clients.gateway.mcp.questions import Amounts
from perdure.values.budgets import Time
from perdure.values.model_retry import ModelRetryPolicy
from perdure.values.moments import AMoment
from perdure.values.turn_options import OptionMark, Subject, marked


class OfferedOptions(TypedDict):
    """The options, as arguments of the tool with their descriptions."""

    budget: Annotated[
        Amounts | None, Field(description="What it may spend; without it, what its agent may.")
    ]
    max_iterations: Annotated[
        int | None,
        Field(
            strict=True,
            gt=0,
            le=validation.MOST,
            description="How many steps it may make; without it, as many as its agent.",
        ),
    ]
    model_retry: Annotated[
        Time | None,
        Field(
            description=(
                "How long a provider of models that is down is tried again, such as PT10S; without"
                " it, as its agent says."
            )
        ),
    ]
    delay: Annotated[
        AMoment | None, Field(description="When it begins, such as PT2H after its start.")
    ]
    deadline: Annotated[
        AMoment | None,
        Field(description="When it ends at the latest, waits for people included."),
    ]
    live: Annotated[
        bool | None,
        Field(
            description="Whether progress tells the text of the agent while it is generated, before"
            " any check of its answer."
        ),
    ]
    subject: Annotated[
        Subject | None,
        Field(
            description="The person or customer whose data it is. All of it is encrypted with a key"
            " of its own, which an erasure destroys."
        ),
    ]


DEFAULTS = dict.fromkeys(OfferedOptions.__annotations__)
"""Every argument may be left out."""


def limits_in(options: Mapping[str, Any]) -> list[str]:
    """Return the names of the options that override a limit of the agent."""
    return [name for name in marked(OptionMark.LIMIT) if options.get(name) is not None]


def arguments(options: OfferedOptions) -> dict[str, Any]:
    """Return the options as arguments of the client.

    Raises:
        InvalidRequestError: The budget has no amount, or the money is not valid.
    """
    amounts, retry = options["budget"], options["model_retry"]
    return {
        **options,
        "live": bool(options["live"]),
        "budget": amounts.budget if amounts else None,
        "model_retry": ModelRetryPolicy(maximum_elapsed=retry) if retry else None,
    }
