"""Text of models, tools and callers with terminal escape sequences: no command prints a control
character or an invisible character of it.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from perdure.text import exact

from ..support.e2e.command_line import CommandLine, beside_a_worker, wait_until
from ..support.e2e.terminal import terminal
from ..support.hostile_text import EVIL, OURS

FORGED = f"{EVIL}\r\nFORGED line"
AGENTS = f'''
from perdure import Agent, ToolCall, tool
from perdure.values.messages import AssistantMessage
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

EVIL, FORGED = {EVIL!r}, {FORGED!r}

@tool
def look(what: str) -> str:
    """Look."""
    if what == "fail":
        raise ValueError(FORGED)
    return FORGED

@tool(requires_approval=True)
def refund(ticket: str, euros: int, note: str = "") -> str:
    """Give money back."""
    return FORGED

REFUNDS = calls(
    call(
        "refund",
        call_id="refund-1" + FORGED,
        ticket="2, euros=3, note=small",
        euros=3000,
        note=FORGED,
    ),
    call("refund", call_id="refund-1", ticket="3", euros=1),
)
LOOKS = calls(
    call("look", what="now" + FORGED),
    call("look", what="fail"),
    call("nothing" + FORGED),
    text=EVIL,
)

class Model:
    async def complete(self, request):
        answers = sum(message.role == "assistant" for message in request.messages)
        if request.messages[0].parts[0].text.startswith("Pay"):
            return await ScriptedModel(REFUNDS if not answers else says("paid")).complete(request)
        return await ScriptedModel(LOOKS if not answers else says("seen " + EVIL)).complete(request)

    async def close(self):
        pass

evil = Agent(name="evil", model="stub:m", tools=[look, refund])
app = AgentWorker(evil, providers={{"stub": Model()}})
'''


@pytest.fixture(scope="module")
def perdure(perdure_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line beside a worker; it needs no connection options."""
    with beside_a_worker(AGENTS, tmp_path_factory.mktemp("hostile"), perdure_server) as here:
        yield here


def on_a_terminal(perdure: CommandLine, *arguments: str, columns: int = 100) -> str:
    """What a command writes to a terminal, after a check that nothing was let through."""
    command = [sys.executable, "-m", "perdure", *arguments]
    with terminal(command, Path(perdure.folder), perdure.environment, columns=columns) as shown:
        shown.end()
    text = OURS.sub("\n", shown.raw.decode())
    assert {letter for letter in text if letter != "\n" and exact(letter) != letter} == set(), (
        ascii(text)
    )
    assert [line for line in text.split("\n") if line.startswith("FORGED")] == [], text
    return text


def start_raw(perdure: CommandLine, turn_id: str) -> None:
    """Start a turn with Temporal's client, which accepts any agent name."""

    async def start() -> None:
        client = await Client.connect(perdure.environment["TEMPORAL_ADDRESS"])
        queue = perdure.environment["PERDURE_TASK_QUEUE"]
        await client.start_workflow(
            "AgentTurn", {"agent": f"a{FORGED}", "task": FORGED}, id=turn_id, task_queue=queue
        )

    asyncio.run(start())


@pytest.mark.slow
@pytest.mark.accepts("G7")
def test_nothing_of_a_turn_reaches_a_terminal_raw(perdure: CommandLine) -> None:
    """Task, arguments, calls, results, errors and answer, live and afterwards, on one line each and
    as JSON.
    """
    turn = f"seen-{secrets.token_hex(4)}"
    shown = [
        on_a_terminal(perdure, "run", "evil", f"Look.{FORGED}", "--id", turn, "--stream"),
        on_a_terminal(perdure, "show", turn),
        on_a_terminal(perdure, "show", turn, "--json", columns=5000),
        on_a_terminal(perdure, "list"),
        on_a_terminal(perdure, "cancel", turn, "--reason", FORGED),
        on_a_terminal(perdure, "show", f"nowhere{FORGED}"),
    ]

    assert all("\\u001b[2J" in one for one in (*shown[:3], shown[5]))


@pytest.mark.accepts("G7")
@pytest.mark.slow
def test_agent_that_nobody_offers_cannot_write_with_its_name(perdure: CommandLine) -> None:
    """The agent name of a turn that Temporal's own client started is quoted."""
    turn = f"raw-{secrets.token_hex(4)}"
    start_raw(perdure, turn)

    assert f'"a{exact(EVIL)}\\r\\nFORGED line"' in on_a_terminal(
        perdure, "show", turn, columns=1000
    )
    on_a_terminal(perdure, "show", turn, "--json", columns=5000)
    on_a_terminal(perdure, "list", columns=1000)


@pytest.mark.slow
@pytest.mark.accepts("G7", "G8")
def test_call_that_waits_cannot_draw_another(perdure: CommandLine) -> None:
    """An id that would clear the screen is escaped, also in the hint, and no argument can look like
    another one.
    """
    turn = f"pay-{secrets.token_hex(4)}"
    with perdure.started("run", "evil", "Pay.", "--id", turn):
        wait_until(lambda: "refund" in perdure("approvals", turn).stdout, "the turn waits")
        looked = on_a_terminal(perdure, "approvals", turn, columns=1000)
        listed = on_a_terminal(perdure, "approvals", columns=1000)
        narrow = on_a_terminal(perdure, "approvals", columns=40)
        perdure("cancel", turn)

    assert '      "ticket": "2, euros=3, note=small",\n      "euros": 3000,\n' in looked
    assert '{"ticket": "2, euros=3, note=small", "euros": 3000, "note": "\\u001b[2J' in listed
    assert '"euros": 3000' in re.sub(r"\s+", " ", narrow)


@pytest.mark.slow
@pytest.mark.accepts("G7", "E74")
def test_schedule_cannot_draw_on_a_terminal(perdure: CommandLine) -> None:
    """Its task, and the reason of a pause that Temporal's own client has set."""
    name = f"evil-{secrets.token_hex(4)}"
    when = ("--cron", "0 7 * * *", "--timezone", "UTC", "--label", f"a={FORGED}")
    shown = [on_a_terminal(perdure, "schedule", "create", name, "evil", f"Look.{FORGED}", *when)]

    async def pause() -> None:
        client = await Client.connect(perdure.environment["TEMPORAL_ADDRESS"])
        await client.get_schedule_handle(name).pause(note=FORGED)

    asyncio.run(pause())
    shown.append(on_a_terminal(perdure, "schedule", "show", name))
    wait_until(lambda: name in perdure("schedule", "list").stdout, "the schedule is listed")
    listed = on_a_terminal(perdure, "schedule", "list", columns=1000)
    on_a_terminal(perdure, "schedule", "show", name, "--json", columns=5000)
    on_a_terminal(perdure, "schedule", "pause", name, "--reason", FORGED)
    on_a_terminal(perdure, "schedule", "show", f"nowhere{FORGED}")
    perdure("schedule", "delete", name)

    assert all("\\u001b[2J" in one for one in (*shown, listed))
