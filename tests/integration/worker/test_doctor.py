"""`perdure doctor` finds each fault of a running system, and nothing in one without faults."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.activities.provider import ModelRequest
from perdure.temporal.connect import connect_local
from perdure.testing import FunctionModel, call, calls
from perdure.testing.runtime import server_in_thread
from perdure.testing.scripted import Reply
from perdure.testing.stub_provider import StubProvider
from perdure.toolboxes import waiting
from perdure.values.messages import UserMessage
from perdure.worker.doctor.examination import Examination

from ...support.approving import pending, send
from ...support.doctor_faults import FAULTS, at_work, looking
from ...support.e2e.command_line import InProcess, closed_port, here
from ...support.examining import findings, own_server, problem
from ...support.jobs import Service, until_waiting

__all__ = ["closed_port", "here", "own_server"]

_SLOW = {
    "a webhook that nobody takes",
    "no worker for a provider",
    "no worker of a build",
    "a long history",
    "a busy worker",
}

PROGRAM = """
from pathlib import Path

from perdure import Agent, Budget, MCPServer, Skill
from perdure.providers import OpenAIChat
from perdure.testing import ScriptedModel
from perdure.worker import AgentWorker

agents = [
    Agent(name="keyless", model="openai:gpt-5-mini"),
    Agent(name="priceless", model="mine:m", budget=Budget(usd="1")),
    Agent(name="unskilled", model="mine:m", skills=[Path("missing")]),
    Agent(name="alone", model="mine:m", delegates=["nobody"]),
    Agent(name="apart", model="mine:m", toolboxes=[MCPServer.stdio("gone", ["no-such-program"])]),
    Agent(name="refused", model="stub:m"),
]
stub = OpenAIChat(base_url={url!r}, api_key_env="STUB_KEY")
app = AgentWorker(agents, providers={{"mine": ScriptedModel(), "stub": stub}})
"""


@pytest.mark.accepts("O28")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in _SLOW else []) for name in FAULTS],
)
async def test_planted_fault_is_found(own_server: str, name: str) -> None:
    """With what to do about it."""
    plant, remedy = FAULTS[name]

    async with plant(own_server) as examination:
        found = await problem(examination, remedy)

    assert found.is_problem


@pytest.mark.accepts("O29")
async def test_nothing_is_wrong_with_a_healthy_system() -> None:
    """Turns wait for a person, a timer, an event and a job, which is polled again and again; others
    have ended, and a session is idle.
    """
    service = Service()
    job = service.tool("deploy", poll=service.poll, poll_every=timedelta(seconds=0.1))
    agent = Agent(name="letters", model="mine:m", tools=[send, job], toolboxes=[waiting()])
    with server_in_thread() as server:
        async with at_work(server, FunctionModel(does_the_task), agent) as client:
            waits = [
                (await client.start("letters", task), kind)
                for task, kind in (
                    ("wait", "timer"),
                    ("wait_for", "event"),
                    ("deploy", "job"),
                )
            ]
            await (await client.start("letters", "nothing")).result()
            await (await client.session("idle", "letters").say("nothing")).result()
            asking = await client.start("letters", "send")
            await pending(asking)
            for turn, kind in waits:
                await until_waiting(turn, kind)
            await service.until_polled(5)

            found = await findings(looking(client, server))

            for turn in (asking, *(turn for turn, _ in waits)):
                await turn.cancel()
    assert [str(finding) for finding in found if finding.state != "ok"] == []
    assert "none of 5 is stuck" in str(found[-1])


def asked_for(request: ModelRequest) -> str:
    """The task."""
    first = request.messages[0]
    assert isinstance(first, UserMessage)
    return first.text


def does_the_task(request: ModelRequest) -> Reply | str:
    """Call the tool that the task names, once."""
    task = asked_for(request)
    arguments: dict[str, dict[str, Any]] = {
        "send": {"to": "anna"},
        "wait": {"seconds": 3600, "note": "an hour"},
        "wait_for": {"event": "paid", "note": "the bill"},
        "deploy": {"target": "live"},
    }
    if len(request.messages) > 1 or task not in arguments:
        return "Done."
    return calls(call(task, **arguments[task]))


@pytest.mark.accepts("O30")
def test_exit_code_and_json(own_server: str, closed_port: str, here: InProcess) -> None:
    """1 for a problem, 20 without a server, and a line of JSON for each finding."""
    healthy = here("doctor", "--address", own_server, "--task-queue", "nobody", "--json")
    away = here("doctor", "--address", closed_port)
    refused = here("doctor", "--ask-models", "--address", own_server)

    *found, total = map(json.loads, healthy.stdout.splitlines())
    assert healthy.returncode == 1
    assert {"what": "clock", "state": "ok"}.items() <= found[3].items()
    assert [one["state"] for one in found if one["what"].startswith("queue nobody")] == [
        "warning",
        "warning",
    ]
    assert total["checks"] == len(found)
    assert away.returncode == 20
    assert closed_port in away.stdout
    assert refused.returncode == 2


@pytest.mark.accepts("O31")
async def test_doctor_changes_nothing(own_server: str) -> None:
    """The namespace has the same workflows as before."""
    client = await connect_local(own_server)

    async def there() -> list[str]:
        return [workflow.run_id async for workflow in client.list_workflows()]

    before = await there()
    await findings(Examination(address=own_server))

    assert await there() == before


@pytest.mark.slow
@pytest.mark.accepts("O28")
async def test_faults_of_a_program_are_found(
    own_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing key, price, folder, delegate and program, and a model that refuses to answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("STUB_KEY", "sk-planted")
    with StubProvider([]) as refusing:
        program = PROGRAM.format(url=refusing.base_url)
        (tmp_path / "ailing.py").write_text(program, encoding="utf-8")
        examination = Examination(address=own_server, program="ailing:app", asks_models=True)
        found = await findings(examination)

    failed = {one.subject for one in found if one.state == "failed"}
    assert {
        "model openai:gpt-5-mini",
        "price mine:m",
        "skills missing",
        "agent alone",
        "MCP server gone",
        "answer of stub:m",
    } <= {subject.replace(f"{tmp_path}/", "") for subject in failed}
    assert "sk-planted" not in "".join(map(str, found))
