"""`perdure finish`, as a user runs it for the service that has the result of a call."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest

from ..support.e2e.command_line import CommandLine, wait_until

pytestmark = pytest.mark.slow

AGENTS = '''
from pathlib import Path

from perdure import Agent, ToolContext, tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker


@tool({options})
def deploy(ctx: ToolContext[None]) -> str:
    """Deploy the shop."""
    with Path("tokens").open("a") as tokens:
        tokens.write(ctx.call_token + "\\n")
    return "{returned}"


class Model:
    async def complete(self, request):
        results = [
            result.content
            for message in request.messages
            for result in getattr(message, "results", ())
        ]
        answer = says(results[0]) if results else calls(call("deploy"))
        return await ScriptedModel(answer).complete(request)

    async def close(self):
        pass


support = Agent(name="support", model="mine:m", tools=[deploy])
app = AgentWorker(support, providers={{"mine": Model()}})
'''
LATER = {"options": "later=True", "returned": "deploy-7"}


def folder(path: Path, server: str, **agents: str) -> CommandLine:
    """The command line beside a file with an agent."""
    (path / "agents.py").write_text(AGENTS.format(**agents), encoding="utf-8")
    perdure = CommandLine(path)
    perdure.environment |= {
        "TEMPORAL_ADDRESS": server,
        "PERDURE_TASK_QUEUE": f"test-{secrets.token_hex(6)}",
        "PERDURE_GRACE_S": "1",
    }
    return perdure


@pytest.mark.accepts("F19", "J25")
def test_result_is_sent_from_the_command_line(perdure_server: str, tmp_path: Path) -> None:
    """As a text; the list has the call, and a token of no open call is refused."""
    perdure, turn = folder(tmp_path, perdure_server, **LATER), f"release-{secrets.token_hex(4)}"
    with (
        perdure.started("worker", "agents:app"),
        perdure.started("run", "support", "Go.", "--id", turn),
    ):
        wait_until(
            lambda: turn in perdure("list", "--state", "waiting").stdout, "it waits", within_s=60
        )
        [token] = (tmp_path / "tokens").read_text().split()
        listed, looked = perdure("approvals"), perdure("approvals", turn)
        line = json.loads(perdure("approvals", turn, "--json").stdout)
        approved = perdure("approvals", turn, "--approve", "call_1_1")
        wrong = perdure("finish", f"{token[:-3]}AAA", "no")
        sent = perdure("finish", token, "deployed as v42", "--by", "ci")
        wait_until(lambda: "completed" in perdure("show", turn).stdout, "it ends", within_s=60)
        shown = perdure("show", turn)
        events = perdure("show", turn, "--json")

    assert "deploy, done elsewhere" in listed.stdout
    assert "call_1_1  deploy, done elsewhere  given up in 23 h" in looked.stdout
    assert "deploy: deploy-7" in looked.stdout
    assert (line["is_job"], line["note"], line["token"]) == (True, "deploy: deploy-7", "")
    assert "is done elsewhere" in approved.stderr
    assert token not in listed.stdout + looked.stdout + str(line)
    assert wrong.returncode != 0
    assert "this is not the token of an open call" in wrong.stderr
    assert sent.returncode == 0, sent.stderr
    assert f"turn {turn} has the result of the call" in sent.stdout + sent.stderr
    assert "the job deploy-7 runs" in shown.stdout
    assert "result of the job by ci: deployed as v42" in shown.stdout
    assert token not in shown.stdout + events.stdout
    kinds = [json.loads(line).get("kind") for line in events.stdout.splitlines()]
    assert kinds.count("call_finished") == 1
