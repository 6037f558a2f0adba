"""The retries of model calls while a provider is unavailable."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from perdure.base import Wire
from perdure.validation import Given, instance
from perdure.values.budgets import Time


class ModelRetryPolicy(Given):
    """The retries of a model call after a transient error.

    Such errors are a refused connection, 429, 5xx and a timeout.

    The pauses are durable timers. Each is `backoff_coefficient` times the one before, with a random
    reduction of up to a quarter. If a provider requests a longer pause, that is used. In an outage
    of more than half an hour, a pause grows to a sixtieth of the outage, so that the history stays
    small.

    Attributes:
        initial_interval: The first pause, unless the provider requests another.
        backoff_coefficient: The factor between two pauses, at least 1.
        maximum_interval: The longest pause, except in a long outage.
        maximum_elapsed: The time after the first failure of a call within which another attempt may
            begin. The default is the turn's time budget, or 30 minutes without one.
        on_exhausted: The action after that: `fail` with the last error, or `pause` until
            `turn.resume()`.
        on_limit: The action if the provider asks for a pause of more than 5 minutes, because its
            limit is used up: `fail` ends the turn if the pause does not fit into its time and
            `maximum_elapsed`; `wait` waits for its end, whatever its length, and the wait counts
            towards neither.

    Raises:
        ConfigurationError: A value is not valid.
    """

    initial_interval: Time = timedelta(seconds=1)
    backoff_coefficient: Annotated[float, Field(ge=1, le=10**6, allow_inf_nan=False)] = 2.0
    maximum_interval: Time = timedelta(seconds=30)
    maximum_elapsed: Time | None = None
    on_exhausted: Literal["fail", "pause"] = "fail"
    on_limit: Literal["fail", "wait"] = "fail"

    if TYPE_CHECKING:  # type checkers take the types of the fields for the types of the arguments

        def __init__(
            self,
            *,
            initial_interval: timedelta = ...,
            backoff_coefficient: float = ...,
            maximum_interval: timedelta = ...,
            maximum_elapsed: timedelta | None = None,
            on_exhausted: Literal["fail", "pause"] = "fail",
            on_limit: Literal["fail", "wait"] = "fail",
        ) -> None: ...

    @model_validator(mode="after")
    def _grows(self) -> ModelRetryPolicy:
        if self.maximum_interval < self.initial_interval:
            raise ValueError(
                f"maximum_interval is {self.maximum_interval}, shorter than initial_interval, which"
                f" is {self.initial_interval}; name a longer one"
            )
        return self


class PinnedRetry(Wire):
    """A `ModelRetryPolicy` as a turn is pinned to it, in seconds.

    No field has a default, so that a release with other defaults does not change a running turn;
    except for those that came later, whose default is the behaviour before. `unless_timed` means
    that `elapsed_s` applies only to a turn without a time budget.
    """

    initial_s: float
    coefficient: float
    maximum_s: float
    elapsed_s: float
    unless_timed: bool
    pauses: bool
    waits_for_limits: bool = False


def pinned(policy: ModelRetryPolicy, otherwise: timedelta) -> PinnedRetry:
    """Return the policy for a turn; `otherwise` is its `maximum_elapsed` if the policy has none."""
    elapsed = policy.maximum_elapsed or otherwise
    return PinnedRetry(
        initial_s=policy.initial_interval.total_seconds(),
        coefficient=policy.backoff_coefficient,
        maximum_s=policy.maximum_interval.total_seconds(),
        elapsed_s=elapsed.total_seconds(),
        unless_timed=policy.maximum_elapsed is None,
        pauses=policy.on_exhausted == "pause",
        waits_for_limits=policy.on_limit == "wait",
    )


APolicy = Annotated[
    ModelRetryPolicy,
    instance(
        "a ModelRetryPolicy, such as ModelRetryPolicy(on_exhausted='pause')", ModelRetryPolicy
    ),
]
"""A policy as an argument."""
