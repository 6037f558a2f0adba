"""What a value may be that somebody gives: in words, and refused at once where it is another.

Type checkers say the same to those who use one. Kinds are asked where a program builds a value or
calls a client, never where a value is read from history: an older release may have written it, and
its turn has to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from pydantic import AfterValidator, BaseModel, ValidationError, ValidationInfo
from pydantic_core import ErrorDetails

from perdure import errors, limits
from perdure.base import Value
from perdure.text import clean, harmless, one_line

LONGEST = timedelta(days=3650)
"""What a time may be at most: further away, sums with the calendar end."""
MOST = 10**9
"""What a number of things may be at most."""

_SHOWN = 80


@dataclass(frozen=True)
class Kind:
    """What something may be: the words that follow "must be", and the check."""

    words: str
    fits: Callable[[Any], bool]

    def optional(self) -> Kind:
        """This, or None."""
        return Kind(f"{self.words}, or None", lambda value: value is None or self.fits(value))


def of(words: str, *types: type) -> Kind:
    """An instance of one of these."""
    return Kind(words, lambda value: isinstance(value, types))


def choice(literal: Any) -> Kind:
    """One of the words of a `Literal`."""
    choices = get_args(literal)
    return Kind(
        ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}", lambda value: value in choices
    )


def whole(least: int, most: int = MOST) -> Kind:
    """A whole number between these two, both included. `True` is none."""
    return Kind(
        f"a whole number from {least} to {most}",
        lambda value: type(value) is int and least <= value <= most,
    )


def each(words: str, fits: Callable[[Any], bool]) -> Kind:
    """A mapping from names to values of which each is this."""
    return Kind(
        f"a mapping from names, each value {words}",
        lambda value: (
            isinstance(value, Mapping)
            and all(isinstance(name, str) and fits(item) for name, item in value.items())
        ),
    )


TEXT = of("a text", str)
UNICODE = Kind(
    "a text that UTF-8 can hold", lambda value: isinstance(value, str) and clean(value) == value
)
"""For what is sent as it is: no protocol can hold a lone surrogate."""
BY = Kind(
    f"one line of 1 to {limits.BY_CHARACTERS} visible characters",
    lambda value: (
        isinstance(value, str)
        and bool(value.strip())
        and len(value) <= limits.BY_CHARACTERS
        and harmless(value) == value
    ),
).optional()
"""For the name of the person or program that made a decision."""
FLAG = of("True or False", bool)
MAPPING = of("a mapping, such as a dict", Mapping)
TEXTS = Kind(
    "a mapping of texts, such as {'name': 'text'}",
    lambda value: (
        isinstance(value, Mapping)
        and all(UNICODE.fits(text) for pair in value.items() for text in pair)
    ),
)
TIME = Kind(
    f"a timedelta, longer than zero and at most {LONGEST.days} days",
    lambda value: isinstance(value, timedelta) and timedelta() < value <= LONGEST,
)
FUNCTION = Kind("a function", lambda value: callable(value) and not isinstance(value, type))


def check(
    who: str,
    given: Mapping[str, Any],
    kinds: Mapping[str, Kind],
    error: type[errors.PerdureError] = errors.ConfigurationError,
) -> None:
    """Look at each field that has a kind.

    Raises:
        ConfigurationError: One is something else; the message names `who`, the field, what it is to
            be and what was given. Or `error`.
    """
    for field, kind in kinds.items():
        if not kind.fits(given[field]):
            raise error(f"{who}: {field} must be {kind.words}, not {shown(given[field])}")


def listed(
    who: str,
    field: str,
    given: Any,
    kind: Kind,
    error: type[errors.PerdureError] = errors.ConfigurationError,
) -> tuple[Any, ...]:
    """The items of a list, each of a kind. A text is no list of letters.

    Raises:
        ConfigurationError: It is no list, or an item is something else. Or `error`.
    """
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise error(f"{who}: {field} must be a list, each item {kind.words}, not {shown(given)}")
    items = tuple(given)
    named = {f"{field}[{place}]": item for place, item in enumerate(items)}
    check(who, named, dict.fromkeys(named, kind), error)
    return items


def built(kind: Kind) -> AfterValidator:
    """The kind of a field of a pydantic value, asked where a program builds one.

    What is read from history is JSON, and taken as it is.
    """

    def look(value: Any, info: ValidationInfo) -> Any:
        if info.mode == "python" and value is not None and not kind.fits(value):
            raise ValueError(f"give {kind.words}, not {shown(value)}")
        return value

    return AfterValidator(look)


def shown(value: object) -> str:
    """What was given, short enough for a message."""
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    try:
        words = str(value) if isinstance(value, timedelta) else repr(value)
    except Exception:  # noqa: BLE001 - somebody's __repr__ is broken; the class still says something
        words = f"an instance of {type(value).__name__}"
    return one_line(words, _SHOWN)


def sort(value: object) -> str:
    """The type of a value, in words: `None`, `the class Allow itself`, `an instance of Match`."""
    if value is None or isinstance(value, type):
        return shown(value)
    return f"an instance of {type(value).__name__}"


class _Refuses(type(BaseModel)):  # type: ignore[misc]  # pydantic's metaclass has no public name
    """Turns pydantic's refusal into ours.

    What is read from JSON is not built by a call, so it passes by here.
    """

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        from perdure import errors  # errors are told by values

        if len(args) > len(cls.in_order):
            raise errors.ConfigurationError(
                f"{cls.__name__}: name the fields, such as"
                f" {cls.__name__}({next(iter(cls.in_order or cls.model_fields))}=…)"
            )
        try:
            return super().__call__(**dict(zip(cls.in_order, args, strict=False)), **fields)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise errors.ConfigurationError(
                f"{cls.__name__}: {'; '.join(_words(cls, one) for one in found[:5])}"
            ) from None


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
        """A value that people build.

        `in_order` are the fields that may be given without their names.
        """

        in_order: ClassVar[tuple[str, ...]] = ()
