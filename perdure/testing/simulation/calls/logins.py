"""An MCP server in a simulation that acts for one person, who logs in there.

It is the witness, too: it notes whom it has sent to the login, and which of its tools models had.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn

from pydantic import JsonValue
from temporalio.common import RawValue

from perdure.activities.mcp.login_results import LoginNeededError, asked, logged_in, login_tool
from perdure.activities.provider import ModelRequest
from perdure.activities.tool_compatibility import error_result
from perdure.agents.definitions import AgentDefinition, ToolDefinition, define_tool
from perdure.agents.mcp_servers import ListedTool, MCPServer, toolbox
from perdure.agents.tools import Toolbox
from perdure.temporal.payloads import pack, unpack
from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.server.runs import Activity
from perdure.turn.wire import ToolOutput, ToolRun
from perdure.values.inquiries import GivenAnswers
from perdure.values.messages import ToolCall

LOGINS = "logins"
"""The feature of such a server, and the sequence of all that has to do with it."""

SUBJECT = "anna"
"""The person for whom all turns of a simulation work."""

NOTE, SHARE, LOG_IN = DIARY_TOOLS = ("diary__note", "diary__share", "diary__log_in")
"""The tools of the server, and the tool that asks for a login."""

_SCOPE = "share"
"""What a login has to be good for, so that the server shares anything."""
_PARAMETERS: dict[str, JsonValue] = {"type": "object", "properties": {"a": {"type": "integer"}}}
_SERVER = MCPServer.http("diary", "http://127.0.0.1/diary", login=True)


def _never_called(*arguments: object) -> NoReturn:
    raise AssertionError("the server of a simulation is made up")


def _tools(edition: int) -> Toolbox:
    """Return the tools of the server, which it describes in other words in each edition."""
    listed = (
        ListedTool(own, f"{own.title()} something ({edition}).", _PARAMETERS)
        for own in ("note", "share")
    )
    return toolbox(_SERVER, listed, lambda name, digest: _never_called)


DIARY = Toolbox("diary", [*_tools(1).tools, login_tool(_SERVER, _never_called)])
"""All that an agent may be offered of the server; what it is, the login decides."""


@dataclass(frozen=True)
class AskedLogin:
    """A call for which the person has to log in.

    Attributes:
        told: What people had answered before.
        has_scopes: Whether the login that was refused has all that the server demands.
    """

    activity: Activity
    told: GivenAnswers
    has_scopes: bool


@dataclass(frozen=True)
class Offer:
    """The tools of the server that a model had in a call: their descriptions, by their names."""

    activity: Activity
    tools: dict[str, str]


class PersonalServer:
    """The MCP server.

    Attributes:
        scopes: What the login of the person is good for; None without a login.
        asked: The calls for which the person was asked to log in, in order.
        offers: What models were offered of it, in order.
    """

    def __init__(self, choices: Choices) -> None:
        self.scopes: Collection[str] | None = None
        self.asked: list[AskedLogin] = []
        self.offers: list[Offer] = []
        self._edition = 1
        self._choices = choices

    def log_in(self, scopes: Collection[str]) -> None:
        """Keep a login instead of the one before. At times, the tools have changed since."""
        self.scopes = scopes
        self._edition += self._choices.happens(5, beside=LOGINS)

    @property
    def _offered(self) -> list[ToolDefinition]:
        """The tools that the server lists for the person now."""
        return [define_tool(item, item.name) for item in _tools(self._edition).tools]

    def resolved(self, definition: RawValue) -> RawValue:
        """Return the definition of an agent with what the server lists for the person now."""
        agent = unpack(definition, AgentDefinition)
        listed = {} if self.scopes is None else {tool.name: tool for tool in self._offered}
        tools = [
            tool
            if tool.name not in DIARY_TOOLS or tool.name == LOG_IN
            else tool.model_copy(
                update={
                    "description": listed[tool.name].description,
                    "schema_digest": listed[tool.name].schema_digest,
                }
            )
            for tool in agent.tools
            if tool.name not in DIARY_TOOLS or tool.name in (listed or (LOG_IN,))
        ]
        return pack(agent.model_copy(update={"tools": tuple(tools)}))

    def note(self, activity: Activity, request: ModelRequest) -> None:
        """Note what a model is offered of the server."""
        tools = {tool.name: tool.description for tool in request.tools if tool.name in DIARY_TOOLS}
        self.offers.append(Offer(activity, tools))

    def result(self, activity: Activity, run: ToolRun) -> ToolOutput | None:
        """Return the result of a call that the server does not carry out; None if it does."""
        name = run.tool or activity.type
        if name not in DIARY_TOOLS:
            return None
        if self._choices.happens(10, beside=LOGINS):
            self.scopes = None
        if self.scopes is None:
            return self._refused(activity, run, LoginNeededError())
        if name == LOG_IN:
            return logged_in(_SERVER, SUBJECT, self._offered)
        pinned = next(tool.schema_digest for tool in self._offered if tool.name == name)
        if pinned != run.schema_digest:
            return error_result(f"{name} was not called: its description has changed")
        has_scopes = _SCOPE in self.scopes
        if name == SHARE and (not has_scopes or self._choices.happens(3, beside=LOGINS)):
            return self._refused(activity, run, LoginNeededError([_SCOPE], has_them=has_scopes))
        return None

    def _refused(self, activity: Activity, run: ToolRun, needed: LoginNeededError) -> ToolOutput:
        output = asked(_SERVER, SUBJECT, run.tool or activity.type, needed, run.answers)
        if output.inquiry is not None:
            told = run.answers or GivenAnswers()
            self.asked.append(AskedLogin(activity, told, needed.has_them))
        return output


def some_diary_call(choices: Choices, agent: AgentDefinition) -> ToolCall:
    """Return a call of a tool of the server; mostly of one that the agent has."""
    offered = [name for name in (SHARE, NOTE, SHARE, LOG_IN) if agent.tool(name) is not None]
    some = (NOTE, LOG_IN) if choices.happens(6, beside=LOGINS) or not offered else offered
    name = choices.pick(some, beside=LOGINS)
    arguments = choices.pick(("{}", '{"a": 1}', '{"a": 4}'), beside=LOGINS)
    return ToolCall(id="", name=name, arguments=arguments)
