"""What a model is offered and reads, and the person is asked, if a server needs a login. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.activities.tool_compatibility import error_result
from perdure.agents.definitions import ToolDefinition
from perdure.agents.mcp_effects import Call
from perdure.agents.mcp_logins import DESCRIPTION, KEY, LOG_IN
from perdure.agents.mcp_servers import ListedTool, MCPServer, MCPTool, name_of
from perdure.text import word
from perdure.turn.wire import ToolOutput
from perdure.values.inquiries import GivenAnswers, Inquiry, ServerQuestion


class LoginNeededError(Exception):
    """A server has not carried out a request, because the person has to log in.

    Attributes:
        scopes: What the server has demanded, if it has said so.
        has_them: Whether the login that was refused has these scopes.
    """

    def __init__(self, scopes: Sequence[str] = (), *, has_them: bool = False) -> None:
        super().__init__("the person has to log in")
        self.scopes = tuple(scopes)
        self.has_them = has_them


def login_tool(server: MCPServer, call: Call) -> MCPTool:
    """Return the tool by which a person logs in at a server, with its function."""
    described = ListedTool(
        own=LOG_IN,
        description=DESCRIPTION.format(server=server.name),
        parameters={"type": "object", "properties": {}},
        read_only=True,
        idempotent=True,
    )
    return MCPTool(server, name_of(server.name, LOG_IN), call, LOG_IN, described)


def asked(
    server: MCPServer,
    subject: str,
    tool: str,
    needed: LoginNeededError,
    answers: GivenAnswers | None,
) -> ToolOutput:
    """Return the result of a call that a login is necessary for: a question to the person.

    If nobody has logged in, or the server refuses a login with all that it demands, the model reads
    that, and so does a read-back, which asks nobody.
    """
    how = server.how_to_log_in
    assert how is not None
    if answers is None:
        return error_result(
            f"{tool} was not called: {word(subject)} has to log in at the MCP server"
            f" {server.name!r}"
        )
    last = next((each for each in reversed(answers.given) if each.key == KEY), None)
    if last is not None and last.action != "accept":
        why = "declined to" if last.action == "decline" else "did not in time"
        return error_result(
            f"{tool} was not called: {word(subject)} has to log in at the MCP server"
            f" {server.name!r}, and {why}"
        )
    if last is not None and needed.has_them:  # a further login would be refused as well
        return error_result(
            f"{tool} was not called: {word(subject)} has logged in at the MCP server"
            f" {server.name!r} with the scopes that it demands ({', '.join(needed.scopes)}), and it"
            " refuses the call nevertheless"
        )
    text = f"{word(subject)} has to log in at {server.url}"
    question = ServerQuestion(key=KEY, text=text, login=how.request(server.url, needed.scopes))
    return ToolOutput(content="", inquiry=Inquiry(server=server.name, questions=(question,)))


def without_login(answers: GivenAnswers) -> GivenAnswers:
    """Return the answers that are for a server: not that somebody has logged in."""
    given = tuple(each for each in answers.given if each.key != KEY)
    return answers.model_copy(update={"given": given})


def logged_in(server: MCPServer, subject: str, tools: Sequence[ToolDefinition]) -> ToolOutput:
    """Return the result of the tool by which a person logs in."""
    names = ", ".join(tool.name for tool in tools) or "none"
    return ToolOutput(
        content=(
            f"{word(subject)} is logged in at {server.name}. You have its tools from now on:"
            f" {names}"
        ),
        tools=tuple(tools),
    )
