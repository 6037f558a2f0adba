"""`perdure serve --hooks` as processes that end while deliveries come."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import httpx
import pytest

from perdure import Agent, errors, limits
from perdure.testing import ScriptedModel, says

from ..conftest import Runtime
from ..support.e2e.app import AGENT
from ..support.e2e.command_line import CommandLine, InProcess, Started
from ..support.e2e.outages import Outage
from ..support.e2e.restarted_server import server
from ..support.e2e.stories import Tell
from ..support.e2e.stories import says as answers
from ..support.gateway.hooks import SECRETS, VARIABLES, HookFiles, deliver, table
from ..support.gateway.served import served

__all__ = ["server"]

TOKEN = "0123456789abcdef" * 2
_DELIVERIES = 40


def environment(here: CommandLine) -> None:
    """Give a command line the secrets of hooks, and a token."""
    here.environment["PERDURE_TOKEN"] = TOKEN
    for verify, variable in VARIABLES.items():
        here.environment[variable] = SECRETS[verify]


async def url_of(started: Started) -> str:
    """The address that a gateway has printed."""
    return (await asyncio.to_thread(started.wait_for, r"(http://\S+); Ctrl-C"))[1]


@pytest.mark.accepts("K8")
def test_gateway_does_not_start_with_hooks_that_are_not_valid(tmp_path: Path) -> None:
    """The file, the hook and the field are named, before Temporal is asked."""
    here = InProcess(tmp_path)
    here.environment["TEMPORAL_ADDRESS"] = "127.0.0.1:1"
    environment(here)
    del here.environment[VARIABLES["slack"]]
    (tmp_path / "hooks.toml").write_text(table("github") + table("slack"), encoding="utf-8")

    ended = here("serve", "--hooks", "hooks.toml", "--port", "0")

    assert ended.returncode == 2
    assert "hook 2 of hooks.toml (/hooks/slack) is not valid: secrets: " in ended.stderr
    assert "SLACK_SECRET is not set" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("ends_by", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.accepts("K4", "K3")
async def test_delivery_is_one_turn_although_its_gateway_ends(
    ends_by: signal.Signals, perdure_server: str, runtime: Runtime, tmp_path: Path
) -> None:
    """What was answered is recorded. The sender repeats the others, of which some have begun: each
    is one turn, whose model is asked once.
    """
    here = CommandLine(tmp_path)
    here.environment["TEMPORAL_ADDRESS"] = perdure_server
    environment(here)
    (tmp_path / "hooks.toml").write_text(table("github"), encoding="utf-8")
    prefix = ends_by.name.lower()
    ids = [f"{prefix}-{number}" for number in range(_DELIVERIES)]
    model = ScriptedModel(*[says("Seen.")] * _DELIVERIES)
    async with runtime(Agent(name="desk", model="scripted:x"), model=model) as client:
        queue = ("--task-queue", client.task_queue)
        command = ("serve", "--hooks", "hooks.toml", "--port", "0", *queue)
        with here.started(*command) as first, here.started(*command) as second:
            urls = [await url_of(each) for each in (first, second)]
            async with httpx.AsyncClient(base_url=urls[0], timeout=60) as http:
                answered: list[str] = []

                async def send(id: str) -> None:
                    try:
                        answer = await deliver(http, "github", id)
                    except httpx.TransportError:
                        return
                    assert answer.status_code == 202
                    answered.append(id)
                    if len(answered) == _DELIVERIES // 4:
                        first.process.send_signal(ends_by)

                await asyncio.gather(*map(send, ids))
            await asyncio.to_thread(first.process.wait, 30)
            begun = []
            for id in ids:
                try:
                    await client.turn(f"hooks/github/{id}").status()
                except errors.TurnNotFoundError:
                    continue
                begun.append(id)
            async with httpx.AsyncClient(base_url=urls[1], timeout=60) as http:
                again = [await deliver(http, "github", id) for id in ids]
            reports = [await client.turn(answer.json()["turn"]).result() for answer in again]

    assert set(answered) <= set(begun)
    assert ends_by == signal.SIGTERM or len(answered) < _DELIVERIES
    assert [answer.status_code for answer in again] == [202] * _DELIVERIES
    assert [report.output for report in reports] == ["Seen."] * _DELIVERIES
    assert len(model.requests) == _DELIVERIES


@pytest.mark.slow
@pytest.mark.accepts("K4")
async def test_delivery_is_refused_while_temporal_is_away_and_taken_later(
    tell: Tell, server: Outage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 503 and `Retry-After`, in time for senders; the model is asked once."""
    story = await tell(answers("done"), address=server.address)
    declared = HookFiles(tmp_path, monkeypatch)(table("github", agent=AGENT))
    async with served(story.client, hooks=declared) as http:
        await server.kill()
        began = time.monotonic()
        refused = [await deliver(http, "github", "away-1")]
        took = time.monotonic() - began
        await server.restart()
        async with asyncio.timeout(60):
            while (taken := await deliver(http, "github", "away-1")).status_code == 503:
                refused.append(taken)
        await story.worker()
        await story.report(story.client.turn("hooks/github/away-1"))

    assert {one.status_code for one in refused} == {503}
    assert all(int(one.headers["retry-after"]) >= 1 for one in refused)
    assert took < limits.HOOK_ANSWER.total_seconds() + 2
    assert taken.json() == {"turn": "hooks/github/away-1"}
    assert story.requests() == {1: 1}
