"""MCP's conformance suite: its scenarios, what becomes of each here, and how to run them.

`make mcp-conformance` installs the suite and runs it. The suite needs a newer Node.js than others
do, so it runs with Bun, which comes from the registry of npm, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
VERSION = "0.1.16"
FOLDER = ROOT / "build/mcp-conformance"
INSTALL_S, RUN_S = 180, 300

_OF_FIXTURES = (
    "calls `{}`, a tool of the suite's own example; the tools of the gateway are those of turns"
)
_NO_PROMPTS, _NO_RESOURCES = "there are no prompts", "there are no resources"
_NO_SESSION = "there are no sessions: any process answers each request"


def _of_tool(name: str) -> str:
    return _OF_FIXTURES.format(name)


@dataclass(frozen=True)
class Scenario:
    """A scenario of the suite.

    Attributes:
        name: Its name.
        reason: Why it fails or does not apply; empty for one that passes.
        note: What is to say of one that passes.
        applies: Whether it applies; one that does and has a reason fails.
    """

    name: str
    reason: str = ""
    note: str = ""
    applies: bool = False

    @property
    def result(self) -> str:
        """What becomes of it, in a word."""
        return "passes" if self.passes else "fails" if self.applies else "does not apply"

    @property
    def passes(self) -> bool:
        """Whether it passes."""
        return not self.reason


SERVER = (
    Scenario("server-initialize"),
    Scenario("ping"),
    Scenario("tools-list"),
    Scenario("tools-call-error"),
    Scenario(
        "tools-call-simple-text",
        note="with a text that says that there is no such tool, which is all that it looks at",
    ),
    Scenario("server-sse-multiple-streams", note=f"warns that {_NO_SESSION}"),
    Scenario(
        "dns-rebinding-protection",
        "expects a refusal by the header `Host`. A gateway has any name that its proxy gives it;"
        " what keeps a page of another name out is the token, and the suite sends none",
        applies=True,
    ),
    Scenario("logging-set-level", "there are no log messages"),
    Scenario("completion-complete", "there is nothing to complete"),
    *(
        Scenario(f"tools-call-{name}", _of_tool(f"test_{tool}"))
        for name, tool in (
            ("image", "image_content"),
            ("audio", "audio_content"),
            ("embedded-resource", "embedded_resource"),
            ("mixed-content", "multiple_content_types"),
            ("with-logging", "tool_with_logging"),
            ("with-progress", "tool_with_progress"),
            ("sampling", "sampling"),
            ("elicitation", "elicitation"),
        )
    ),
    Scenario("json-schema-2020-12", _of_tool("json_schema_2020_12_tool")),
    Scenario("elicitation-sep1034-defaults", _of_tool("test_elicitation_sep1034_defaults")),
    Scenario("elicitation-sep1330-enums", _of_tool("test_elicitation_sep1330_enums")),
    Scenario("server-sse-polling", _of_tool("test_reconnection")),
    *(
        Scenario(f"resources-{name}", _NO_RESOURCES)
        for name in (
            *("list", "read-text", "read-binary", "templates-read"),
            *("subscribe", "unsubscribe"),
        )
    ),
    *(
        Scenario(f"prompts-{name}", _NO_PROMPTS)
        for name in (
            *("list", "get-simple", "get-with-args"),
            *("get-embedded-resource", "get-with-image"),
        )
    ),
)
"""The scenarios for servers, with the gateway as the server."""
CLIENT = (
    Scenario("initialize"),
    Scenario("tools_call"),
    Scenario("sse-retry"),
    Scenario(
        "elicitation-sep1034-client-defaults",
        "a server of this revision asks during the call; only one of 2026-07-28 can ask people",
    ),
)
"""The scenarios for clients, with an agent that has the suite as its server."""
_NO_METADATA = (
    "the server does not name its authorization server (RFC 9728), as those of 2025-03-26 did not;"
)
LOGINS = (
    *(
        Scenario(f"auth/{name}", note=note)
        for name, note in (
            ("metadata-default", ""),
            ("metadata-var1", ""),
            ("metadata-var2", ""),
            ("metadata-var3", ""),
            (
                "basic-cimd",
                "with the document as `client_id` of `MCPLogin`; otherwise a client is registered",
            ),
            ("scope-from-www-authenticate", ""),
            ("scope-from-scopes-supported", ""),
            ("scope-omitted-when-undefined", ""),
            ("scope-step-up", ""),
            ("scope-retry-limit", "the person logs in once, and the model reads the refusal"),
            ("token-endpoint-auth-basic", ""),
            ("token-endpoint-auth-post", ""),
            ("token-endpoint-auth-none", ""),
            ("pre-registration", ""),
            ("resource-mismatch", "the login cannot be begun"),
            ("offline-access-scope", ""),
            ("offline-access-not-supported", ""),
        )
    ),
    Scenario(
        "auth/2025-03-26-oauth-metadata-backcompat",
        f"{_NO_METADATA} what the scenario has in its place names another issuer than the address"
        " at which it is (RFC 8414, 3.3), which Perdure refuses",
        applies=True,
    ),
    Scenario(
        "auth/2025-03-26-oauth-endpoint-fallback",
        f"{_NO_METADATA} Perdure does not guess where people log in, nor whether there is PKCE",
        applies=True,
    ),
    Scenario(
        "auth/client-credentials-jwt",
        "nobody logs in: a program gets a token for itself, with `private_key_jwt`, which Perdure"
        " does not have",
    ),
    Scenario(
        "auth/client-credentials-basic",
        "nobody logs in: a program gets a token for itself; such a token comes from the"
        " environment, with `headers_env`",
    ),
    Scenario(
        "auth/cross-app-access-complete-flow",
        "nobody logs in: a token of the company's identity provider is exchanged",
    ),
)
"""The scenarios for clients in which a server needs a token, with a person who logs in at once."""


@dataclass(frozen=True)
class Result:
    """What became of a scenario: its failures and warnings, in words."""

    name: str
    failures: tuple[str, ...]
    warnings: tuple[str, ...]


class NotInstalledError(Exception):
    """The suite is not installed, and could not be."""


def installed() -> Path:
    """The folder of the suite, which is installed if it is not there.

    Raises:
        NotInstalledError: npm cannot be reached, or there is none.
    """
    if not (FOLDER / "node_modules/.bin/bun").exists():
        command = ["make", "--no-print-directory", "mcp-conformance-tools"]
        try:
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=INSTALL_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise NotInstalledError(
                f"MCP's conformance suite cannot be installed: {error}"
            ) from None
    return FOLDER / "node_modules"


async def run(modules: Path, output: Path, *arguments: str) -> list[Result]:
    """Run the suite, and return what became of its scenarios."""
    suite = modules / "@modelcontextprotocol/conformance/dist/index.js"
    process = await asyncio.create_subprocess_exec(
        *(str(modules / ".bin/bun"), str(suite), *arguments, "-o", str(output)),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        await asyncio.wait_for(process.communicate(), RUN_S)
    finally:
        if process.returncode is None:
            process.kill()
    return list(_results(output))


def _results(output: Path) -> Iterable[Result]:
    for file in sorted(output.glob("**/checks.json")):
        checks = json.loads(file.read_text(encoding="utf-8"))
        name = _name(str(file.parent.relative_to(output)))
        yield Result(name, _said(checks, "FAILURE"), _said(checks, "WARNING"))


def _said(checks: Iterable[Mapping[str, str]], status: str) -> tuple[str, ...]:
    return tuple(
        f"{check['id']}: {check.get('errorMessage') or check['description']}"
        for check in checks
        if check["status"] == status
    )


def _name(folder: str) -> str:
    """The name of a scenario, from that of the folder with its results, which has the time."""
    scenarios = {scenario.name for scenario in (*SERVER, *CLIENT, *LOGINS)}
    found = [name for name in scenarios if folder.removeprefix("server-").startswith(f"{name}-20")]
    found += [name for name in scenarios if folder.startswith(f"server-{name}-20")]
    return max(found, key=len, default=folder)
