"""MCP servers as toolboxes: their declarations, and the tools to which a turn is pinned.

A server describes its own tools, so the descriptions are untrusted. A turn is pinned to them: name,
description and schema of each tool are in its definition with a digest, and a tool whose
description changes later is not called in that turn. Hints that a tool may be repeated are used
only if the server is trusted. Secrets are given as names of environment variables, which are read
where the connection is made.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, TypedDict, Unpack

from pydantic import JsonValue
from pydantic_core import to_json

from perdure import errors, limits, validation
from perdure.agents.jobs import PinnedJob
from perdure.agents.mcp_effects import Call, MCPEffect
from perdure.agents.mcp_logins import MCPLogin
from perdure.agents.mcp_tasks import LONGEST_TASK, TaskCalls
from perdure.agents.tool_context import ToolContext
from perdure.agents.tools import NAME, Tool, Toolbox
from perdure.schemas import tool_arguments
from perdure.schemas.strict_schema import check_size
from perdure.schemas.visible import readable
from perdure.text import stripped, word
from perdure.validation import Must, instance
from perdure.values import keywords

BETWEEN = "__"
"""The separator between the names of a server and its tool."""

_SERVER = re.compile(r"[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*")
_SERVER_CHARACTERS = 32
_ADDRESS = re.compile(r"https?://[^\s/@]+(/\S*)?")
_HASH_CHARACTERS = 8

_KINDS = {
    **dict.fromkeys(("cwd", "url"), validation.Text),
    **dict.fromkeys(("timeout", "start_timeout"), validation.Time),
    "env": Annotated[
        object,
        Must(
            "a list of strings, or a mapping of strings",
            lambda env: not isinstance(env, Mapping) or validation.accepts(validation.Texts, env),
        ),
    ],
    "headers_env": validation.Texts,
    **dict.fromkeys(("trusted", "asks"), bool),
    "tasks": LONGEST_TASK,
    "login": Annotated[
        object, Must("True, False or an MCPLogin", lambda login: isinstance(login, bool | MCPLogin))
    ],
    "digest": validation.Text | None,
    "effects": Mapping[str, Annotated[object, instance("an MCPEffect", MCPEffect)]],
}


class MCPServerOptions(TypedDict, total=False):
    """The options of a server with any transport, which `MCPServer` describes."""

    allowed: Collection[str] | None
    requires_approval: bool | Collection[str]
    trusted: bool
    tasks: bool | timedelta | None
    asks: bool
    timeout: timedelta
    start_timeout: timedelta
    digest: str | None
    effects: Mapping[str, MCPEffect]


@dataclass(frozen=True, kw_only=True)
class MCPServer:
    """A server of the Model Context Protocol, as a toolbox of agents.

    Make one with `MCPServer.stdio` or `MCPServer.http`.

    Attributes:
        name: 1 to 32 characters of A-Z, a-z, 0-9, - and single _ within. Tools are called
            `name__tool`.
        command: The program and its arguments, for a server that the worker starts.
        cwd: The folder in which it is started; empty for the worker's own folder.
        url: The address of a server that runs elsewhere.
        env: Environment variables of the server, each with the variable of the worker that contains
            its value. The server gets no others except `PATH`, `HOME`, `LANG` and the like.
        headers_env: HTTP headers, each with the variable of the worker that contains its value. An
            `authorization` of a single word is sent as `Bearer` and the word.
        login: Whether the server acts for one person, the data subject of the turn, who logs in
            there; or how.
        allowed: The tools that are offered, by the server's own names; None for all.
        requires_approval: Whether each call needs approval; or the tools whose calls do, by the
            server's own names.
        trusted: Whether to believe its hints that a tool is read-only or idempotent, so that lost
            calls of such a tool are repeated.
        tasks: Whether it may answer a call with a task, whose result the turn waits for; or how
            long, if not a day. By default, over HTTP alone: each worker starts a server of its own.
        asks: Whether it may ask people something during a call, which then waits for their answer.
        timeout: The time after which a call is stopped; the model gets an error.
        start_timeout: The time the server has to start and to list its tools; at most 45 seconds.
        effects: What calls of its tools bring about, by the server's own names of the tools.
        digest: The required digest of its tools and their believed hints. If it differs, a turn
            does not begin, and the error contains the digest that was found.

    Raises:
        ConfigurationError: A value is not valid.
    """

    name: str
    command: Sequence[str] = ()
    cwd: str = ""
    url: str = ""
    env: Collection[str] | Mapping[str, str] = ()
    headers_env: Mapping[str, str] = field(default_factory=dict)
    login: bool | MCPLogin = False
    allowed: Collection[str] | None = None
    requires_approval: bool | Collection[str] = False
    trusted: bool = False
    tasks: bool | timedelta | None = None
    asks: bool = True
    timeout: timedelta = limits.TOOL_CALL
    start_timeout: timedelta = limits.MCP_START
    digest: str | None = None
    effects: Mapping[str, MCPEffect] = field(default_factory=dict)

    def __post_init__(self) -> None:
        validation.check("MCP server", vars(self), {"name": validation.Text})
        if not _SERVER.fullmatch(self.name) or len(self.name) > _SERVER_CHARACTERS:
            raise errors.ConfigurationError(
                f"MCP server {self.name!r}: use 1 to {_SERVER_CHARACTERS} of A-Z, a-z, 0-9, - and"
                " single _ within; its tools are called name__tool"
            )
        who = f"MCP server {self.name}"
        validation.check(who, vars(self), _KINDS)
        for field_name in ("command", "env", "allowed", "requires_approval"):
            value = getattr(self, field_name)
            if value is not None and not isinstance(value, bool | Mapping):
                object.__setattr__(
                    self, field_name, validation.listed(who, field_name, value, validation.Text)
                )
        if bool(self.command) == bool(self.url):
            raise errors.ConfigurationError(
                f"MCP server {self.name}: give either a command or a url"
            )
        if self.url and not _ADDRESS.fullmatch(self.url):
            raise errors.ConfigurationError(
                f"MCP server {self.name}: the url begins with http:// or https:// and holds no user"
                " name and no space; keys belong into headers_env"
            )
        if self.login and (self.command or any(map(_is_authorization, self.headers_env))):
            raise errors.ConfigurationError(
                f"MCP server {self.name}: login= is for a url whose authorization is the login of a"
                " person, so give neither a command nor an authorization in headers_env"
            )
        if self.start_timeout > limits.MCP_LONGEST_START:
            longest = f"{limits.MCP_LONGEST_START.total_seconds():g}"
            raise errors.ConfigurationError(
                f"MCP server {self.name}: start_timeout is at most {longest} s, not"
                f" {self.start_timeout}"
            )
        object.__setattr__(
            self,
            "env",
            (
                dict(self.env)
                if isinstance(self.env, Mapping)
                else {variable: variable for variable in self.env}
            ),
        )
        object.__setattr__(self, "headers_env", dict(self.headers_env))

    @classmethod
    @keywords.shows(MCPServerOptions)
    def stdio(
        cls,
        name: str,
        command: Sequence[str],
        *,
        env: Collection[str] | Mapping[str, str] = (),
        cwd: str = "",
        **options: Unpack[MCPServerOptions],
    ) -> MCPServer:
        """Declare a server that each worker runs as a child process, for the worker's lifetime.

        Raises:
            ConfigurationError: A value is not valid.
        """
        return cls(name=name, command=command, env=env, cwd=cwd, **options)

    @classmethod
    @keywords.shows(MCPServerOptions)
    def http(
        cls,
        name: str,
        url: str,
        *,
        headers_env: Mapping[str, str] | None = None,
        login: bool | MCPLogin = False,
        **options: Unpack[MCPServerOptions],
    ) -> MCPServer:
        """Declare a server that runs elsewhere, with streamable HTTP.

        Raises:
            ConfigurationError: A value is not valid.
        """
        return cls(name=name, url=url, headers_env=headers_env or {}, login=login, **options)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of the server, each with the worker's variable."""
        assert isinstance(self.env, dict)
        return self.env

    @property
    def connection(self) -> tuple[object, ...]:
        """The key of the connection: servers with the same key share a connection in a worker."""
        how = (
            self.name,
            self.command,
            self.cwd,
            self.url,
            tuple(sorted(self.variables.items())),
            tuple(sorted(self.headers_env.items())),
        )
        return (*how, bool(self.longest_task), self.timeout, self.start_timeout)

    @property
    def how_to_log_in(self) -> MCPLogin | None:
        """How a person logs in; None if nobody does."""
        if self.login is True:
            return MCPLogin()
        return self.login or None

    @property
    def longest_task(self) -> bool | timedelta:
        """Whether it may answer calls with tasks, as the option `later` of a tool says it."""
        return bool(self.url) if self.tasks is None else self.tasks

    @property
    def in_process(self) -> object:
        """A server object of the package `mcp` to connect to instead, for tests; otherwise None."""
        return None

    def effect_of(self, name: str) -> MCPEffect | None:
        """Return what is declared of the effect of the tool that models know as `name`."""
        for own, effect in self.effects.items():
            if name_of(self.name, own) == name:
                return effect
        return None

    def offers(self, tool: str) -> bool:
        """Whether a tool of this name belongs to the server."""
        return tool.startswith(self.name + BETWEEN)

    def needs_approval(self, own: str) -> bool:
        """Whether each call of a tool needs approval."""
        return (
            self.requires_approval
            if isinstance(self.requires_approval, bool)
            else own in self.requires_approval
        )


@dataclass(frozen=True)
class ListedTool:
    """A tool as its server describes it; `own` is the server's name of the tool.

    With `may_be_task`, the server may answer a call with a task.
    """

    own: str
    description: str
    parameters: dict[str, JsonValue] = field(hash=False)
    read_only: bool = False
    idempotent: bool = False
    may_be_task: bool = False

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of everything that a model reads of the tool.

        A shorter digest would allow deliberate collisions.
        """
        return hashlib.sha256(to_json([self.own, self.description, self.parameters])).hexdigest()


class MCPTool(Tool):
    """A tool of a server, which has the schema and checks arguments against it.

    Its turn is pinned to `digest`. `function` takes `context` and `arguments`, a JSON object.
    `reads` calls the tool that looks its calls up, and `tasks` the server about its tasks. With
    `may_ask`, the server may ask people something during a call.
    """

    def __init__(
        self,
        server: MCPServer,
        name: str,
        call: Call,
        digest: str,
        listed: ListedTool | None = None,
        *,
        reads: Call | None = None,
        tasks: TaskCalls | None = None,
    ) -> None:
        async def function(context: ToolContext[Any], arguments: Mapping[str, JsonValue]) -> object:
            return await call(context, arguments)

        effect = server.effect_of(name)
        super().__init__(
            function,
            name=name,
            description=stripped(listed.description) if listed else "",
            timeout=server.timeout,
            read_only=server.trusted and listed is not None and listed.read_only,
            idempotent=server.trusted and listed is not None and listed.idempotent,
            requires_approval=(
                _asks(server, name) if listed is None else server.needs_approval(listed.own)
            ),
            **({} if effect is None or reads is None else effect.options(reads)),
            **({} if tasks is None else tasks.options(server.longest_task, server.timeout)),
        )
        self.may_ask = server.asks or bool(server.login)
        self._may_be_task = listed is not None and listed.may_be_task
        self._digest = digest
        self._parameters = readable(listed.parameters) if listed else {}

    @property
    def digest(self) -> str:
        """The digest to which its turn is pinned.

        It changes with the server's name of the tool, its description or its schema.
        """
        return self._digest

    @property
    def pinned_job(self) -> PinnedJob | None:
        """What a turn is pinned to of its tasks; None if the server has declared none."""
        return super().pinned_job if self._may_be_task else None

    @functools.cached_property
    def context_parameter(self) -> str | None:
        """The parameter for the context, which the call needs to send progress as heartbeats."""
        return "context"

    @functools.cached_property
    def arguments(self) -> tool_arguments.Arguments:
        """The server's own schema."""
        return tool_arguments.GivenArguments(self._parameters)


def _is_authorization(header: str) -> bool:
    return header.lower() == "authorization"


def name_of(server: str, tool_name: str) -> str:
    """Return the name of a tool for models: `server__tool`.

    Characters that are not valid become `_`, and a long name is cut; eight digits of a hash keep
    such names unique.
    """
    name = server + BETWEEN + tool_name
    if NAME.fullmatch(name):
        return name
    mark = "_" + hashlib.sha256(tool_name.encode("utf-8", "replace")).hexdigest()[:_HASH_CHARACTERS]
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    return plain[: limits.NAME_CHARACTERS - len(mark)] + mark


def toolbox(
    server: MCPServer,
    listed: Iterable[ListedTool],
    call_of: Callable[[str, str], Call],
    tasks_of: Callable[[str], TaskCalls] | None = None,
) -> Toolbox:
    """Return the tools of a server that a turn is offered.

    `call_of` makes the function of a tool from its name and its digest, and `tasks_of` the requests
    about its tasks from its name.

    Raises:
        ConfigurationError: The server lacks an allowed tool, or its tools do not have the digest
            that the agent requires.
    """
    allowed = _allowed(server, {item.own: item for item in listed})
    _check_schemas(server, allowed)
    _check_digest(server, allowed)
    names = [name_of(server.name, item.own) for item in allowed]
    return Toolbox(
        server.name,
        [
            MCPTool(
                server,
                name,
                call_of(name, item.digest),
                item.digest,
                item,
                reads=reads_of(server, name, call_of),
                tasks=tasks_of(name) if tasks_of else None,
            )
            for name, item in zip(names, allowed, strict=True)
        ],
    )


def reads_of(server: MCPServer, name: str, call_of: Callable[[str, str], Call]) -> Call | None:
    """Return the function of the tool that looks up calls of another one; None without it."""
    effect = server.effect_of(name)
    return None if effect is None else call_of(name_of(server.name, effect.verify), "")


def _allowed(server: MCPServer, items: Mapping[str, ListedTool]) -> list[ListedTool]:
    """Return the allowed tools.

    Raises:
        ConfigurationError: The server lacks a tool that the agent names.
    """
    readers = {effect.verify for effect in server.effects.values() if effect.verify}
    named = {*(server.allowed or ()), *_named(server.requires_approval), *server.effects, *readers}
    missing = sorted(named - set(items))
    if missing:
        raise errors.ConfigurationError(
            f"the MCP server {server.name!r} has no tool named {missing[0]!r}; it has"
            f" {', '.join(map(word, items)) or 'none'}"
        )
    return [
        item for name, item in items.items() if server.allowed is None or name in server.allowed
    ]


def _check_schemas(server: MCPServer, tools: Sequence[ListedTool]) -> None:
    """Check the schemas of the tools' arguments.

    Raises:
        ConfigurationError: One is not a schema of objects, or is too large.
    """
    odd = next((item.own for item in tools if item.parameters.get("type") != "object"), None)
    if odd is not None:
        raise errors.ConfigurationError(
            f"the tool {odd!r} of the MCP server {server.name!r} takes no object, and models give"
            " nothing else; leave it out with allowed="
        )
    for item in tools:
        try:
            check_size(item.parameters)
        except ValueError as error:
            raise errors.ConfigurationError(
                f"the schema of the tool {item.own!r} of the MCP server {server.name!r}: {error};"
                " or leave the tool out with allowed="
            ) from None


def _check_digest(server: MCPServer, tools: Sequence[ListedTool]) -> None:
    """Check that the tools are those that the agent accepts.

    Raises:
        ConfigurationError: They do not have the required digest.
    """
    digest = digest_of(tools, trusted=server.trusted)
    if server.digest is not None and server.digest != digest:
        raise errors.ConfigurationError(
            f"the tools of the MCP server {server.name!r} have the digest {digest}, and the agent"
            f" accepts {server.digest}: names, descriptions, schemas or believed hints differ;"
            " read them, and if they are acceptable, put the new digest into MCPServer(digest=…)",
            context={"server": server.name, "found": digest, "accepted": server.digest},
        )


def digest_of(items: Iterable[ListedTool], *, trusted: bool = False) -> str:
    """Return the SHA-256, in hex, of tools in any order, and of their hints if they are trusted."""
    return hashlib.sha256(to_json(sorted(_accepted(item, trusted) for item in items))).hexdigest()


def _accepted(item: ListedTool, trusted: bool) -> str:
    """Return the accepted properties of a tool; without hints they do not depend on trust."""
    hints = {"read_only": item.read_only, "idempotent": item.idempotent}
    believed_hints = [name for name, is_told in hints.items() if is_told and trusted]
    return " ".join([item.digest, *believed_hints])


def _asks(server: MCPServer, name: str) -> bool:
    """Whether each call of the tool that models know as `name` needs approval."""
    required = server.requires_approval
    return (
        required
        if isinstance(required, bool)
        else any(name_of(server.name, tool_name) == name for tool_name in required)
    )


def _named(names: bool | Collection[str]) -> Collection[str]:
    return () if isinstance(names, bool) else names
