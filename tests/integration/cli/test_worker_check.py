"""`perdure worker --check` tries what the first turn would need; a worker logs the problems that it
can detect at its start.
"""

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure import Agent, errors
from perdure.testing import ScriptedModel
from perdure.worker import AgentWorker, check
from perdure.worker.setup_checks import Finding

from ...support.e2e.command_line import closed_port
from ...support.receiver import SECRET

__all__ = ["closed_port"]
SERVER = Path(__file__).parents[2] / "support/mcp/server.py"

APP = f"""
from pathlib import Path

from perdure import Agent, Budget, MCPServer, Skill
from perdure.testing import ScriptedModel
from perdure.worker import AgentWorker

good = MCPServer.stdio("good", {[sys.executable, str(SERVER), "stdio"]!r})
bad = MCPServer.stdio("bad", ["false"])
agents = [
    Agent(name="one", model="x:known", toolboxes=[good, bad], budget=Budget(usd="1")),
    Agent(name="two", model="openai:gpt-4o", skills=[Path("skills")], budget=Budget(usd="1")),
]
app = AgentWorker(agents, providers={{"x": ScriptedModel()}})
"""


@pytest.mark.slow
@pytest.mark.accepts("O25")
async def test_check_tries_every_part(
    perdure_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts MCP servers and reads skills; a problem in one part does not hide those of
    others.
    """
    (tmp_path / "checked_shop.py").write_text(APP, encoding="utf-8")
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "SKILL.md").write_text(
        "---\nname: refunds\ndescription: Pay back.\n---\nPay.", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")

    tried = [finding async for finding in check.findings("checked_shop:app", perdure_server)]
    missing = [finding async for finding in check.findings("no_such_module:app", perdure_server)]

    states = {finding.subject: finding.state for finding in tried}
    assert states == {
        "module checked_shop:app": "ok",
        "agent one": "ok",
        "model x:known": "ok",
        "agent two": "ok",
        "model openai:gpt-4o": "ok",
        "price x:known": "failed",
        "price openai:gpt-4o": "ok",
        "skills of two": "ok",
        "MCP server good": "ok",
        "MCP server bad": "failed",
        "Temporal": "ok",
        "namespace default": "ok",
    }
    assert next(
        finding.words for finding in tried if finding.subject == "MCP server bad"
    ).startswith("the MCP server 'bad': ")
    assert [(finding.subject, finding.state) for finding in missing] == [
        ("module no_such_module:app", "failed"),
        ("Temporal", "ok"),
        ("namespace default", "ok"),
    ]
    assert "No module named 'no_such_module'" in missing[0].words


@pytest.mark.accepts("O25")
async def test_temporal_that_is_away_is_a_finding(closed_port: str) -> None:
    """With its address, and nothing is raised."""
    tried = [finding async for finding in check.findings("no_such_module:app", closed_port)]

    assert tried[1] == Finding(
        "Temporal",
        "failed",
        f"no Temporal server answers at {closed_port}; start one with `perdure dev`, or set"
        " TEMPORAL_ADDRESS",
    )


@pytest.mark.accepts("O24")
async def test_worker_warns_when_it_starts(
    perdure_server: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """It starts all the same: here its lifespan fails, and the log has its line of code."""

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        if not tmp_path.with_name("database").exists():
            raise OSError("no database")
        yield

    agent = Agent(name="one", model="scripted:x", skills=[tmp_path / "nowhere"])
    app = AgentWorker(
        agent,
        providers={"scripted": ScriptedModel()},
        lifespan=lifespan,
        task_queue="test-worker-warns",
    )
    with pytest.raises(errors.ConfigurationError) as caught:
        await app.run(perdure_server)

    place = f"(test_worker_check.py:{lifespan.__wrapped__.__code__.co_firstlineno + 3} in lifespan)"  # type: ignore[attr-defined]
    said = [
        (record.levelno, record.getMessage(), bool(record.exc_text))
        for record in caplog.records
        if record.name == "perdure"
    ]
    assert (
        caught.value.message
        == f"the worker's lifespan failed to open: OSError: no database {place}"
    )
    assert said == [
        (
            logging.WARNING,
            f"skills {tmp_path / 'nowhere'}: there is no folder {tmp_path / 'nowhere'}",
            False,
        ),
        (logging.ERROR, caught.value.message, True),
    ]


@pytest.mark.accepts("H87", "O25")
async def test_check_reads_the_settings_of_webhooks(
    closed_port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a server, and without showing a secret."""
    told = []
    for secret in (SECRET, "whsec_" + "c2hvcnQ="):
        monkeypatch.setenv("PERDURE_WEBHOOK_HOSTS", "hooks.example.com,*.example.org")
        monkeypatch.setenv("PERDURE_WEBHOOK_SECRETS", secret)
        app = "perdure.worker.librarian:make"
        tried = [str(one) async for one in check.findings(app, closed_port)]
        told.append([one for one in tried if one.startswith(("webhooks", "settings"))])

    assert told[0] == ["webhooks: to hooks.example.com, *.example.org"]
    [[failed]] = told[1:]
    assert failed.startswith("settings: PERDURE_WEBHOOK_SECRETS takes secrets")
    assert "c2hvcnQ" not in failed
