"""A long job: one turn reads many documents and notes a line about each.

Kill the worker at any time: it goes on where it was.

With a model of yours: `perdure dev examples.documents:app`; without one:
`python examples/documents.py 200`.

Each finished call is a checkpoint, so nothing is read or noted twice. What the worker did at the
moment it was killed is tried again, and `note` writes one line for a document however often it is
tried.
"""

import asyncio
import json
import sqlite3
import sys
import tempfile
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from perdure import Agent, Budget, ToolContext, ToolMessage, tool
from perdure.testing import FunctionModel, ModelRequest, call, calls, local_runtime, says
from perdure.testing.scripted import Reply
from perdure.worker import AgentWorker

TABLES = """
CREATE TABLE IF NOT EXISTS documents (number INTEGER PRIMARY KEY, text TEXT);
CREATE TABLE IF NOT EXISTS notes (number INTEGER PRIMARY KEY, line TEXT);
"""


def query(path: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """One connection a statement, because tools run in several threads."""
    with closing(sqlite3.connect(path, timeout=20)) as database, database:
        return database.execute(statement, values).fetchall()


@tool(read_only=True)
def next_document(ctx: ToolContext[Path], after: int) -> dict[str, Any]:
    """Read the first document whose number is above this one.

    It has an argument because the same call three times in a row is taken for a loop.
    """
    found = query(
        ctx.deps,
        "SELECT number, text FROM documents WHERE number > ? ORDER BY number LIMIT 1",
        after,
    )
    return {"number": found[0][0], "text": found[0][1]} if found else {"number": 0, "text": ""}


@tool(idempotent=True)
def note(ctx: ToolContext[Path], number: int, line: str) -> str:
    """Note one line about a document."""
    query(
        ctx.deps,
        "INSERT INTO notes VALUES (?, ?) ON CONFLICT DO UPDATE SET line = excluded.line",
        number,
        line,
    )
    return f"noted {number}"


def create(path: Path, documents: int) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(TABLES)
        database.executemany(
            "INSERT OR IGNORE INTO documents VALUES (?, ?)",
            [(n, f"Report {n}.") for n in range(1, documents + 1)],
        )
    return path


@asynccontextmanager
async def lifespan():
    yield create(Path("documents.db"), 200)


reader = Agent(
    name="reader",
    description="Reads documents",
    instructions=(
        "Read one document after the other, from after=0 on, and note one line about each. Stop at"
        " number 0."
    ),
    model="openai:gpt-5-mini",
    tools=[next_document, note],
    max_iterations="unlimited",  # the budget bounds it
    budget=Budget(model_calls=2_000),
)
app = AgentWorker(reader, lifespan=lifespan)


def play(request: ModelRequest) -> Reply:
    """Stands in for a language model."""
    last = request.messages[-1]
    if not isinstance(last, ToolMessage):
        return calls(call("next_document", after=0))
    [result] = last.results
    if result.name == "note":
        return calls(call("next_document", after=int(result.content.removeprefix("noted "))))
    found = json.loads(result.content)
    return (
        calls(call("note", number=found["number"], line=found["text"].upper()))
        if found["number"]
        else says("All are read.")
    )


async def main(documents: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = create(Path(folder) / "documents.db", documents)
        async with local_runtime(app, model=FunctionModel(play), deps=path) as client:
            await client.start("reader", "Read all of them.", id="documents")
            while (status := await client.turn("documents").wait(timeout=2)).state != "ended":
                print(f"{status.steps} steps; {status.doing}", file=sys.stderr)
            print(f"{status.outcome}: {status.steps} steps, {status.spent.tool_calls} tool calls")
        print("notes:", query(path, "SELECT count(*), min(line), max(number) FROM notes"))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
