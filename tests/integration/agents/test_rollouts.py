"""Rollouts on a real server: what became of the turns of each version, and when one is stopped."""

from __future__ import annotations

import asyncio
import json
import logging
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from perdure import Outcome, Rollout, StopRule, errors, tool
from perdure.agents.versions import Tally
from perdure.testing import FunctionModel, ScriptedModel, call, calls, local_runtime, says
from perdure.worker import AgentWorker
from perdure.worker.doctor.examination import Examination

from ...conftest import Runtime
from ...support.agent_versions import (
    FREE,
    counted,
    fails_as,
    names,
    new_id,
    run_turns,
    support,
    version_of,
)
from ...support.approving import pending, send
from ...support.e2e.command_line import InProcess, here
from ...support.examining import findings, own_server
from ...support.gateway.served import as_, served, told
from ...support.listing import bare_server, entry_of, eventually_listed, listed
from ...support.telemetry import Traces

__all__ = ["here", "own_server"]

RULE = StopRule(times_worse=2, over=4, failures=2)


def worker(name: str, **fields: Any) -> AgentWorker:
    """A worker that gives all turns the new version of this agent, until that fails too often."""
    agents = [support(version, name=name, **fields) for version in ("v1", "v2")]
    return AgentWorker(agents, rollouts={name: Rollout({"v2": 1.0}, stop=RULE)}, prices=FREE)


@pytest.mark.accepts("V42")
async def test_version_that_fails_more_often_gets_no_more_turns(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """Turns get the default version, and say why: in their status, the log and the metrics."""
    name, traces = new_id("desk"), Traces()
    app = worker(name)
    app = AgentWorker(
        app.registry, rollouts=app.rollouts, prices=FREE, telemetry=traces.telemetry()
    )
    async with runtime(app, model=fails_as("v2")) as client:
        await run_turns(client, name, "v2", 4)
        await run_turns(client, name, "v1", 1)
        await counted(client, name, "v2", Tally(4, 4))
        await counted(client, name, "v1", Tally(1, 0))
        turns = [await client.start(name, "go") for _ in range(3)]
        outputs = [(await turn.result()).output for turn in turns]
        statuses = [await turn.status() for turn in turns]
        chosen = await client.start(name, "go", version="v2")
        await chosen.wait()

        assert await version_of(chosen) == "v2"

    assert outputs == ["You are v1."] * 3
    because = "version v2 is stopped: 4 of 4 of its turns have failed, and 0 of 1 of version v1"
    assert {(one.version, one.fell_back) for one in statuses} == {("v1", because)}
    said = [one.getMessage() for one in caplog.records if "rollout of agent" in one.getMessage()]
    assert said == [f"rollout of agent {name}: {because}; its turns get v1"]
    fell_back = [
        (labels["gen_ai.agent.version"], value)
        for labels, value in traces.measured("perdure.turns")
        if labels.get("perdure.fell_back_from") == "v2"
    ]
    assert fell_back == [("v1", 3)]


@pytest.mark.accepts("V42")
async def test_version_that_fails_no_more_often_goes_on(runtime: Runtime) -> None:
    """Both fail."""
    name = new_id("desk")
    async with runtime(worker(name), model=fails_as("v1", "v2")) as client:
        await run_turns(client, name, "v2", 4)
        await run_turns(client, name, "v1", 2)
        await counted(client, name, "v2", Tally(4, 4))
        await counted(client, name, "v1", Tally(2, 2))
        turn = await client.start(name, "go")
        await turn.wait()
        status = await turn.status()

    assert (status.version, status.fell_back) == ("v2", "")


@pytest.mark.accepts("V46")
async def test_cancelled_and_open_turns_do_not_count(runtime: Runtime) -> None:
    """Those do that reach a limit, and delegates."""
    name = new_id("desk")
    model = FunctionModel(lambda request: calls(call("send", to="anna")))
    async with runtime(worker(name, tools=[send], max_iterations=1), model=model) as client:
        turns = [await client.start(name, "go", version="v2") for _ in range(3)]
        [(first,), *_] = [await pending(turn) for turn in turns]
        await turns[0].approve(first, by="anna")
        await turns[0].wait()
        await turns[1].cancel()
        await turns[1].wait()
        await counted(client, name, "v2", Tally(1, 1))
        await turns[2].cancel()
        status = await turns[0].status()

    assert status.outcome is Outcome.MAX_ITERATIONS


@pytest.mark.accepts("V43")
async def test_turn_starts_where_turns_cannot_be_counted(caplog: pytest.LogCaptureFixture) -> None:
    """A namespace without search attributes refuses the request: no version is stopped. The list
    has the version of a turn that is over all the same.
    """
    name = new_id("desk")
    async with (
        bare_server() as address,
        local_runtime(worker(name), model=names(), address=address) as client,
    ):
        turn = await client.start(name, "go")
        report = await turn.result()
        await eventually_listed(client, [turn.id])
        [entry] = [entry async for entry in client.turns()]

    assert report.output == "You are v2."
    assert entry.version == "v2"
    said = [one.getMessage() for one in caplog.records if "cannot be counted" in one.getMessage()]
    assert len(said) == 1
    assert "version v2 goes on" in said[0]


@pytest.mark.accepts("V39")
async def test_turns_are_listed_by_their_version(runtime: Runtime) -> None:
    """While they run and when they are over; a label of the user is no version, and stays."""
    name = new_id("desk")
    model = FunctionModel(lambda request: calls(call("send", to="anna")))
    async with runtime(worker(name, tools=[send]), model=model) as client:
        old = await client.start(name, "go", version="v1", labels={"version": "v2"})
        new = await client.start(name, "go", labels={"version": "v1", "team": "north"})
        await pending(old)
        await pending(new)
        await eventually_listed(client, [old.id], agent=name, version="v1")
        await eventually_listed(client, [new.id], agent=name, version="v2")
        await eventually_listed(client, [new.id], agent=name, labels={"version": "v1"})
        running = await entry_of(client, new.id, agent=name)
        await old.cancel()
        await new.cancel()
        await new.wait()
        ended = await entry_of(client, new.id, agent=name, outcome=Outcome.CANCELLED)
        nobody = await listed(client, agent=name, version="v3")

    assert (running.version, running.labels) == ("v2", {"version": "v1", "team": "north"})
    assert (ended.version, ended.labels) == (running.version, running.labels)
    assert nobody == []


@pytest.mark.accepts("V39")
@pytest.mark.parametrize("version", ["v 2", "' OR '1' = '1", "", "x" * 65])
async def test_filter_by_no_name_of_a_version_is_refused(runtime: Runtime, version: str) -> None:
    """It would be a part of a query."""
    async with runtime(support("v1"), model=names()) as client:
        with pytest.raises(errors.InvalidRequestError, match="version must be 1 to 64 of"):
            client.turns(version=version)


@pytest.mark.accepts("V40")
async def test_versions_are_compared(
    runtime: Runtime, here: InProcess, perdure_server: str
) -> None:
    """Turns, failures, steps and cost: in Python, and with `perdure versions`."""
    name = new_id("desk")
    async with runtime(worker(name), model=fails_as("v2")) as client:
        await run_turns(client, name, "v1", 3)
        await run_turns(client, name, "v2", 2)
        await counted(client, name, "v1", Tally(3, 0))
        await counted(client, name, "v2", Tally(2, 2))
        summaries = await client.versions(name)

        def told_by(*arguments: str) -> str:
            command = ("versions", name, *arguments, "--address", perdure_server)
            return here(*command, COLUMNS="120").stdout

        table = await asyncio.to_thread(told_by)
        lines = (await asyncio.to_thread(told_by, "--json")).splitlines()
        rows = await asyncio.to_thread(
            here, "list", "--agent", name, "--version", "v2", "--json", "--address", perdure_server
        )

    assert [
        (one.version, one.turns, one.open, one.failed, one.steps, one.spent) for one in summaries
    ] == [("v1", 3, 0, 0, 1.0, Decimal(0)), ("v2", 2, 0, 2, 0.0, Decimal(0))]
    assert table.splitlines()[0].split() == [
        *("VERSION", "TURNS", "OPEN", "FAILED", "STOPPED", "STEPS", "SPENT")
    ]
    assert table.splitlines()[2].split()[:5] == ["v2", "2", "0", "2", "(100%)"]
    assert [json.loads(line)["version"] for line in lines] == ["v1", "v2"]
    assert [json.loads(line)["version"] for line in rows.stdout.splitlines()] == ["v2", "v2"]


@pytest.mark.accepts("V41")
async def test_metrics_spans_and_log_lines_have_the_version(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of the turn, and of its tools; an agent without versions has none."""
    caplog.set_level(logging.INFO, "perdure.turns")

    @tool
    def note(text: str) -> str:
        """Write down."""
        return text

    name, traces = new_id("desk"), Traces()
    app = worker(name, tools=[note])
    agents = [*app.registry.agents(), support("", name="plain", tools=[note])]
    app = AgentWorker(agents, rollouts=app.rollouts, prices=FREE, telemetry=traces.telemetry())
    script = [calls(call("note", text="x")), says("done")]
    async with runtime(app, model=ScriptedModel(*script, *script)) as client:
        await client.run(name, "go")
        await client.run("plain", "go")

    by_agent = {
        metric: {
            labels["gen_ai.agent.name"]: labels.get("gen_ai.agent.version")
            for labels, _ in traces.measured(metric)
        }
        for metric in ("perdure.turns", "perdure.turn.steps", "gen_ai.execute_tool.duration")
    }
    assert by_agent == {metric: {name: "v2", "plain": None} for metric in by_agent}
    spans = traces.named(f"invoke_agent {name}"), traces.named("invoke_agent plain")
    assert [(span.attributes or {}).get("gen_ai.agent.version") for span in spans] == ["v2", None]
    ended = [
        one.getMessage() for one in caplog.records if one.getMessage().startswith("turn_completed")
    ]
    assert ["version=v2" in line for line in ended] == [True, False]


@pytest.mark.accepts("V34")
async def test_version_over_http_needs_its_permission(runtime: Runtime) -> None:
    """For a turn, a fork and a schedule; anybody who reads filters by it."""
    name, id = new_id("desk"), new_id()
    body: dict[str, Any] = {"agent": name, "task": "go", "id": id, "version": "v1"}
    async with runtime(worker(name), model=names()) as client, served(client) as http:
        forbidden = [
            await http.post("/v1/turns", json=body, headers=as_("sam")),
            await http.post(
                "/v1/sessions/s/messages",
                json={"text": "go", "begin": {"agent": name, "version": "v1"}},
                headers=as_("sam"),
            ),
        ]
        started = await http.post("/v1/turns", json=body)
        result = await http.get(f"/v1/turns/{id}/result", params={"wait": 30})
        forbidden.append(
            await http.post(
                f"/v1/turns/{id}/fork", json={"at_step": 0, "version": "v2"}, headers=as_("sam")
            )
        )
        fork = await http.post(f"/v1/turns/{id}/fork", json={"at_step": 0, "version": "v2"})
        fork_id = fork.json()["id"]
        forked = await http.get(f"/v1/turns/{fork_id}/result", params={"wait": 30})
        wrong = await http.post("/v1/turns", json={**body, "id": "x", "version": "v 1"})
        await eventually_listed(client, [f"@acme/{id}"], agent=name, version="v1")
        query = {"version": "v1", "agent": name}
        found = await http.get("/v1/turns", params=query, headers=as_("rita"))

    assert [told(one) for one in forbidden] == [(403, "FORBIDDEN")] * 3
    assert started.status_code == 202
    assert (result.json()["output"], forked.json()["output"]) == ("You are v1.", "You are v2.")
    assert told(wrong) == (422, "INVALID_REQUEST")
    assert [(one["id"], one["version"]) for one in found.json()["turns"]] == [(f"@acme/{id}", "v1")]


@pytest.mark.accepts("V34")
async def test_command_line_chooses_the_version(
    runtime: Runtime, here: InProcess, perdure_server: str
) -> None:
    """Of a turn, and of a fork."""
    name, id = new_id("desk"), new_id()
    async with runtime(worker(name), model=names()) as client:
        server = ("--address", perdure_server, "--task-queue", client.task_queue)

        def output(*arguments: str) -> str:
            return here(*arguments, *server).stdout

        ran = await asyncio.to_thread(output, "run", name, "go", "--id", id, "--version", "v1")
        forked = await asyncio.to_thread(
            output, "fork", id, "--at-step", "0", "--version", "v2", "--yes"
        )

    assert (ran.strip(), forked.strip()) == ("You are v1.", "You are v2.")


PROGRAM = """
from perdure import Agent, Rollout, StopRule
from perdure.testing import ScriptedModel
from perdure.worker import AgentWorker

agents = [Agent(name="{name}", model="mine:m", version=version) for version in ("v1", "v2")]
rollouts = {{"{name}": Rollout({{"v2": 0.25}}, stop=StopRule(over=4, failures=2))}}
app = AgentWorker(agents, rollouts=rollouts, providers={{"mine": ScriptedModel()}})
"""


@pytest.mark.accepts("V42")
async def test_doctor_says_that_a_version_is_stopped(
    own_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what to do; before that, how many of its turns have failed."""
    name = "desk"
    module = new_id("program").replace("-", "_")
    (tmp_path / f"{module}.py").write_text(PROGRAM.format(name=name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    examination = Examination(address=own_server, program=f"{module}:app")
    app = worker(name)
    async with local_runtime(app, model=fails_as("v2"), address=own_server) as client:
        await run_turns(client, name, "v1", 2)
        await run_turns(client, name, "v2", 3)
        await counted(client, name, "v2", Tally(3, 3))
        before = [one for one in await findings(examination) if one.subject.startswith("version")]
        await run_turns(client, name, "v2", 1)
        await counted(client, name, "v2", Tally(4, 4))
        after = [one for one in await findings(examination) if one.subject.startswith("version")]

    assert [(one.subject, one.state, one.words) for one in before] == [
        ("version v2 of desk", "ok", "its share is 25%; 3 of 3 of its turns have failed")
    ]
    assert [(one.state, one.remedy) for one in after] == [
        ("warning", "mend it and give it another name, or set its share to 0")
    ]
    assert "4 of 4 of its turns have failed, and 0 of 2 of version v1; its turns get v1" in (
        after[0].words
    )
