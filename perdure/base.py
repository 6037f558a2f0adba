"""Base classes of frozen values, and their copies.

A `Value` rejects unknown fields. `perdure.validation.Given` is built by users, and rejects invalid
arguments like `Agent` does. A `Wire` value is created only by Perdure. All are read from Temporal
with unknown fields ignored (see `perdure.temporal.payloads`), so that old and new workers can share
a queue during a deploy.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen value that rejects unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Wire(BaseModel):
    """A frozen value that crosses Temporal. Fields added after a release have a default."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


if TYPE_CHECKING:
    from dataclasses import replace as replace

    from typing_extensions import TypeVar as Defaulting

    T = Defaulting("T", default=str)
    T_co = Defaulting("T_co", default=str, covariant=True)
    R = Defaulting("R", default=Any)
else:  # with a default, pydantic would take an unparametrized `AgentReport` as one of text
    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True)
    R = TypeVar("R")  # an agent given by name returns text or JSON values

    def replace(value: Any, /, **changes: Any) -> Any:
        """Return a copy of a frozen dataclass with other values of some fields.

        A fold copies its state with each fact, so it matters that the fields are copied at once.
        With slots they cannot be.
        """
        fields = getattr(value, "__dict__", None)
        if fields is None:
            return dataclasses.replace(value, **changes)
        copy = object.__new__(type(value))
        object.__setattr__(copy, "__dict__", fields | changes)
        return copy
