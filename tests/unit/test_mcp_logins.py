"""Requests with the token of a person, and what a server that needs one may do wrong."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

import httpx2

from perdure.activities.mcp import inquiries
from perdure.activities.mcp.logins import Person, PersonalTransport
from perdure.activities.mcp.pool import Pool
from perdure.agents.jobs import PendingJob
from perdure.agents.mcp_servers import MCPServer
from perdure.agents.tool_context import ToolContext
from perdure.testing.loopback import LoopbackServer, Quiet
from perdure.values.inquiries import GivenAnswers

from ..conftest import eventually
from ..support.people import SUBJECT, People, people

__all__ = ["people"]


class Hostile(LoopbackServer):
    """An MCP server that answers as a test has it.

    Attributes:
        url: Its address.
        answers: Status, headers and body by the method of the request; `{token}` is the token.
        tokens: The tokens that it has got.
        methods: The methods of the requests.
    """

    def __init__(self) -> None:
        super().__init__(_Handler, 0)
        self.url = ""
        self.answers: dict[str, tuple[int, dict[str, str], str]] = {}
        self.tokens: list[str] = []
        self.methods: list[str] = []

    def _started(self, address: str) -> None:
        self.url = f"{address}/mcp"


class _Handler(Quiet, BaseHTTPRequestHandler):
    service: Hostile

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        self.service.tokens.append(token)
        self.service.methods.append(body["method"])
        status, headers, text = self.service.answers.get(body["method"], (401, {}, ""))
        content = text.replace("{id}", json.dumps(body.get("id"))).replace("{token}", token)
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content.encode())


async def answered(people: People, url: str, method: str = "ping") -> dict[str, Any]:
    """The answer to a request of the person."""
    transport = PersonalTransport(Person(SUBJECT, people.grants()), url, lambda _: None)
    async with httpx2.AsyncClient(transport=transport) as http:
        answer = await http.post(url, json={"jsonrpc": "2.0", "id": 1, "method": method})
    found: dict[str, Any] = answer.json()
    return found


def needed(answer: dict[str, Any]) -> object:
    """The scopes that a person is asked for."""
    return answer["error"]["data"]["needs"]["scopes"]


@pytest.mark.accepts("G136")
async def test_server_that_refuses_everything_gets_two_requests_until_a_person_has_logged_in(
    people: People,
) -> None:
    """One with each token: a login that is refused is not renewed again."""
    with Hostile() as server:
        await people.grants().keep(SUBJECT, server.url, await people.tokens())
        answer = await answered(people, server.url)

    assert needed(answer) == []
    assert len(server.tokens) == len(set(server.tokens)) == 2
    assert people.issuer.renewals == 1


@pytest.mark.accepts("G136")
async def test_scopes_of_a_refusal_are_those_that_scopes_can_be(people: People) -> None:
    """A long or strange one is left out: nobody could log in for it."""
    many = " ".join(f"s{number}" for number in range(99))
    for scope, found in (
        ("events.write", ["events.write"]),
        ("events.write " + "x" * 300 + " caf\u00e9", ["events.write"]),
        (many, many.split()[:50]),
    ):
        with Hostile() as server:
            challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
            server.answers["ping"] = 403, {"www-authenticate": challenge}, ""
            await people.grants().keep(SUBJECT, server.url, await people.tokens())
            answer = await answered(people, server.url)

        assert needed(answer) == found
        assert len(server.tokens) == 1


@pytest.mark.accepts("G146")
async def test_refusal_of_a_login_with_the_demanded_scopes_is_told_from_that_of_another(
    people: People,
) -> None:
    """Another login would help with the other only."""
    people.issuer.metadata["scopes_supported"] = ["profile", "offline_access"]
    found = []
    for demanded in ("profile", "profile admin"):
        with Hostile() as server:
            challenge = f'Bearer error="insufficient_scope", scope="{demanded}"'
            server.answers["ping"] = 403, {"www-authenticate": challenge}, ""
            tokens = await people.tokens(scopes=["profile"])
            await people.grants().keep(SUBJECT, server.url, tokens)
            answer = await answered(people, server.url)
        found.append((needed(answer), answer["error"]["data"]["needs"]["has_them"]))

    assert found == [(["profile"], True), (["profile", "admin"], False)]


@pytest.mark.accepts("G136")
async def test_login_in_another_process_serves_one_that_knows_the_earlier_login(
    people: People,
) -> None:
    """Which is good for less: nobody is asked twice."""
    people.calendar.scopes["whoami"] = "profile"
    people.issuer.metadata["scopes_supported"] = ["profile", "offline_access"]
    await people.log_in()
    grants = people.grants()
    assert await grants.token(SUBJECT, people.calendar.url) is not None
    await people.log_in(scopes=["profile"])
    pool = Pool()
    server = MCPServer.http("calendar", people.calendar.url, login=True)
    output = await pool.call(server, Person(SUBJECT, grants), "calendar__whoami", "", context(), {})
    await pool.close()

    assert output.content == "anna"


def context() -> ToolContext[Any]:
    """The context of a call that may ask."""
    return ToolContext(
        deps=None,
        turn_id="t",
        call_id="c",
        idempotency_key="k",
        effect_key="k",
        attempt=1,
        labels={},
        beat=lambda _: None,
        read_secret=str,
        answers=GivenAnswers(),
    )


@pytest.mark.accepts("G136")
@pytest.mark.parametrize("kind", ["result", "error", "list"])
async def test_token_that_a_server_repeats_is_removed(people: People, kind: str) -> None:
    """From results, errors and descriptions of tools."""
    tool = {"name": "echo", "description": "knows {token}", "inputSchema": {"type": "object"}}
    result = {"content": [{"type": "text", "text": "it is {token}, Bearer {token}"}]}
    with Hostile() as server:
        server.answers = {
            "initialize": (200, {}, _result(_INITIALIZED)),
            "server/discover": (200, {}, _error("no such method {token}", -32601)),
            "notifications/initialized": (202, {}, ""),
            "tools/list": (200, {}, _result({"tools": [tool]})),
            "tools/call": (
                200,
                {},
                _error("{token} is not known") if kind == "error" else _result(result),
            ),
        }
        await people.grants().keep(SUBJECT, server.url, await people.tokens())
        person = Person(SUBJECT, people.grants())
        declared, pool = MCPServer.http("hostile", server.url, login=True), Pool()
        listed = await pool.tools(declared, person)
        output = await pool.call(declared, person, "hostile__echo", "", context(), {})
        await pool.close()
        [token] = set(server.tokens)

    said = listed[0].description if kind == "list" else output.content
    assert token
    assert token not in said
    assert token[-24:] not in said
    assert "[token]" in said


@pytest.mark.accepts("G136")
async def test_connection_that_was_used_least_recently_makes_room_for_another_person(
    people: People,
) -> None:
    """A process keeps so many open, and opens it again when it is needed."""
    with Hostile() as server:
        server.answers = {
            "initialize": (200, {}, _result(_INITIALIZED)),
            "server/discover": (200, {}, _error("no such method", -32601)),
            "notifications/initialized": (202, {}, ""),
            "tools/list": (200, {}, _result({"tools": []})),
        }
        declared, pool = MCPServer.http("hostile", server.url, login=True), Pool(most_people=2)
        opened = []
        for subject in ("anna", "ben", "anna", "carl", "anna", "ben"):
            await people.grants().keep(subject, server.url, await people.tokens())
            await pool.tools(declared, Person(subject, people.grants()))
            opened.append(server.methods.count("initialize"))
        await pool.close()

    assert opened == [1, 2, 2, 3, 3, 4]


_INITIALIZED = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "hostile", "version": "1"},
}


def _result(result: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 0, "result": result}).replace(
        '"id": 0', '"id": {id}', 1
    )


def _error(message: str, code: int = -32000) -> str:
    error = {"code": code, "message": message}
    return json.dumps({"jsonrpc": "2.0", "id": 0, "error": error}).replace(
        '"id": 0', '"id": {id}', 1
    )


@pytest.mark.accepts("G136")
async def test_poll_of_a_task_that_is_refused_waits_for_the_next_login(people: People) -> None:
    """The task may be at work, so it is not given up."""
    with Hostile() as server:
        await people.grants().keep(SUBJECT, server.url, await people.tokens())
        declared, pool = MCPServer.http("hostile", server.url, login=True), Pool()
        person = Person(SUBJECT, people.grants())
        found = await pool.poll(declared, person, "hostile__build", "task-1", GivenAnswers())
        await pool.close()

    assert found == PendingJob("the person has to log in at the MCP server 'hostile'")


@pytest.mark.accepts("G136")
async def test_redirect_of_a_server_gets_no_token(people: People) -> None:
    with Hostile() as other, Hostile() as server:
        server.answers["ping"] = 307, {"location": other.url}, "{}"
        await people.grants().keep(SUBJECT, server.url, await people.tokens())
        await answered(people, server.url)

    assert len(server.tokens) == 1
    assert other.tokens == []


@pytest.mark.accepts("G136")
def test_question_of_a_server_has_no_key_of_perdure() -> None:
    """Its answer would be taken for a login."""
    request = {
        "method": "elicitation/create",
        "params": {"message": "Go on?", "requestedSchema": {"type": "object", "properties": {}}},
    }
    with pytest.raises(ValueError, match="begins with 'perdure:'"):
        inquiries.read("calendar", {"perdure:log_in": request}, str)


@pytest.mark.accepts("G136")
async def test_connections_of_many_people_are_closed(people: People) -> None:
    """A pool keeps none that was not used for a while."""
    pool, server = Pool(idle_s=0.05), MCPServer.http("calendar", people.calendar.url, login=True)
    for number in range(5):
        await people.grants().keep(f"p{number}", people.calendar.url, await people.tokens())
        await pool.tools(server, Person(f"p{number}", people.grants()))
    opened = [*pool._all]
    await eventually(lambda: all(connection.is_over for connection in opened), "all are closed")
    await pool.tools(server, Person("p0", people.grants()))
    kept = len(pool._kept), len(pool._all)
    await pool.close()

    assert kept == (1, 1)
