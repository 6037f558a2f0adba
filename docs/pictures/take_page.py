"""Takes the pictures of the page of the gateway: `make screenshots`.

The list, a turn with delegates that waits for approval, the same in the dark, a session and the
inbox on a phone, on a server of their own. Needs Chromium, as `take.py` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, async_playwright

from perdure import Agent, Budget, Price, Usage, errors, tool
from perdure.clients import AgentClient
from perdure.clients.gateway import app as gateway
from perdure.clients.gateway import one_token, serving
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, local_runtime, says
from perdure.worker import AgentWorker
from perdure.worker.dev.server import DevServer

HERE = Path(__file__).parent
DESK = {"viewport": {"width": 1240, "height": 860}}
PHONE = {"viewport": {"width": 390, "height": 780}, "device_scale_factor": 2}
TOKEN = secrets.token_urlsafe()
DARK = {"color_scheme": "dark"}
USED = Usage(input_tokens=3_200, output_tokens=240)
ANSWER = "The order was lost in the post. 40 euros are paid back; the customer gets a message."


@tool(read_only=True)
async def find_order(number: str) -> str:
    """Find an order."""
    return f"Order {number}: 40 euros, handed to the post on 3 November, not delivered."


@tool(read_only=True)
async def search_handbook(query: str) -> str:
    """Search the handbook."""
    return "Section 4: what is lost in the post is paid back in full."


@tool(requires_approval=True)
async def refund(order: str, euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros for order {order}"


def app() -> AgentWorker:
    """A support desk that asks a researcher, and pays back after approval."""
    tools = [find_order, refund]
    agents = [
        Agent(name="support", model="main", tools=tools, delegates=["researcher"]),
        Agent(name="researcher", model="main", tools=[search_handbook]),
        Agent(name="billing", model="main", tools=tools, on_exhausted="pause"),
    ]
    return AgentWorker(
        agents, models={"main": "scripted:main"}, prices={"scripted:*": Price(input=3, output=15)}
    )


RULES = "Do we pay back what the post loses?"
LOST = "Order 4711 has not arrived. Pay it back if our rules say so."
TASKS = {
    LOST: ("support", "0.50"),
    "Was the invoice of October sent twice?": ("billing", "0.50"),
    "Check all open invoices of 2026.": ("billing", "0.03"),
    "Where is order 4690?": ("support", "0.50"),
}


def models() -> dict[str, Any]:
    """What each of them says."""
    look = calls(call("find_order", number="4711"), text="I look for the order first.", usage=USED)
    ask = calls(
        call("delegate_to_agent", agent="researcher", task=RULES),
        text="It was handed to the post and never delivered. Now the rules.",
        usage=USED,
    )
    pay = calls(
        call("refund", order="4711", euros=40),
        text="Section 4 says that it is paid back in full.",
        usage=USED,
    )
    invoices = calls(call("find_order", number="4712"), usage=USED)
    return {
        "support": ByTask(
            {
                LOST: ScriptedModel(look, ask, pay, says(ANSWER, usage=USED)),
                "Where is order 4690?": ScriptedModel(look, says("It is on its way.", usage=USED)),
                "Hello, my order 4711 is lost.": ScriptedModel(
                    look, says("I am sorry. Shall I have it paid back?", usage=USED), pay
                ),
            }
        ),
        "researcher": ByTask(
            {
                RULES: ScriptedModel(
                    calls(call("search_handbook", query="lost in the post"), usage=USED),
                    says("Yes, in full (section 4).", usage=USED),
                )
            }
        ),
        "billing": ByTask(
            {
                "Was the invoice of October sent twice?": ScriptedModel(
                    fails(errors.LLMAuthError("the key has expired"))
                ),
                "Check all open invoices of 2026.": ScriptedModel(*[invoices] * 9),
            }
        ),
    }


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[str]:
    """The address of the page of some turns and a session."""
    async with (
        DevServer(folder=None, port=0) as server,
        local_runtime(app(), model=models(), address=server.address.address) as client,
        serving.served(
            gateway(client, one_token(TOKEN), temporal_ui=server.address.ui), (0,)
        ) as url,
    ):
        turns = await started(client)
        session = client.session("customer-42", "support", labels={"team": "post"})
        await (await session.say("Hello, my order 4711 is lost.")).result()
        await (await (await session.say("Yes, please.")).turn()).wait(60)
        yield f"{url}/ui/"
        await session.interrupt()
        await session.close()
        for turn in turns:
            await turn.cancel("the pictures are taken")


async def started(client: AgentClient) -> list[Any]:
    """Turns that have come as far as they come by themselves."""
    turns = [
        await client.start(
            agent,
            task,
            id=f"ticket-{4700 + number}",
            budget=Budget(usd=usd, time=timedelta(hours=2)),
            labels={"team": "post" if agent == "support" else "money"},
        )
        for number, (task, (agent, usd)) in enumerate(TASKS.items(), 1)
    ]
    for turn in turns:
        await turn.wait(60)
    return turns


async def take(browser: Browser, name: str, url: str, text: str, **options: Any) -> None:
    """Paint a view, once it has a text."""
    context = await browser.new_context(**options)
    page = await context.new_page()
    await page.goto(url.partition("#")[0] + f"#token={TOKEN}")
    await page.goto(url)
    await page.get_by_text(text).first.wait_for(timeout=30_000)
    for summary in await page.locator("aside summary").all():
        await summary.click()
    await page.wait_for_timeout(1_500)
    await page.screenshot(path=HERE / f"{name}.png")
    await context.close()
    print(f"docs/pictures/{name}.png")


async def main() -> int:
    """Take all pictures."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        print("no Chromium on the path: the pictures stay as they are", file=sys.stderr)
        return 1
    async with served() as url, async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        turn = f"{url}#/turns/ticket-4701"
        await take(browser, "page-list", f"{url}#/turns", "ticket-4701", **DESK)
        await take(browser, "page-turn", turn, "Section 4", **DESK)
        await take(browser, "page-dark", turn, "Section 4", **DESK, **DARK)
        await take(browser, "page-phone", f"{url}#/inbox", "waits for approval", **PHONE)
        await take(browser, "page-session", f"{url}#/sessions/customer-42", "Shall I", **DESK)
        await browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
