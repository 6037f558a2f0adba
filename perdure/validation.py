"""Validation of user-supplied arguments, with pydantic.

An error names the argument, what it must be and what was given. `Given` is the base of values that
users build; `arguments` validates the arguments of a function, and `check_fields` the fields of
dataclasses, by their annotations. Values read from history are not validated this way: an older
release may have written them, and its turn has to continue.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar, overload

from annotated_types import Interval, Len
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from perdure import errors, limits
from perdure.base import Value
from perdure.text import clean, harmless, one_line, stays_in_urls

LONGEST = timedelta(days=3650)
"""The longest duration: sums with longer ones would exceed the range of dates."""
MOST = 10**9
"""The largest count."""

_SHOWN = 80
_PROBLEMS = 5
_MUST_BE = "must_be"
_IN_PATHS = "without a part between slashes that is empty, '.' or '..'"
_WORDS = {
    _MUST_BE: "{words}",
    **dict.fromkeys(("bool_type", "bool_parsing"), "True or False"),
    "literal_error": "{expected}",
    **dict.fromkeys(("string_type", "string_sub_type"), "a string"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("dict_type", "mapping_type"), "a mapping, such as a dict"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    "time_delta_type": "a timedelta",
    "model_type": "a {class_name}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
"""The words after "must be", by pydantic's error type; other types use pydantic's own message."""

F = TypeVar("F", bound=Callable[..., Any])
G = TypeVar("G", contravariant=True)
S = TypeVar("S", covariant=True)


@dataclass(frozen=True)
class Must:
    """Annotates a type with the words that follow "must be" in errors.

    With `fits`, only that function decides whether a value is valid.
    """

    words: str
    fits: Callable[[Any], bool] | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        inner = (
            handler(source)
            if self.fits is None
            else core_schema.no_info_plain_validator_function(self._fitting)
        )
        return core_schema.custom_error_schema(
            inner,
            _MUST_BE,
            custom_error_message="must be {words}",
            custom_error_context={"words": self.words},
        )

    def _fitting(self, value: Any) -> Any:
        assert self.fits is not None
        if not self.fits(value):
            raise ValueError(self.words)
        return value


def is_visible_line(value: object, max_characters: int) -> bool:
    """Return whether a value is one line of visible characters."""
    return (
        isinstance(value, str)
        and bool(value.strip())
        and len(value) <= max_characters
        and harmless(value) == value
    )


def instance(description: str, *types: type) -> Must:
    """Return the annotation for an instance of one of these types."""
    return Must(description, lambda value: isinstance(value, types))


Text = Annotated[str, instance("a string", str)]
"""A string that may hold lone surrogates, which are cleaned before it is sent."""
Unicode = Annotated[
    str,
    Must(
        "a string that UTF-8 can hold",
        lambda value: isinstance(value, str) and clean(value) == value,
    ),
]
"""A string that is sent unchanged."""
KnownId = Annotated[
    str,
    Must(
        "a string that UTF-8 can hold, not empty",
        lambda value: isinstance(value, str) and clean(value) == value and value != "",
    ),
]
"""An id of something that may exist. The id of a delegate's turn may be longer than a new id."""
By = Annotated[
    str,
    Must(
        f"one line of 1 to {limits.BY_CHARACTERS} visible characters",
        lambda value: is_visible_line(value, limits.BY_CHARACTERS),
    ),
]
"""The name of the person or program that made a decision."""
EventName = By
"""The name of an event that is sent to a turn."""
MessageId = Annotated[
    str,
    Must(
        f"one line of 1 to {limits.MESSAGE_ID_CHARACTERS} visible characters",
        lambda value: is_visible_line(value, limits.MESSAGE_ID_CHARACTERS),
    ),
]
"""The id of a message to a turn, also one that an earlier release has sent."""
NewMessageId = Annotated[
    str,
    Must(
        f"one line of 1 to {limits.MESSAGE_ID_CHARACTERS} visible characters, {_IN_PATHS}",
        lambda value: is_visible_line(value, limits.MESSAGE_ID_CHARACTERS) and stays_in_urls(value),
    ),
]
"""The id of a message that a caller sends."""
Message = Annotated[
    str,
    Must(
        "a message, not empty",
        lambda value: isinstance(value, str) and clean(value) == value and bool(value.strip()),
    ),
]
"""A message of the user."""
Texts = Annotated[Mapping[Unicode, Unicode], Must("a mapping of strings, such as {'name': 'text'}")]
FilterTexts = Annotated[
    Mapping[Unicode, Unicode],
    Len(max_length=limits.FILTER_LABELS),
    Must(f"a mapping of at most {limits.FILTER_LABELS} strings, such as {{'name': 'text'}}"),
]
Flag = Annotated[bool, instance("True or False", bool)]
CountOrZero = Annotated[int, Interval(ge=0, le=MOST), Must(f"a whole number from 0 to {MOST}")]
Count = Annotated[int, Interval(ge=1, le=MOST), Must(f"a whole number from 1 to {MOST}")]
TIME = f"a timedelta, longer than zero and at most {LONGEST.days} days"
Time = Annotated[timedelta, Interval(gt=timedelta(), le=LONGEST), Must(TIME)]
"""A duration as the argument of a function: strict, so no number."""


def _with_unit(value: object) -> object:
    if isinstance(value, int | float):
        raise PydanticCustomError(_MUST_BE, "must be {words}", {"words": TIME})
    return value


Duration = Annotated[timedelta, BeforeValidator(_with_unit)]
"""A duration as a field of a value: in JSON it is ISO 8601. Pydantic would read 30 as seconds."""

FUNCTION = Must("a function", lambda value: callable(value) and not isinstance(value, type))


def check(
    who: str,
    arguments: Mapping[str, Any],
    types: Mapping[str, Any],
    error: type[errors.PerdureError] = errors.ConfigurationError,
) -> None:
    """Validate the arguments that have a type, without converting them.

    Raises:
        ConfigurationError: An argument is not valid; the message contains `who`, the argument, the
            expected and the given value. If `error` is given, it is raised instead.
    """
    for name, expected_type in types.items():
        problem = _problem(expected_type, arguments[name])
        if problem is not None:
            nullable = not problem["loc"] and _problem(expected_type, None) is None
            raise error(
                f"{who}: {_said(_place(name, *problem['loc']), problem, ', or None' * nullable)}"
            )


def arguments(who: str) -> Callable[[F], F]:
    """Validate the arguments of a function by its annotations, without converting them.

    They are validated when it is called, or when a coroutine function is awaited. Parameters whose
    annotation has neither `Annotated` nor `Literal` are left alone.

    Args:
        who: What the function makes or gets, as the beginning of errors, such as `the message`.

    Raises:
        InvalidRequestError: An argument is not valid; the message is that of `check`.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)

        def look(*given: Any, **named: Any) -> None:
            try:
                bound = signature.bind(*given, **named)
            except TypeError:
                return  # the function itself says so
            bound.apply_defaults()
            check(who, bound.arguments, _argument_types(function), errors.InvalidRequestError)

        @functools.wraps(function)
        def checked(*given: Any, **named: Any) -> Any:
            look(*given, **named)
            return function(*given, **named)

        @functools.wraps(function)
        async def checked_late(*given: Any, **named: Any) -> Any:
            look(*given, **named)
            return await function(*given, **named)

        is_late = inspect.iscoroutinefunction(function)
        return typing.cast("F", checked_late if is_late else checked)

    return decorate


def check_by(what: str, by: str | None) -> None:
    """Check the name of the person or program that made a request; None for no name.

    Raises:
        InvalidRequestError: It is not one visible line; the message begins with `what`.
    """
    check(what, {"by": by}, {"by": By | None}, errors.InvalidRequestError)


def new_id(noun: str, text: str, max_characters: int) -> str:
    """Return the id of something that is created, after validation.

    Args:
        noun: What it is the id of, such as `turn`.
        text: The id.
        max_characters: The largest number of characters.

    Raises:
        InvalidRequestError: It is not a string, empty, too long, has an invisible character, or
            would become another id in a URL.
    """
    check(f"the {noun}", {"id": text}, {"id": Text}, errors.InvalidRequestError)
    if not 0 < len(text) <= max_characters:
        raise errors.InvalidRequestError(
            f"a {noun}'s id has 1 to {max_characters} characters, not {len(text)}"
        )
    if not text.isprintable() or harmless(text) != text:
        raise errors.InvalidRequestError(f"a {noun}'s id has printable characters only")
    if not stays_in_urls(text):
        raise errors.InvalidRequestError(
            f"a {noun}'s id is {_IN_PATHS}, not {shown(text)}: in a URL it would be another id"
        )
    return text


def check_fields(cls: type[Any], who: str, value: object) -> None:
    """Validate the fields that the dataclass `cls` declares, except those that are `Converted`.

    Raises:
        ConfigurationError: A field is not valid.
    """
    check(who, vars(value), _field_types(cls))  # type: ignore[arg-type]  # classes are hashable


def accepts(expected_type: Any, value: object) -> bool:
    """Whether a value is valid for an annotated type."""
    return _problem(expected_type, value) is None


def listed(
    who: str,
    field: str,
    value: Any,
    item: Any,
    error: type[errors.PerdureError] = errors.ConfigurationError,
) -> tuple[Any, ...]:
    """Return the items of an iterable other than a string or a mapping, each valid for `item`.

    Raises:
        ConfigurationError: The value is not a list, or an item is not valid. If `error` is given,
            it is raised instead.
    """
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise error(
            f"{who}: {field} must be a list, each item {_words_of(item)}, not {shown(value)}"
        )
    items = tuple(value)
    check(who, {field: items}, {field: tuple[item, ...]}, error)
    return items


class Converted(Generic[G, S]):
    """A field of a frozen dataclass that is given as one type and stored as another.

    `convert` gets the instance, in which the fields before this one are set, and the given value.
    The field is a descriptor, so type checkers know both types.
    """

    def __init__(self, convert: Callable[[Any, G], S], default: S) -> None:
        self._convert = convert
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> S: ...
    @overload
    def __get__(self, instance: object, owner: type) -> S: ...
    def __get__(self, instance: object, owner: type) -> S:
        return self._default if instance is None else typing.cast("S", vars(instance)[self._name])

    def __set__(self, instance: object, value: G) -> None:
        vars(instance)[self._name] = self._convert(instance, value)


def built(expected_type: Any) -> AfterValidator:
    """Check a field of a `Given` when a program builds it, but not when it is read from JSON."""

    def look(value: Any, info: ValidationInfo) -> Any:
        if info.mode == "python" and value is not None and not accepts(expected_type, value):
            raise PydanticCustomError(
                _MUST_BE, "must be {words}", {"words": _words_of(expected_type)}
            )
        return value

    return AfterValidator(look)


def shown(value: object) -> str:
    """Format a value, short enough for a message."""
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    try:
        text = str(value) if isinstance(value, timedelta) else repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__; the class is shown instead
        text = f"an instance of {type(value).__name__}"
    return one_line(text, _SHOWN)


def sort(value: object) -> str:
    """Describe the type of a value: `None`, `the class Allow itself`, `an instance of Match`."""
    if value is None or isinstance(value, type):
        return shown(value)
    return f"an instance of {type(value).__name__}"


class _Refuses(type(BaseModel)):  # type: ignore[misc]  # pydantic's metaclass has no public name
    """Raises `ConfigurationError` for pydantic's `ValidationError`.

    Values read from JSON are not built by a call, so they raise pydantic's error.
    """

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        if len(args) > len(cls.in_order):
            raise errors.ConfigurationError(
                f"{cls.__name__}: name the fields, such as"
                f" {cls.__name__}({next(iter(cls.in_order or cls.model_fields))}=…)"
            )
        try:
            return super().__call__(**dict(zip(cls.in_order, args, strict=False)), **fields)
        except ValidationError as error:
            raise errors.ConfigurationError(
                f"{cls.__name__}: {in_words(error, cls.model_fields)}"
            ) from None


if TYPE_CHECKING:

    class Given(Value):
        """For type checkers, a value like any other."""

else:

    class Given(Value, metaclass=_Refuses):
        """The base class of values that users build.

        `in_order` has the fields that may be given as positional arguments.
        """

        in_order: ClassVar[tuple[str, ...]] = ()


def in_words(error: ValidationError, names: Iterable[str], kind: str = "field") -> str:
    """Describe what a program gave wrong, with the values that it gave.

    `names` are those of the fields that there are, and `kind` is what they are.
    """
    problems = error.errors(include_url=False)
    return "; ".join(_refusal(names, kind, problem) for problem in problems[:_PROBLEMS])


def _refusal(names: Iterable[str], kind: str, problem: ErrorDetails) -> str:
    path = _place(*problem["loc"])
    if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
        return f"there is no {kind} {path!r}; there are {', '.join(names)}"
    if problem["type"] == "extra_forbidden":
        return f"there is no {kind} {path!r}"
    if problem["type"] in ("missing", "missing_argument"):
        return f"{path} is missing"
    return _said(path, problem)


def _said(path: str, problem: ErrorDetails, more: str = "") -> str:
    requirement = _words(problem)
    if requirement:
        return f"{path} must be {requirement}{more}, not {shown(problem['input'])}"
    return f"{path}: {problem['msg'].removeprefix('Value error, ')}".removeprefix(": ")


def _place(first: int | str = "", *parts: int | str) -> str:
    steps = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return f"{first}{''.join(steps)}"


def _words(problem: ErrorDetails) -> str:
    return _WORDS.get(problem["type"], "").format(**problem.get("ctx", {}))


def _words_of(expected_type: Any) -> str:
    """Return the words after "must be" for a type: its error for an object no type accepts."""
    problem = _problem(expected_type, object())
    assert problem is not None
    return _words(problem)


def _problem(expected_type: Any, value: object) -> ErrorDetails | None:
    """Return the first reason why a value is not valid; None if it is valid."""
    try:
        _adapter(expected_type).validate_python(value, strict=True)
    except ValidationError as error:
        return error.errors(include_url=False)[0]
    return None


@functools.cache
def _adapter(expected_type: Any) -> TypeAdapter[Any]:
    return TypeAdapter(expected_type)


@functools.cache
def _argument_types(function: Callable[..., Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    return {name: hint for name, hint in hints.items() if _is_validated(hint)}


def _is_validated(hint: Any) -> bool:
    """Whether a type says more of its values than their class."""
    if typing.get_origin(hint) in (Annotated, typing.Literal):
        return True
    is_union = typing.get_origin(hint) in (typing.Union, UnionType)
    return is_union and any(_is_validated(one) for one in typing.get_args(hint))


@functools.cache
def _field_types(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    names = [field.name for field in dataclasses.fields(cls)]
    return {name: hints[name] for name in names if typing.get_origin(hints[name]) is not Converted}
