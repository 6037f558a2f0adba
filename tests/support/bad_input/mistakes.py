"""The table of mistakes in code and in commands, with the resulting messages.

`python -m tests.support.bad_input.mistakes` writes it to `docs/mistakes.md`.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import logging
import re
import shlex
import socket
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel
from temporalio.client import Client

import perdure
from perdure import __main__ as command_line
from perdure.clients import AgentClient
from perdure.errors import PerdureError
from perdure.values.budgets import Budget
from perdure.worker import AgentWorker, ModelQueue
from perdure.worker.loading import load

_ADDRESS = re.compile(r"0x[0-9a-f]+")
PAGE = Path(__file__).parents[3] / "docs/mistakes.md"


class Ticket(BaseModel):
    """A type for an answer."""

    euros: int = 0


def no_types(a, b):  # type: ignore[no-untyped-def]
    """Add."""


def any_words(*words: str) -> None:
    """Print."""


def any_names(**names: str) -> None:
    """Print."""


def by_place(word: str, /) -> None:
    """Print."""


def by_socket(connection: socket.socket) -> None:
    """Send."""


async def check(task: perdure.Task) -> bool:
    """Is it good?"""
    return True


NAMES = {
    **{name: getattr(perdure, name) for name in perdure.__all__},
    "AgentWorker": AgentWorker,
    "ModelQueue": ModelQueue,
    "Path": Path,
    "Ticket": Ticket,
    "check": check,
    "logging": logging,
    **{made.__name__: made for made in (no_types, any_words, any_names, by_place, by_socket)},
    "timedelta": timedelta,
    "Budget": Budget,
    "MODEL": "openai:gpt-5-mini",
}

IN_CODE = """
Agent(name="", model=MODEL)
Agent(name=5, model=MODEL)
Agent(name="desk", model="")
Agent(name="desk", model=5)
Agent(name="desk", model=MODEL, tools="search")
Agent(name="desk", model=MODEL, tools=[5])
Agent(name="desk", model=MODEL, tools=no_types)
Agent(name="desk", model=MODEL, toolboxes="files")
Agent(name="desk", model=MODEL, skills="skills")
Agent(name="desk", model=MODEL, skills=["skills"])
Agent(name="desk", model=MODEL, max_iterations=0)
Agent(name="desk", model=MODEL, max_iterations="many")
Agent(name="desk", model=MODEL, max_iterations=True)
Agent(name="desk", model=MODEL, instructions=5)
Agent(name="desk", model=MODEL, budget="0.50")
Agent(name="desk", model=MODEL, budget={"usd": "0.50"})
Agent(name="desk", model=MODEL, on_exhausted="wait")
Agent(name="desk", model=MODEL, on_loop="stop")
Agent(name="desk", model=MODEL, protocol="xml")
Agent(name="desk", model=MODEL, output="Ticket")
Agent(name="desk", model=MODEL, output=Ticket())
Agent(name="desk", model=MODEL, output=5)
Agent(name="desk", model=MODEL, output=check)
Agent(name="desk", model=MODEL, middleware=check)
Agent(name="desk", model=MODEL, middleware=[check])
Agent(name="desk", model=MODEL, delegates="other")
Agent(name="desk", model=MODEL, handoffs="other")
Agent(name="desk", model=MODEL, handoffs=["desk"])
Agent(name="desk", model=MODEL, handoffs=[Handoff("other", keep="some")])
Agent(name="desk", model=MODEL, options={"temperature": 0})
Agent(name="desk", model=MODEL, max_depth=-1)
Budget()
Budget("0.50")
Budget(dollars=1)
Budget(usd=0.5)
Budget(usd="1,50")
Budget(usd="-1")
Budget(usd="0")
Budget(time=timedelta(0))
Budget(time=True)
Budget(tokens="5")
Budget(model_calls=0)
RequestOptions(temprature=0)
RequestOptions(max_output_tokens=0)
RequestOptions(temperature="hot")
Price(input="x", output="1")
Price(input=0.5, output=1)
ModelProfile(window="large")
Task(content=5)
RequireApproval(timedelta(0))
Deny("a", "b")
InputGuardrail("check")
InputGuardrail(Ticket)
OutputGuardrail(None)
Timeout(5)
Logger("debug")
tool(any_words).arguments
tool(any_names).arguments
tool(by_place).arguments
tool(by_socket).arguments
tool(name="two words")(by_place)
tool(timeout=5)(no_types)
tool(timeout=timedelta(0))(no_types)
MCPServer.http("desk", 5)
MCPServer.http(5, "http://localhost")
MCPServer.stdio("desk", [5])
MCPServer.http("desk", "http://localhost", headers_env={"a": 5})
Registry(5)
Registry([5])
Registry([Agent(name="desk", model=MODEL), Agent(name="desk", model=MODEL)])
Registry([Agent(name="desk", model=MODEL)]).entry(MODEL)
await client.start("desk", "Hello.", budget="0.50")
await client.start("desk", "Hello.", delay=30)
await client.start("desk", "Hello.", history=[{"role": "user", "content": "Hi."}])
await client.start_batch("mails", "desk", [{"taks": "Hello."}])
client.session("chat", "desk", idle=30)
AgentWorker([], models={"main": 5})
AgentWorker([], prices={"main": 5})
AgentWorker([], providers={"mine": 5})
AgentWorker([], queues={"openai": 5})
AgentWorker([], task_queue=5)
ModelQueue(per_second=0)
""".strip().splitlines()

COMMANDS = """
rum
--verb list
--bogus
run
run desk
run desk hello --model gpt
run desk hello --usd much
run desk hello --usd 0
run desk hello --usd -1
run desk hello --time soon
run desk hello --tokens few
run desk hello --tokens 0
run desk hello --ID ticket-1
show
show ticket 5001
show ticket --ful
list ticket
list --limit few
list --label region
list --stat waiting
add-budget
add-budget ticket
add-budget ticket --time 5
add-budget ticket --model-calls some
cancel
cancel ticket now
setup --wait long
setup --retention 0
setup --create
dev --port abc
dev a b
dev --reload
worker
worker desk:app --health-port http
ask
ask "" --folder .
ask "What?" --folder nowhere
""".strip().splitlines()

TARGETS = ["desk", "desk:", ":app", "nope:app", "json:nothing", "sys:path"]


def said_in_code(source: str) -> str:
    """The error that a line raises."""
    try:
        asyncio.run(_evaluate(source))
    except PerdureError as error:
        return f"{type(error).__name__}: {error.message}"
    return "nothing"


async def _evaluate(source: str) -> None:
    """Evaluate a line with a client that has no server."""
    client = AgentClient.from_temporal(await Client.connect("localhost:1", lazy=True))
    code = compile(source, "a mistake", "eval", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    made = eval(code, {**NAMES, "client": client})
    if inspect.iscoroutine(made):
        await made


def said_by(command: str) -> str:
    """A command's standard error."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
        code = command_line.run(shlex.split(command))
    return printed.getvalue().strip() if code == 2 else f"exit code {code}"


def said_of(target: str) -> str:
    """The error of `perdure worker` for a program that it cannot run."""
    try:
        load(target)
    except PerdureError as error:
        return f"perdure: {error.message}"
    return "nothing"


def rows() -> list[tuple[str, str]]:
    """Each mistake with its current message."""
    return [
        *((source, said_in_code(source)) for source in IN_CODE),
        *((f"perdure {command}", said_by(command)) for command in COMMANDS),
        *((f"perdure worker {target}", said_of(target)) for target in TARGETS),
    ]


HEAD = """# Mistakes

What {count} mistakes in code and in commands are answered with, before anything is started. In \
code, `MODEL` is `"openai:gpt-5-mini"`,
`Ticket` a pydantic model, `check` an async function, and `client` an `AgentClient`. \
`make mistakes` tries all of them and writes this page.

[Errors](errors.md) lists the errors of turns, and [bad input](bad-input.md) what providers, \
callers and tools may send.

| what is written | what is said |
|---|---|
"""


def page() -> str:
    """The page of the documentation."""
    found = rows()
    entries = (f"| {_cell(mistake)} | {_cell(words)} |\n" for mistake, words in found)
    return HEAD.format(count=len(found)) + "".join(entries)


def _cell(text: str) -> str:
    """A line of code in a table."""
    marks = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    words = _ADDRESS.sub("0x…", " ".join(text.split()))
    return f"{marks}{pad}{words}{pad}{marks}".replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
