"""A day of a support desk, for the pictures of the page: its agents, and what they are asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

from pydantic import BaseModel

from perdure import Agent, AssistantMessage, Budget, Price, Usage, UserMessage, errors, tool
from perdure.clients import AgentClient
from perdure.testing import FunctionModel, ModelRequest, call, calls, fails, says
from perdure.testing.scripted import Reply
from perdure.worker import AgentWorker

USED = Usage(input_tokens=3_200, output_tokens=240)
LOST = "Order 4711 has not arrived. Pay it back if our rules say so."
RESEARCH = "What do three shops pay back when the post loses a parcel?"
AUDIT = "Go through the open invoices of 2026, and remind who is late."
TYPED = "Sum up the complaints of this week."
OPEN = "Check all open invoices of October."
REASON = """The order was handed to the post on **3 November** and never delivered.

| rule | says |
|---|---|
| Section 4 | what the post loses is paid back *in full* |
| Section 7 | above 500 euros, a person decides |

So 40 euros are to be paid back in full."""
ANSWER = "The order was lost in the post. 40 euros are paid back; the customer gets a message."


class LateOrder(BaseModel):
    """An order that has not come."""

    order: str
    days: int
    euros: int


class Complaints(BaseModel):
    """The complaints of a week."""

    week: int
    worst: str
    by_reason: dict[str, int]
    orders: list[LateOrder]


@tool(read_only=True)
async def find_order(number: str) -> str:
    """Find an order."""
    await asyncio.sleep(0.15)
    return f"Order {number}: 40 euros, handed to the post on 3 November, not delivered."


@tool(read_only=True)
async def search_handbook(query: str) -> str:
    """Search the handbook."""
    await asyncio.sleep(0.3)
    return "Section 4: what is lost in the post is paid back in full."


@tool
async def remind(invoice: str, days_late: int) -> str:
    """Remind a customer."""
    if days_late > 90:
        raise ValueError(f"invoice {invoice} is with the lawyers")
    return f"invoice {invoice}: reminded after {days_late} days"


@tool(requires_approval=True)
def refund(order: str, euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros for order {order}"


def app() -> AgentWorker:
    """The desk, its researchers, and a clerk for invoices."""
    tools = [find_order, refund]
    agents = [
        Agent(name="support", model="main", tools=tools, delegates=["researcher"]),
        Agent(name="lead", model="main", delegates=["researcher", "support"], parallel_tools=True),
        Agent(name="researcher", model="main", tools=[search_handbook], delegates=["reader"]),
        Agent(name="reader", model="main", tools=[search_handbook]),
        Agent(name="billing", model="main", tools=[find_order], on_exhausted="pause"),
        Agent(name="auditor", model="main", tools=[remind], max_iterations=120),
        Agent(name="analyst", model="main", output=Complaints),
    ]
    return AgentWorker(
        agents, models={"main": "scripted:main"}, prices={"scripted:*": Price(input=3, output=15)}
    )


def models() -> FunctionModel:
    """A model whose answers depend on the task and the step."""

    def reply(request: ModelRequest) -> Reply | str:
        task = next(m.text for m in request.messages if isinstance(m, UserMessage))
        said = [m for m in request.messages if isinstance(m, UserMessage)]
        step = sum(isinstance(m, AssistantMessage) for m in request.messages)
        if len(said) > 1:
            step = 2
        script = _script(task)
        return script[min(step, len(script) - 1)]

    return FunctionModel(reply)


def _script(task: str) -> Sequence[Reply]:
    """The answers to a task: those of a task with its words, or of one that begins like this."""
    known = _known()
    if task in known:
        return known[task]
    if task.startswith("Order "):
        return _refund(task.split()[1])
    if "invoice was sent twice" in task:
        return [fails(errors.LLMAuthError("the key has expired"))]
    handbook = calls(call("search_handbook", query="lost in the post"), usage=USED)
    if task.startswith(("Do we", "What does shop", "Read")):
        return [handbook, says("Yes, in full (section 4).", usage=USED)]
    return [_look(), says("It is on its way, and comes on **Friday**.", usage=USED)]


def _look() -> Reply:
    return calls(call("find_order", number="4711"), text="I look for the order first.", usage=USED)


def _pay() -> Reply:
    return calls(call("refund", order="4711", euros=40), text=REASON, usage=USED)


def _known() -> dict[str, Sequence[Reply]]:
    ask = calls(
        call("delegate_to_agent", agent="researcher", task="Do we pay back what is lost?"),
        text="It was handed to the post and never delivered. Now the rules.",
        usage=USED,
    )
    shops = [
        call("delegate_to_agent", agent="researcher", task=f"What does shop {name} pay back?")
        for name in ("A", "B", "C")
    ]
    found = "## Result\n\n- **A** and **B** pay back in full.\n- **C** pays half."
    reader = call("delegate_to_agent", agent="reader", task="Read the terms of shop B.")
    sorry = says("I am sorry. Shall I have it paid back?", usage=USED)
    return {
        LOST: [_look(), ask, _pay(), says(ANSWER, usage=USED)],
        RESEARCH: [
            calls(*shops, text="I ask three researchers, and compare what they find.", usage=USED),
            says(found, usage=USED),
        ],
        "What does shop B pay back?": [
            calls(reader, usage=USED),
            says("In full, after 14 days.", usage=USED),
        ],
        AUDIT: _audit(),
        TYPED: [says(_complaints(), usage=USED)],
        OPEN: [calls(call("find_order", number="4712"), usage=USED)] * 9,
        "Hello, my order 4711 is lost.": [_look(), sorry, _pay()],
    }


def _refund(order: str) -> Sequence[Reply]:
    return [
        calls(call("find_order", number=order), text="I look for the order.", usage=USED),
        calls(call("refund", order=order, euros=int(order) % 90 + 9), text=REASON, usage=USED),
        says("It is paid back.", usage=USED),
    ]


def _audit() -> Sequence[Reply]:
    steps = [
        calls(
            call("remind", invoice=f"i-{number}", days_late=number * 7 % 100),
            text=f"Invoice i-{number} is late." if number % 4 == 0 else "",
            usage=USED,
        )
        for number in range(1, 100)
    ]
    return [*steps, says("99 invoices are done; 90 customers were reminded.", usage=USED)]


def _complaints() -> str:
    orders = [{"order": "4711", "days": 24, "euros": 40}, {"order": "4690", "days": 9, "euros": 12}]
    return json.dumps(
        {
            "week": 48,
            "worst": "Parcels that the post has lost.",
            "by_reason": {"lost": 7, "late": 12, "broken": 3},
            "orders": orders,
        }
    )


@contextlib.asynccontextmanager
async def open_for_business(client: AgentClient) -> AsyncIterator[None]:
    """Turns, sessions, a batch and a schedule that have come as far as they come by themselves."""
    turns = [
        await client.start(
            agent,
            task,
            id=id,
            budget=Budget(usd=usd, time=timedelta(hours=2)),
            labels={"team": "money" if agent in ("billing", "auditor") else "post"},
        )
        for id, agent, task, usd in _tasks()
    ]
    batch = await client.start_batch(
        "invoices-11", "billing", [f"Is invoice i-{number} paid?" for number in range(12)]
    )
    schedule = await client.create_schedule(
        "nightly", "analyst", TYPED, cron="0 3 * * *", timezone="Europe/Berlin"
    )
    session = client.session("customer-42", "support", labels={"team": "post"})
    await (await session.say("Hello, my order 4711 is lost.")).result()
    other = client.session("customer-43", "support", labels={"team": "post"})
    await (await other.say("Where is order 4690?")).result()
    await (await (await session.say("Yes, please.")).turn()).wait(60)
    for turn in turns:
        await turn.wait(120)
    try:
        yield
    finally:
        await asyncio.gather(*(turn.cancel() for turn in turns), batch.cancel(), schedule.delete())
        await asyncio.gather(session.cancel(), other.close())


def _tasks() -> list[tuple[str, str, str, str]]:
    """The id, the agent, the task and the dollars of each of sixty turns."""
    others = [
        ("support", "Where is order {}?"),
        ("support", "When does order {} arrive?"),
        ("billing", "Was it right that the invoice was sent twice to {}?"),
        ("support", "What does the parcel of order {} weigh?"),
    ]
    past = [
        (f"ticket-{number}", others[number % 4][0], others[number % 4][1].format(number), "0.50")
        for number in range(4600, 4645)
    ]
    waiting = [
        (f"ticket-{number}", "support", f"Order {number} is broken, I want my money back.", "0.50")
        for number in range(4720, 4729)
    ]
    return [
        *past,
        ("complaints-48", "analyst", TYPED, "0.50"),
        ("audit-2026", "auditor", AUDIT, "5"),
        ("research-1", "lead", RESEARCH, "1"),
        ("research-2", "lead", "Where is the file of last year?", "1"),
        *waiting,
        ("invoices-10", "billing", OPEN, "0.03"),
        ("ticket-4711", "support", LOST, "0.50"),
    ]
