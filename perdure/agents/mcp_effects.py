"""Effects of tools of MCP servers, which the agent declares because the server cannot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pydantic import JsonValue

from perdure import validation
from perdure.agents.effects import EffectOptions, EffectScope, OnUnknown
from perdure.agents.tool_context import ToolContext
from perdure.agents.tools import Tool
from perdure.schemas import tool_arguments

Call = Callable[[ToolContext[Any], Mapping[str, JsonValue]], Awaitable[object]]

_NOTHING = ("", "null", "[]", "{}")
_KINDS = {
    "effect_scope": EffectScope,
    "may_recur": bool,
    "verify": validation.Text,
    "arguments": validation.Texts,
    "not_found": validation.Text,
    "settle": validation.Time | None,
    "on_unknown": OnUnknown,
}


@dataclass(frozen=True, kw_only=True)
class MCPEffect:
    """What a call of a tool of an MCP server brings about, as for `perdure.tool`.

    Attributes:
        effect: The names of the arguments that say what a call brings about. Two calls with equal
            values are one effect; without names, the calls have no keys.
        effect_scope: Where they are one effect.
        may_recur: Whether an effect that is known may be brought about again.
        verify: The server's own name of the tool that looks a lost call up, which must not change
            anything. An answer that is empty, `null`, `[]` or `{}` means that there is nothing, and
            an error that it has to be asked again.
        arguments: The arguments of that tool, each with the argument of the call that it gets;
            without any, those in `effect`, under the same names.
        not_found: A part of the answer of that tool which means that there is nothing, also if the
            answer is an error.
        settle: The time after which a call that was lost cannot take effect any more.
        on_unknown: What happens if the outcome remains unknown.

    Raises:
        ConfigurationError: A value is not valid.
    """

    effect: Collection[str] = ()
    effect_scope: EffectScope = "session"
    may_recur: bool = False
    verify: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    not_found: str = ""
    settle: timedelta | None = None
    on_unknown: OnUnknown = "tell"

    def __post_init__(self) -> None:
        validation.check("MCPEffect", vars(self), _KINDS)
        names = validation.listed("MCPEffect", "effect", self.effect, validation.Text)
        object.__setattr__(self, "effect", names)

    def options(self, call: Call) -> EffectOptions:
        """Return the options of the tool. `call` calls the tool in `verify`."""
        return EffectOptions(
            effect=[*self.effect] or None,
            effect_scope=self.effect_scope,
            may_recur=self.may_recur,
            verify=MCPReader(self, call) if self.verify else None,
            settle=self.settle,
            on_unknown=self.on_unknown,
        )


class MCPReader(Tool):
    """The tool of a server that looks up a call of another tool of that server."""

    def __init__(self, effect: MCPEffect, call: Call) -> None:
        async def function(context: ToolContext[Any], arguments: Mapping[str, JsonValue]) -> object:
            return await call(context, arguments)

        super().__init__(function, name="verify", description=effect.verify, read_only=True)
        self._not_found = effect.not_found
        self._names = dict(effect.arguments) or {name: name for name in effect.effect}

    @property
    def context_parameter(self) -> str | None:
        """The parameter for the context, which the call needs."""
        return "context"

    @property
    def arguments(self) -> tool_arguments.Arguments:
        """No schema: the server has it."""
        return tool_arguments.GivenArguments({})

    def says_nothing(self, content: str) -> bool:
        """Return whether an answer means that there is nothing."""
        is_named = bool(self._not_found) and self._not_found in content
        return is_named or content.strip() in _NOTHING

    def accepted(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the read-back."""
        given = {name: values[own] for name, own in self._names.items() if own in values}
        return {"arguments": given}
