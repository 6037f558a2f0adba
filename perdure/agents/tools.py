"""Tools: typed functions that a model may call.

`@tool` reads name, description and schema from the function. Whether a call may be repeated after a
crash is said here too: `read_only` implies `idempotent`, and what is not idempotent is started at
most once.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from pydantic import JsonValue
from pydantic_core import to_json

from perdure import errors, limits, validation
from perdure.schemas import tool_arguments
from perdure.text import size
from perdure.validation import Converted, Must
from perdure.values import keywords

if TYPE_CHECKING:  # so that `Tool` alone is a tool of any function
    from typing_extensions import ParamSpec as DefaultingSpec
    from typing_extensions import TypeVar as Defaulting

    P = DefaultingSpec("P", default=...)
    R = Defaulting("R", default=Any)
else:
    P = ParamSpec("P")
    R = TypeVar("R")
Deps = TypeVar("Deps")
Result = TypeVar("Result")

NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{limits.NAME_CHARACTERS}}}")
_CONTEXT_BY_NAME = re.compile(r"(\w+\.)*ToolContext(\[|$)")


class ToolOptions(TypedDict, total=False):
    """The options of a tool beside its name and description, which `tool` describes."""

    timeout: timedelta
    read_only: bool
    idempotent: bool
    requires_approval: bool


_DEFAULTS = ToolOptions(
    timeout=limits.TOOL_CALL, read_only=False, idempotent=False, requires_approval=False
)
_A_TOOL = Annotated[Callable[..., Any], Must("a tool or a function")]
_KINDS = {
    "description": validation.Text | None,
    "timeout": validation.Time,
    **dict.fromkeys(("read_only", "idempotent", "requires_approval"), bool),
}


@dataclass(frozen=True, kw_only=True)
class ToolContext(Generic[Deps]):
    """What a tool may know about its call.

    A parameter annotated with it is filled in and hidden from the model.

    Attributes:
        deps: What the worker's lifespan yielded; None without one.
        turn_id: The turn that called.
        call_id: The call, as the model knows it.
        idempotency_key: The same for every attempt of this call, also after a crash or a reset; 32
            hexadecimal digits.
        attempt: 1, or more when an idempotent tool runs again because its worker was lost.
        labels: The labels given when the turn was started.
    """

    deps: Deps = field(repr=False)
    turn_id: str
    call_id: str
    idempotency_key: str
    attempt: int
    labels: Mapping[str, str]
    beat: Callable[..., None] = field(repr=False)
    read_secret: Callable[[str], str] = field(repr=False)

    def heartbeat(self, *details: JsonValue) -> None:
        """Leave a note of how far the tool is. Staying alive needs no heartbeat: Perdure does that.

        The last note is shown in the Temporal UI, and `Turn.live` tells it to all who watch.

        Raises:
            ValueError: The details are no JSON, or more than 4 KiB of it.
        """
        if size(encode(details)) > limits.HEARTBEAT_BYTES:
            raise ValueError(f"the details of a heartbeat may have {limits.HEARTBEAT_BYTES} bytes")
        self.beat(*details)

    def secret(self, name: str) -> str:
        """The environment variable `name` of the worker.

        Raises:
            ConfigurationError: It is not set, or holds a character that no header may hold.
        """
        return self.read_secret(name)


class Tool(Generic[P, R]):
    """A function with a name, a description and a schema. Calling it calls the function."""

    @keywords.shows(ToolOptions, _DEFAULTS)
    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        self.function = function
        self.name: str = _name_of(function) if name is None else name
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise errors.ConfigurationError(
                f"tool name {self.name!r}: use 1 to 64 of A-Z, a-z, 0-9, _ and -; pass name= to"
                " choose another"
            )
        keywords.check(f"tool {self.name}", options, ToolOptions)
        self._options: ToolOptions = {**_DEFAULTS, **options}
        validation.check(f"tool {self.name}", {"description": description, **self._options}, _KINDS)
        self.read_only = self._options["read_only"]
        self.idempotent = self._options["idempotent"] or self.read_only
        self.requires_approval = self._options["requires_approval"]
        self.timeout = self._options["timeout"]
        self.is_async = inspect.iscoroutinefunction(function)
        self._given_description = description
        self._stated: tool_arguments.StatedArguments | None = None
        functools.update_wrapper(
            self, function, updated=()
        )  # its own attributes could be called as ours are

    @staticmethod
    @keywords.shows(ToolOptions, _DEFAULTS)
    def from_schema(
        function: Callable[..., Result],
        *,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        **options: Unpack[ToolOptions],
    ) -> Tool[..., Result]:
        """A tool whose arguments are described by a JSON schema instead of the function's signature.

        For functions that a signature does not describe: tools of other libraries, or functions
        with parameters that the model does not fill. A call whose arguments break the schema does
        not reach the function. They are given to it by name, as the JSON values that they are:
        nothing is converted to the types of annotations, and defaults of the schema are not filled
        in.

        Args:
            function: A sync or async function. It gets `ToolContext` too, if a parameter is
                annotated with it.
            name: 1 to 64 of A-Z, a-z, 0-9, _ and -.
            description: What the model reads.
            parameters: The schema of an object, by JSON Schema 2020-12.
            timeout: As for `tool`.
            read_only: As for `tool`.
            idempotent: As for `tool`.
            requires_approval: As for `tool`.

        Raises:
            ConfigurationError: The schema, the name, the timeout or another value is not valid.
        """
        made: Tool[..., Result] = Tool(function, name=name, description=description, **options)
        made._stated = tool_arguments.stated(f"tool {name}", parameters)
        return made

    @functools.cached_property
    def description(self) -> str:
        """What the model reads: the docstring without its sections."""
        return (
            self._given_description
            if self._given_description is not None
            else tool_arguments.description_of(self.function)
        )

    @property
    def digest(self) -> str:
        """Changes when the arguments change.

        The first 8 hexadecimal digits of SHA-256 over the schema.
        """
        return hashlib.sha256(to_json(self.arguments.schema)).hexdigest()[:8]

    @functools.cached_property
    def context_parameter(self) -> str | None:
        """The parameter annotated with `ToolContext`, if any."""
        hints = (
            tool_arguments.hints_of(self.function)
            if self._stated is None
            else tool_arguments.hints_that_resolve(self.function)
        )
        return next(
            (name for name, hint in hints.items() if name != "return" and _is_context(hint)), None
        )

    @functools.cached_property
    def arguments(self) -> tool_arguments.Arguments:
        """The schema of the arguments and their parser."""
        if self._stated is not None:
            return self._stated
        hidden = {self.context_parameter} if self.context_parameter else set()
        if (
            not isinstance(self.function, MethodType)
            and next(iter(inspect.signature(self.function).parameters), None) == "self"
        ):
            raise errors.ConfigurationError(
                f"tool {self.name} is a method: give the agent the bound one, as in"
                f" tools=[thing.{self.name}]"
            )
        return tool_arguments.arguments_of(self.function, hidden)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type) -> Tool[P, R]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Tool[..., R]: ...
    def __get__(self, instance: object | None, owner: type) -> Tool[..., R]:
        """A tool that is a method, bound to `instance`."""
        if instance is None:
            return self
        return self._copy(MethodType(self.function, instance), self.name)

    def renamed(self, name: str) -> Tool[..., R]:
        """The same tool under another name.

        Raises:
            ConfigurationError: The name is not valid.
        """
        return self._copy(self.function, name)

    def _copy(self, function: Callable[..., R], name: str) -> Tool[..., R]:
        made: Tool[..., R] = Tool(
            function, name=name, description=self._given_description, **self._options
        )
        made._stated = self._stated
        return made

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
@keywords.shows(ToolOptions, _DEFAULTS)
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> Any:
    """Make a tool of a function: schema from its signature, description from its docstring.

    Args:
        function: A sync or async function, or a bound method.
        name: Instead of the function's own; 1 to 64 of A-Z, a-z, 0-9, _ and -.
        description: Instead of the docstring's.
        timeout: After this the call is stopped and the model told; 60 seconds by default, at most
            3650 days.
        read_only: It changes nothing, so it may run again after a crash.
        idempotent: It may run again after a crash with the same `idempotency_key`. Otherwise it is
            started at most once.
        requires_approval: Each call waits until somebody approves it.

    Raises:
        ConfigurationError: The name, the timeout or another value is not valid.
    """

    def make(f: Callable[..., Any]) -> Tool:
        made: Tool = Tool(f, name=name, description=description, **options)
        return made

    keywords.check("a tool", options, ToolOptions)
    return make if function is None else make(function)


@dataclass(frozen=True)
class Toolbox:
    """A named, ordered set of tools.

    Raises:
        ConfigurationError: The name is no text, or something in it is no tool.
    """

    name: validation.Text
    tools: Converted[Iterable[Tool | Callable[..., Any]], tuple[Tool, ...]] = Converted(
        lambda toolbox, given: as_tools(given, f"toolbox {toolbox.name!r}"), ()
    )

    def __post_init__(self) -> None:
        validation.check_fields(Toolbox, "toolbox", self)

    def prefixed(self, prefix: str) -> Toolbox:
        """The same tools, each under `prefix` and its name: for two toolboxes that share names.

        Raises:
            ConfigurationError: A name is not valid any more.
        """
        return Toolbox(self.name, [item.renamed(prefix + item.name) for item in self.tools])

    def filtered(self, wanted: Callable[[Tool], bool] | Collection[str]) -> Toolbox:
        """Only the tools of these names, or for which `wanted` says yes, in the same order.

        Raises:
            ConfigurationError: A name that the toolbox does not have.
        """
        items = self.tools
        if callable(wanted):
            return Toolbox(self.name, [item for item in items if wanted(item)])
        wanted = validation.listed(
            f"toolbox {self.name!r}", "what it is filtered by", wanted, validation.Text
        )
        unknown = sorted(set(wanted) - {item.name for item in items})
        if unknown:
            known = ", ".join(item.name for item in items) or "none"
            raise errors.ConfigurationError(
                f"toolbox {self.name!r} has no tool named {unknown[0]!r}; it has {known}"
            )
        return Toolbox(self.name, [item for item in items if item.name in wanted])


class ToolResolver(Protocol):
    """Finds tools by name that an agent was not given.

    Those that a turn allows, when it begins and when they are called.
    """

    def resolve(self, name: str) -> Tool | None:
        """The tool of this name; None for none, which is no error.

        What it raises fails the turn.
        """


def as_tools(items: Iterable[Tool | Callable[..., Any]], who: str = "tools") -> tuple[Tool, ...]:
    """`items` as tools: functions are taken with the defaults of `@tool`.

    Raises:
        ConfigurationError: One is neither; the message begins with `who`.
    """
    return tuple(
        item if isinstance(item, Tool) else tool(item)
        for item in validation.listed(who, "tools", items, _A_TOOL)
    )


def encode(value: object) -> str:
    """A tool's return value as text for the model: text as it is, everything else as JSON.

    Raises:
        ValueError: The value cannot be encoded.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Awaitable):
        if inspect.iscoroutine(value):
            value.close()
        raise ValueError("the function returned something to await; declare it with async def")
    try:
        return to_json(value, inf_nan_mode="constants").decode()
    except Exception as error:
        raise ValueError(f"{type(value).__name__} cannot be encoded as JSON: {error}") from error


def _name_of(function: Callable[..., Any]) -> str:
    name: str | None = getattr(function, "__name__", None)
    if name is None:
        raise errors.ConfigurationError(f"{function!r} has no name; pass one with tool(name=…)")
    return name


def _is_context(hint: object) -> bool:
    if isinstance(hint, str):
        return _CONTEXT_BY_NAME.match(hint) is not None
    return hint is ToolContext or typing.get_origin(hint) is ToolContext
