"""A payment in each fault mode of a service: what was done, and what the turn says of it.

`make -C benchmarks effects` prints the table. The service is `StubService`, and its ledger is the
witness. A scripted model pays an invoice, or two at once in `partial_timeout`, and gets an error:

- `tell`: it says what it was told. `stopped`: the tool's own client waits without an end, so
  Perdure stops the tool.
- `blind`: it pays again until that succeeds. `call key`: with the idempotency key of each call;
  `own key`: with a key that the tool makes of turn and invoices; `409`: the service refuses a
  second payment of an invoice.
- `verify`: it reads back, and pays again if there is nothing. `lag`: the service lists a payment
  two minutes later.

An error is a failed payment for it, unless the text says that the outcome is unknown. Each cell is
what was done, then what the turn says. What is late takes effect before it is judged.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx

from perdure import Agent, Text, ToolContext, ToolMessage, ToolResult, tool
from perdure.clients import AgentClient
from perdure.testing import (
    Fault,
    FunctionModel,
    Grade,
    ModelRequest,
    Reply,
    StubService,
    Terms,
    call,
    calls,
    local_runtime,
    says,
)

CLIENT_S, TOOL_S = 1.0, 1.0
"""How long the tool's client waits for an answer, and how long a tool that waits may take."""
WAIT = timedelta(seconds=0.4)
"""How long the model waits before it repeats."""
TERMS: dict[str, Any] = {"retry_after_s": 0.3}
LAG_S = 120.0
MOST_CALLS = 4
UNKNOWN = "whether it took effect is unknown"
AT_ONCE = 8


async def post(url: str, field: str, invoices: list[int], key: str, timeout: float | None) -> str:
    """Pay, and return what the service answers."""
    items = [{field: invoice} for invoice in invoices]
    waits = httpx.Timeout(timeout, connect=None)
    async with httpx.AsyncClient(timeout=waits, trust_env=False) as client:
        answer = await client.post(
            f"{url}/payments",
            json=items if len(items) > 1 else items[0],
            headers={"Idempotency-Key": key} if key else {},
        )
    if answer.is_error:
        raise RuntimeError(f"{answer.status_code} {answer.text}")
    return answer.text


@tool
async def pay(url: str, field: str, invoices: list[int]) -> str:
    """Pay without a key."""
    return await post(url, field, invoices, "", CLIENT_S)


@tool(idempotent=True)
async def pay_with_key_of_call(
    ctx: ToolContext[None], url: str, field: str, invoices: list[int]
) -> str:
    """Pay with the key of the call."""
    return await post(url, field, invoices, ctx.idempotency_key, CLIENT_S)


@tool(idempotent=True)
async def pay_with_key_of_effect(
    ctx: ToolContext[None], url: str, field: str, invoices: list[int]
) -> str:
    """Pay with a key that the tool makes of the turn and the invoices."""
    return await post(url, field, invoices, f"{ctx.turn_id} {invoices}", CLIENT_S)


@tool(timeout=timedelta(seconds=TOOL_S))
async def pay_without_timeout(url: str, field: str, invoices: list[int]) -> str:
    """Pay without a key, and wait until the tool is stopped."""
    return await post(url, field, invoices, "", None)


@tool(read_only=True)
async def payments(url: str) -> str:
    """Read back."""
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{url}/payments")
    return answer.raise_for_status().text


TOOLS = (pay, pay_with_key_of_call, pay_with_key_of_effect, pay_without_timeout, payments)


@dataclass(frozen=True)
class Case:
    """A column: how the tool pays, what the model does then, and what the service promises."""

    name: str
    behaviour: str
    tool: str = "pay"
    terms: Terms = Terms(**TERMS)


CASES = (
    Case("tell", "tell"),
    Case("tell, stopped", "tell", "pay_without_timeout"),
    Case("blind", "blind"),
    Case("blind, call key", "blind", "pay_with_key_of_call"),
    Case("blind, own key", "blind", "pay_with_key_of_effect"),
    Case("blind, 409", "blind", terms=Terms(**TERMS, unique=["invoice"])),
    Case("verify", "verify"),
    Case("verify, lag", "verify", terms=Terms(**TERMS, lag_s=LAG_S)),
)


def replied(request: ModelRequest) -> Reply:
    """The next call of the model, or what it says at the end."""
    task = json.loads(_text_of(request.messages[0]))
    results = [
        result
        for message in request.messages
        if isinstance(message, ToolMessage)
        for result in message.results
    ]
    if not results:
        return _pays(task, [])
    last, tried = results[-1], [result for result in results if result.name != "payments"]
    if last.name == "payments":
        found = {item.get("invoice") for item in json.loads(last.content)["items"]}
        missing = [invoice for invoice in task["invoices"] if invoice not in found]
        if missing and len(tried) < MOST_CALLS:
            return _pays({**task, "invoices": missing}, tried)
        return says("not paid" if missing else "paid")
    if not last.is_error:
        return says("paid")
    if task["behaviour"] == "tell" or len(tried) == MOST_CALLS:
        return says(claim(tried))
    return calls(call("payments", url=task["url"])) if _verifies(task, last) else _pays(task, tried)


def _text_of(message: Any) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def _verifies(task: Mapping[str, Any], last: ToolResult) -> bool:
    """Whether it reads back: an answer that names what is wrong leaves nothing to find."""
    return task["behaviour"] == "verify" and "400" not in last.content


def _pays(task: Mapping[str, Any], tried: Sequence[ToolResult]) -> Reply:
    """Pay, with the field that the last refusal names; wait before it if this is not the first."""
    renamed = re.search(r"it is named '(\w+)' now", tried[-1].content) if tried else None
    field = renamed[1] if renamed else "invoice"
    arguments = {"url": task["url"], "field": field, "invoices": task["invoices"]}
    return calls(call(task["tool"], **arguments), delay=WAIT if tried else timedelta())


def claim(tried: Sequence[ToolResult]) -> str:
    """What the model says of payments that all ended in errors."""
    return "unknown" if any(UNKNOWN in result.content for result in tried) else "not paid"


@dataclass(frozen=True)
class Seen:
    """A cell: what the service has done, and what the turn says."""

    case: str
    fault: Fault
    verdict: Grade
    says: str

    @property
    def pair(self) -> tuple[str, str]:
        """What was done, and what the turn says."""
        return self.did, self.says

    @property
    def did(self) -> str:
        """What was done."""
        if self.verdict.duplicates:
            return "twice"
        if self.verdict.made == self.verdict.wanted:
            return "once"
        return "part" if self.verdict.made else "none"


async def seen(client: AgentClient, case: Case, fault: Fault) -> Seen:
    """Run a turn with a service of its own."""
    invoices = [7, 8] if fault is Fault.PARTIAL_TIMEOUT else [7]
    with StubService(fault, terms=case.terms) as service:
        task = {
            "url": service.url,
            "tool": case.tool,
            "behaviour": case.behaviour,
            "invoices": invoices,
        }
        report = await client.run("clerk", json.dumps(task))
        service.settle()
        verdict = service.grade("payments", [{"invoice": invoice} for invoice in invoices])
        return Seen(case.name, fault, verdict, str(report.output))


async def measured(
    cases: Iterable[Case] = CASES, faults: Iterable[Fault] = tuple(Fault)
) -> list[Seen]:
    """Run each case in each mode, several at once."""
    places = asyncio.Semaphore(AT_ONCE)
    agent = Agent(name="clerk", model="any:any", tools=TOOLS, on_loop="ignore")

    async def one(case: Case, fault: Fault) -> Seen:
        async with places:
            return await seen(client, case, fault)

    async with local_runtime(agent, model=FunctionModel(replied)) as client:
        return await asyncio.gather(*(one(case, fault) for fault in faults for case in cases))


COUNTS: dict[str, Callable[[str, str], bool]] = {
    "exactly once": lambda did, _: did == "once",
    "twice": lambda did, _: did == "twice",
    "in part": lambda did, _: did == "part",
    "not made": lambda did, _: did == "none",
    "overclaims": lambda did, says: says == "paid" and did != "once",
    "denied, but done": lambda did, says: says == "not paid" and did != "none",
    "unknown named": lambda _, says: says == "unknown",
}
"""What is counted, by what was done and what the turn says."""


def counted(cells: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The number of cells of each kind, by what was done and what the turn says."""
    pairs = list(cells)
    return {name: sum(counts(*pair) for pair in pairs) for name, counts in COUNTS.items()}


def table(cells: Sequence[Seen]) -> str:
    """The cells, a row for each mode, and the counts."""
    cases = list(dict.fromkeys(cell.case for cell in cells))
    width = max(18, *(len(case) + 2 for case in cases))
    shown: dict[str, list[str]] = {}
    for cell in cells:
        shown.setdefault(cell.fault, []).append(f"{cell.did}, {cell.says}")
    by_case = [counted(one.pair for one in cells if one.case == case) for case in cases]
    counts = {name: [str(counts[name]) for counts in by_case] for name in COUNTS}
    rows = {"": cases, **shown, " ": [""], **counts}
    return "\n".join(
        f"{name:20}" + "".join(f"{value:{width}}" for value in values).rstrip()
        for name, values in rows.items()
    )
