"""Bases for frozen values.

A `Value` refuses fields that it does not know. A `Given` is one that people build, and refuses what
cannot work as `Agent` does. Only our own code makes a `Wire` value. All are read from
Temporal with unknown fields ignored (see `perdure.activities.payloads`), so old and new workers can share a queue during a deploy.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails


class Value(BaseModel):
    """A frozen value that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Wire(BaseModel):
    """A frozen value that crosses Temporal. Every field added after a release has a default."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class _Refuses(type(BaseModel)):  # type: ignore[misc]  # pydantic's metaclass has no public name
    """Turns pydantic's refusal into ours. What is read from JSON is not built by a call, so it passes by here."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        from perdure import errors  # errors are told by values

        if len(args) > len(cls.in_order):
            raise errors.ConfigurationError(
                f"{cls.__name__}: name the fields, such as {cls.__name__}({next(iter(cls.in_order or cls.model_fields))}=…)"
            )
        try:
            return super().__call__(**dict(zip(cls.in_order, args, strict=False)), **fields)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise errors.ConfigurationError(f"{cls.__name__}: {'; '.join(_words(cls, one) for one in found[:5])}") from None


def _words(cls: type[BaseModel], problem: ErrorDetails) -> str:
    place = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
        return f"there is no field {place!r}; there are {', '.join(cls.model_fields)}"
    return f"{place}: {problem['msg'].removeprefix('Value error, ')}".removeprefix(": ")


if TYPE_CHECKING:

    class Given(Value):
        """To type checkers it is built like any other."""

else:

    class Given(Value, metaclass=_Refuses):
        """A value that people build. `in_order` are the fields that may be given without their names."""

        in_order: ClassVar[tuple[str, ...]] = ()
