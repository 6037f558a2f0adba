"""A help desk on SQLite: four tools, a typed answer, a guardrail, a budget, and approvals over
HTTP.

With a model of yours: `perdure dev examples.helpdesk:app` and `uvicorn examples.helpdesk:web`;
without one: `python examples/helpdesk.py`. It needs `pip install fastapi uvicorn httpx`.
"""

import asyncio
import sqlite3
import tempfile
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI, Request
from pydantic import BaseModel

from perdure import Agent, AgentReport, Budget, OutputGuardrail, ToolContext, tool
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel, call, calls, local_runtime
from perdure.worker import AgentWorker

TABLES = """
CREATE TABLE IF NOT EXISTS tickets (
    number INTEGER PRIMARY KEY, customer TEXT, text TEXT, reply TEXT
);
CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, customer TEXT, euros INTEGER);
CREATE TABLE IF NOT EXISTS refunds (key TEXT PRIMARY KEY, number INTEGER, euros INTEGER);
INSERT OR IGNORE INTO tickets VALUES (4711, 'Jo', 'My parcel is lost.', NULL);
INSERT OR IGNORE INTO orders VALUES (17, 'Jo', 40);
"""


class Resolution(BaseModel):
    reply: str
    refund_euros: int = 0


def query(path: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """One connection a statement, because tools run in several threads."""
    with closing(sqlite3.connect(path, timeout=20)) as database, database:
        return database.execute(statement, values).fetchall()


@tool(read_only=True)
def read_ticket(ctx: ToolContext[Path], number: int) -> str:
    """Read a ticket: who wrote it, and what."""
    [(customer, text)] = query(
        ctx.deps, "SELECT customer, text FROM tickets WHERE number = ?", number
    )
    return f"{customer} writes: {text}"


@tool(read_only=True)
def find_orders(ctx: ToolContext[Path], customer: str) -> list[dict[str, int]]:
    """Find the orders of a customer, with what was paid for them."""
    rows = query(ctx.deps, "SELECT number, euros FROM orders WHERE customer = ?", customer)
    return [{"number": number, "euros": euros} for number, euros in rows]


@tool(requires_approval=True, idempotent=True)
def refund(ctx: ToolContext[Path], order: int, euros: int) -> str:
    """Pay money back. The key is that of the call, so a call that is tried again pays once."""
    query(
        ctx.deps,
        "INSERT OR IGNORE INTO refunds VALUES (?, ?, ?)",
        ctx.idempotency_key,
        order,
        euros,
    )
    return f"{euros} euros were paid back"


@tool(idempotent=True)
def close_ticket(ctx: ToolContext[Path], number: int, reply: str) -> str:
    """Close a ticket with the reply to the customer."""
    query(ctx.deps, "UPDATE tickets SET reply = ? WHERE number = ?", reply, number)
    return "closed"


def promises_little(report: AgentReport[Any]) -> bool | str:
    if report.output.refund_euros <= 500:
        return True
    return "a refund above 500 euros is a matter for the manager"


def create(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(TABLES)


@asynccontextmanager
async def lifespan():
    path = Path("helpdesk.db")
    create(path)
    yield path


desk = Agent(
    name="helpdesk",
    description="Answers tickets",
    instructions=(
        "Read the ticket. If the customer lost money, refund the order. Close the ticket with a"
        " reply."
    ),
    model="openai:gpt-5-mini",
    tools=[read_ticket, find_orders, refund, close_ticket],
    output=Resolution,
    middleware=[OutputGuardrail(promises_little)],
    budget=Budget(model_calls=10, tool_calls=10),
)
app = AgentWorker(desk, lifespan=lifespan)


@asynccontextmanager
async def connected(web: FastAPI):
    web.state.client = await AgentClient.connect()
    yield


web = FastAPI(lifespan=connected)


@web.put("/tickets/{number}")
async def start(number: int, request: Request) -> dict[str, str]:
    turn = await request.app.state.client.start(
        "helpdesk", f"Answer ticket {number}.", id=f"ticket-{number}"
    )
    return {"turn": turn.id}


@web.get("/tickets/{number}")
async def look(number: int, request: Request, wait: float = 0) -> dict[str, Any]:
    status = await request.app.state.client.turn(f"ticket-{number}").wait(timeout=wait)
    return status.model_dump(
        mode="json", include={"state", "outcome", "steps", "waits", "spent", "last_text"}
    )


@web.post("/tickets/{number}/approve/{call_id}", status_code=204)
async def approve(number: int, call_id: str, token: str, request: Request) -> None:
    await request.app.state.client.turn(f"ticket-{number}").approve(call_id, token=token)


async def main() -> None:
    model = ScriptedModel(
        calls(call("read_ticket", number=4711)),
        calls(call("find_orders", customer="Jo")),
        calls(call("refund", order=17, euros=40)),
        calls(call("close_ticket", number=4711, reply="We have paid you back.")),
        '{"reply": "We have paid you back.", "refund_euros": 40}',
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "helpdesk.db"
        create(path)
        async with local_runtime(app, model=model, deps=path) as client:
            # instead of its lifespan, which connects to a server of yours
            web.state.client = client
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(app=web), base_url="http://desk"
            ) as http:
                await answer(http)
            turn = client.turn("ticket-4711")
            print((await turn.typed(Resolution).result()).output)
        print("paid:", query(path, "SELECT number, euros FROM refunds"))
        print("closed:", query(path, "SELECT number, reply FROM tickets"))


async def answer(http: httpx.AsyncClient) -> None:
    """What a browser does for the person who decides."""
    await http.put("/tickets/4711")
    waiting = (await http.get("/tickets/4711", params={"wait": 60})).json()
    [wait] = waiting["waits"]
    print(
        f"{waiting['state']} after {waiting['steps']} steps:",
        wait["call"]["tool"],
        wait["call"]["arguments"],
    )
    await http.post(
        f"/tickets/4711/approve/{wait['call']['call_id']}", params={"token": wait["call"]["token"]}
    )
    over = (await http.get("/tickets/4711", params={"wait": 60})).json()
    print(f"{over['outcome']} with {over['spent']['tool_calls']} tool calls:", over["last_text"])


if __name__ == "__main__":
    asyncio.run(main())
