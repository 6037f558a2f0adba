"""Tools: typed functions that a model may call.

`@tool` reads name, description and schema from the function. It also declares whether a call may be
repeated after a crash: `read_only` implies `idempotent`, and a tool that is not idempotent is
started at most once for a call.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from pydantic_core import to_json

from perdure import errors, limits, validation
from perdure.agents import effects, jobs
from perdure.agents.effects import EffectOptions, PinnedEffect
from perdure.agents.jobs import JobOptions, PinnedJob
from perdure.agents.tool_context import is_context
from perdure.agents.waits import PinnedWait
from perdure.schemas import tool_arguments
from perdure.validation import Converted, Must
from perdure.values import keywords

if TYPE_CHECKING:
    from perdure.agents.questions import PinnedQuestion

if TYPE_CHECKING:  # so that `Tool` alone is a tool of any function
    from typing_extensions import ParamSpec as DefaultingSpec
    from typing_extensions import TypeVar as Defaulting

    P = DefaultingSpec("P", default=...)
    R = Defaulting("R", default=Any)
else:
    P = ParamSpec("P")
    R = TypeVar("R")
Result = TypeVar("Result")

NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{limits.NAME_CHARACTERS}}}")


class _CallOptions(TypedDict, total=False):
    """The options of a tool about its calls."""

    timeout: timedelta
    read_only: bool
    idempotent: bool
    requires_approval: bool
    local: bool


class ToolOptions(_CallOptions, EffectOptions, JobOptions, total=False):
    """The options of a tool except its name and description; see `tool`."""


_DEFAULTS = ToolOptions(
    timeout=limits.TOOL_CALL,
    read_only=False,
    idempotent=False,
    requires_approval=False,
    local=False,
    **effects.DEFAULTS,
    **jobs.DEFAULTS,
)
_A_TOOL = Annotated[Callable[..., Any], Must("a tool or a function")]
_KINDS = {
    "description": validation.Text | None,
    "timeout": validation.Time,
    **dict.fromkeys(("read_only", "idempotent", "requires_approval", "local"), bool),
    **effects.KINDS,
    **jobs.KINDS,
    **dict.fromkeys(("verify", "undo", "poll", "cancel"), _A_TOOL | None),
}


class Tool(Generic[P, R]):
    """A function with a name, a description and a schema. Calling it calls the function.

    With `asks`, it is never called: the turn asks a person.
    """

    wait: PinnedWait | None = None  # of a tool that the turn performs itself
    needs_session: bool = False  # only turns of sessions are offered it

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
        self.local = self._options["local"]
        if self.local and not self.read_only:
            raise errors.ConfigurationError(
                f"tool {self.name} is local, but not read-only: a local call may run again after a"
                " crash or when its time is up; add read_only=True if it changes nothing, or leave"
                " out local=True"
            )
        self.timeout = self._options["timeout"]
        effects.check(self.name, self._options, read_only=self.read_only)
        self.effect = self._options["effect"]
        self.verify = self._bound("verify")
        self.undo = self._bound("undo")
        jobs.check(self.name, self._options, is_local=self.local)
        self.poll = self._bound("poll")
        self.cancel = self._bound("cancel")
        self.is_async = inspect.iscoroutinefunction(function)
        self._given_description = description
        self.asks: PinnedQuestion | None = None
        self._stated: tool_arguments.StatedArguments | None = None
        # the function's own attributes could have the names of ours
        functools.update_wrapper(self, function, updated=())

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
        """Make a tool whose arguments are described by a JSON schema.

        For functions whose signature does not describe them: tools of other libraries, or functions
        with parameters that the model does not fill in. A call whose arguments violate the schema
        does not reach the function. The arguments are passed by name, as JSON values: they are not
        converted to the annotated types, and the schema's defaults are not filled in.

        Args:
            function: A sync or async function. It gets `ToolContext` too, if a parameter is
                annotated with it.
            name: 1 to 64 characters of A-Z, a-z, 0-9, _ and -.
            description: The description for the model.
            parameters: The schema of an object, in JSON Schema 2020-12.
            timeout: As for `tool`.
            read_only: As for `tool`.
            idempotent: As for `tool`.
            requires_approval: As for `tool`.
            local: As for `tool`.
            effect: As for `tool`, with JSON values, and so are all options about the effect.
            effect_scope: As for `tool`.
            may_recur: As for `tool`.
            verify: As for `tool`.
            settle: As for `tool`.
            on_unknown: As for `tool`.
            undo: As for `tool`.
            later: As for `tool`.
            poll: As for `tool`.
            poll_every: As for `tool`.
            cancel: As for `tool`.

        Raises:
            ConfigurationError: The schema, the name, the timeout or another value is not valid.
        """
        made: Tool[..., Result] = Tool(function, name=name, description=description, **options)
        made._stated = tool_arguments.stated(f"tool {name}", parameters)
        return made

    def _bound(self, option: Literal["verify", "undo", "poll", "cancel"]) -> Tool | None:
        """Return the tool that an option names; None without it.

        Raises:
            ConfigurationError: It cannot be a tool, or is read-only where it must not be, or not
                where it must.
        """
        given, reads = self._options[option], option in ("verify", "poll")
        if given is None:
            return None
        bound: Tool = given if isinstance(given, Tool) else Tool(given, read_only=reads)
        if bound.read_only is not reads:
            raise errors.ConfigurationError(
                f"tool {self.name}: {option}= is the tool {bound.name}, which is"
                f" {'not ' * reads}read-only"
            )
        return bound

    def _check_bound(self, option: str, bound: Tool | None, *others: str) -> None:
        """Refuse a tool of an option that takes arguments that nobody gives it.

        Raises:
            ConfigurationError: It requires an argument that the tool does not have, and that is
                none of `others`.
        """
        if bound is None:
            return
        own: Any = self.arguments.schema.get("properties", {})
        required: Any = bound.arguments.schema.get("required", ())
        missing = next((name for name in required if name not in (*own, *others)), None)
        if missing is not None:
            raise errors.ConfigurationError(
                f"tool {self.name}: {option}= takes {missing!r}, which is no argument of the tool;"
                f" it has {', '.join((*own, *others)) or 'none'}"
            )

    @property
    def may_recur(self) -> bool:
        """Whether an effect that is there may be brought about again."""
        return self._options["may_recur"]

    @property
    def pinned_effect(self) -> PinnedEffect | None:
        """What a turn is pinned to of the effect; None for a tool without options about it.

        Raises:
            ConfigurationError: The tool of an option takes other arguments than the tool.
        """
        if all(self._options[name] == default for name, default in effects.DEFAULTS.items()):  # type: ignore[literal-required]
            return None
        self._check_bound("verify", self.verify)
        self._check_bound("undo", self.undo, effects.RESULT)
        return PinnedEffect(
            has_key=self.effect is not None,
            scope=self._options["effect_scope"],
            may_recur=self._options["may_recur"],
            verifies=self.verify is not None,
            settle_s=(self._options["settle"] or timedelta()).total_seconds(),
            verify_timeout_s=self.verify.timeout.total_seconds() if self.verify else 0,
            on_unknown=self._options["on_unknown"],
            can_undo=self.undo is not None,
        )

    @property
    def pinned_job(self) -> PinnedJob | None:
        """What a turn is pinned to of its jobs; None for a tool whose result comes at once.

        Raises:
            ConfigurationError: The tool of an option takes other arguments than the tool.
        """
        self._check_bound("poll", self.poll, jobs.HANDLE)
        self._check_bound("cancel", self.cancel, jobs.HANDLE)
        poll_timeout = self.poll.timeout if self.poll else None
        cancel_timeout = self.cancel.timeout if self.cancel else None
        return jobs.pinned(self._options, poll_timeout, cancel_timeout)

    @functools.cached_property
    def description(self) -> str:
        """The description for the model: the docstring without its sections."""
        return (
            self._given_description
            if self._given_description is not None
            else tool_arguments.description_of(self.function)
        )

    @property
    def digest(self) -> str:
        """The first 8 hexadecimal digits of the SHA-256 of the schema.

        It changes when the arguments change.
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
            (name for name, hint in hints.items() if name != "return" and is_context(hint)), None
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

    def accepted(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of the values, by name, that are arguments of the tool."""
        names: Any = self.arguments.schema.get("properties", {})
        return {name: value for name, value in values.items() if name in names}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type) -> Tool[P, R]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Tool[..., R]: ...
    def __get__(self, instance: object | None, owner: type) -> Tool[..., R]:
        """Return a tool that is a method, bound to `instance`."""
        if instance is None:
            return self
        return self._copy(MethodType(self.function, instance), self.name)

    def renamed(self, name: str) -> Tool[..., R]:
        """Return the same tool under another name.

        Raises:
            ConfigurationError: The name is not valid.
        """
        return self._copy(self.function, name)

    def _copy(self, function: Callable[..., R], name: str) -> Tool[..., R]:
        made: Tool[..., R] = Tool(
            function, name=name, description=self._given_description, **self._options
        )
        made._stated, made.wait, made.asks = self._stated, self.wait, self.asks
        made.needs_session = self.needs_session
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
        name: The name, 1 to 64 characters of A-Z, a-z, 0-9, _ and -; the default is the function's.
        description: The description; the default is the docstring's.
        timeout: The time after which a call is stopped and the model gets an error; the default is
            60 seconds, the largest value 3650 days.
        read_only: Whether the tool changes nothing, so that a call may run again after a crash.
        idempotent: Whether a call may run again after a crash with the same `idempotency_key`.
            Otherwise it is started at most once.
        requires_approval: Whether each call waits for approval.
        local: Whether a call runs within the workflow task, which is cheaper, as long as it ends
            within a second; after that it runs again, as other calls do. For `read_only` tools.
        effect: What a call brings about: a function of its arguments, which it gets as attributes
            of one object, or a list of their names. Two calls with equal values are one effect: the
            second one gets the result of the first one, and does not run.
        effect_scope: Where they are one effect: in the `turn` with its delegates, forks and resumed
            turns; in the `session` or the task of a batch, or else the turn; or, for a service
            that honours `ctx.effect_key`, in all turns of the `account`.
        may_recur: Whether an effect that is known may be brought about again: the call then runs.
        verify: A read-only function or tool that finds out whether a call has taken effect, after
            its outcome has become unknown. It takes arguments of the call by name, and
            `ToolContext`. What it returns is the result of the call; None means that the call has
            not taken effect. If it raises, it is tried again for a while.
        settle: The time after which a call that was lost cannot take effect any more; it passes
            before `verify` is asked. The default is no time.
        on_unknown: What happens if the outcome remains unknown: the model is told (`tell`), the
            turn waits until a person says what became of the call (`pause`), or it fails (`fail`).
        undo: A function or a tool that takes the effect of a call back, when a person asks for that
            or a turn of an agent with `on_failure="undo"` fails. It takes arguments of the call by
            name, `result`, which is the text of its result, and `ToolContext`. A tool has its own
            options: its approval, its effect and its read-back.
        later: Whether the function starts a job and returns its handle, and the result comes later;
            or the time after which the call is then given up, instead of a day. The call stays open
            without a worker until `AgentClient.finish_call` gets `ctx.call_token` and the result.
        poll: A read-only function or tool that asks for the result of a job. It takes arguments of
            the call by name, `handle`, and `ToolContext`. None means that the job runs. If it
            raises, it is tried again.
        poll_every: The pause between two polls; the default is 30 seconds.
        cancel: A function or tool that cancels a job, when its call is given up or the turn ends.
            It takes the same arguments as `poll`, and may be called more than once.

    Raises:
        ConfigurationError: The name, the timeout or another value is not valid, the tool is local
            but not read-only, or an option needs another one.
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
        ConfigurationError: The name is not a string, or an item is not a tool.
    """

    name: validation.Text
    tools: Converted[Iterable[Tool | Callable[..., Any]], tuple[Tool, ...]] = Converted(
        lambda toolbox, given: as_tools(given, f"toolbox {toolbox.name!r}"), ()
    )

    def __post_init__(self) -> None:
        validation.check_fields(Toolbox, "toolbox", self)

    def prefixed(self, prefix: str) -> Toolbox:
        """Return the same tools with `prefix` before each name, for toolboxes that share names.

        Raises:
            ConfigurationError: A name is no longer valid.
        """
        return Toolbox(self.name, [item.renamed(prefix + item.name) for item in self.tools])

    def filtered(self, wanted: Callable[[Tool], bool] | Collection[str]) -> Toolbox:
        """Return only the tools with these names or accepted by `wanted`, in the same order.

        Raises:
            ConfigurationError: The toolbox does not have a tool of one of the names.
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
    """Finds tools by name that an agent does not have.

    It is called for the tools that a turn allows, when the turn begins and when they are called.
    """

    def resolve(self, name: str) -> Tool | None:
        """Return the tool of this name; None, which is not an error, if there is none.

        An exception fails the turn.
        """


def as_tools(items: Iterable[Tool | Callable[..., Any]], who: str = "tools") -> tuple[Tool, ...]:
    """Return `items` as tools: functions are converted with the defaults of `@tool`.

    Raises:
        ConfigurationError: An item is neither; the message begins with `who`.
    """
    return tuple(
        item if isinstance(item, Tool) else tool(item)
        for item in validation.listed(who, "tools", items, _A_TOOL)
    )


def _name_of(function: Callable[..., Any]) -> str:
    name: str | None = getattr(function, "__name__", None)
    if name is None:
        raise errors.ConfigurationError(f"{function!r} has no name; pass one with tool(name=…)")
    return name
