"""The page of the conformance suites: `python -m tests.support.docs.conformance` writes
`docs/conformance.md` from the table in `tests/support/mcp/conformance.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..mcp.conformance import CLIENT, LOGINS, SERVER, VERSION, Scenario

PAGE = Path(__file__).parents[3] / "docs/conformance.md"

_JUDGES = (
    (
        "MCP",
        f"`@modelcontextprotocol/conformance` {VERSION}: `make mcp-conformance`",
        "the tables below",
    ),
    (
        "AG-UI",
        "`@ag-ui/client` 1.0.0, the protocol's types, and the rules of its specification",
        "all runs are accepted",
    ),
    ("A2A", "the client and the types of `a2a-sdk`", "all answers are read"),
    (
        "OpenAI's Responses API and chat completions",
        "`openai`, `openai-agents` and `pydantic-ai` as clients, and Open Responses as a schema",
        "[what of the API there is](http-responses.md)",
    ),
)
TEXT = """# Conformance: protocols, judged by others

What a protocol says is best judged by a program that its authors have written. This page has what
runs, what it says, and what could not be had. It is made from `tests/support/mcp/conformance.py`,
and a test compares that with what the suite says.

| protocol | judged by | result |
|---|---|---|
JUDGES
Two suites could not be had: the TCK of A2A and the compliance test of Open Responses are in neither
PyPI nor npm, only in repositories, so they do not run here.

## MCP: the gateway as a server

The suite expects a server with the tools, resources and prompts of its own example. A gateway has
the tools of turns alone, so most scenarios do not apply. The suite speaks the revisions up to
2025-11-25, with a handshake, and sends no token; it is run against a gateway that knows every
caller.

SERVER
## MCP: an agent as a client

Each scenario is a turn, in which an agent has the suite as [its server](mcp.md) and calls each
tool.

CLIENT
## MCP: a person logs in

In each of these the server needs a token, and the agent has it with
[`login=True`](mcp.md#servers-that-act-for-a-person). The turn waits until its data subject has
logged in at the authorization server of the suite, which sends people back at once, and then calls
each tool. Of COUNT scenarios PASSED pass, without a warning.

LOGINS
"""
_HEAD = ("| scenario | result | why |", "|---|---|---|")


def page() -> str:
    """The page."""
    judges = [f"| {' | '.join(row)} |" for row in _JUDGES]
    tables = {
        "JUDGES": judges,
        "SERVER": _table(SERVER),
        "CLIENT": _table(CLIENT),
        "LOGINS": _table(LOGINS),
    }
    passed = sum(scenario.passes for scenario in LOGINS)
    text = TEXT.replace("COUNT", str(len(LOGINS))).replace("PASSED", str(passed))
    for name, lines in tables.items():
        text = text.replace(f"{name}\n", "\n".join((*lines, "", "")))
    return f"{text.rstrip()}\n"


def _table(scenarios: Iterable[Scenario]) -> list[str]:
    return [*_HEAD, *map(_row, scenarios)]


def _row(scenario: Scenario) -> str:
    return f"| `{scenario.name}` | {scenario.result} | {scenario.reason or scenario.note} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
