"""Takes the pictures of turns in Temporal's web UI: `make screenshots`.

A turn that runs, one that waits for approval, one that is paused, one that failed and one that
finished, on a server of their own. Needs Chromium, as `chromium` or `google-chrome` on the path,
and the package playwright, which the make target installs.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

from playwright.async_api import async_playwright

from perdure import Agent, Budget, Price, Usage, errors, tool
from perdure.clients import AgentClient
from perdure.clients.cli.drawing.progress import address_in_ui
from perdure.testing import ScriptedModel, call, calls, fails, local_runtime, says
from perdure.worker import AgentWorker
from perdure.worker.dev.server import DevServer

HERE = Path(__file__).parent
TASKS = (
    ("researcher", "What are the exceptions?"),
    ("writer", "Write the answer and close the ticket"),
)
USED = Usage(input_tokens=3_200, output_tokens=120)


@tool(read_only=True, timeout=timedelta(minutes=10))
async def search_handbook(query: str) -> str:
    """Search the handbook."""
    if "slow" in query:
        await asyncio.sleep(300)
    return "Section 4: the notice period is 30 days."


@tool(requires_approval=True)
async def close_ticket(number: str) -> str:
    """Close a ticket."""
    return f"closed {number}"


TURNS = ("running", "approval", "paused", "failed", "finished", "editor")


def app() -> AgentWorker:
    """Agents that do what the pictures show."""
    tools = [search_handbook, close_ticket]
    agents = [
        Agent(
            name=name,
            model="main",
            tools=tools,
            on_exhausted="pause" if name == "paused" else "fail",
        )
        for name in TURNS[:-1]
    ]
    agents += [
        Agent(name="editor", model="main", delegates=["researcher", "writer"]),
        Agent(name="researcher", model="main", tools=tools),
    ]
    agents += [Agent(name="writer", model="main", tools=tools)]
    return AgentWorker(
        agents, models={"main": "scripted:main"}, prices={"scripted:*": Price(input=3, output=15)}
    )


def models() -> dict[str, ScriptedModel]:
    """What each of them says."""
    look = calls(call("search_handbook", query="notice period"), usage=USED)
    return {
        "running": ScriptedModel(
            look, calls(call("search_handbook", query="slow shelf"), usage=USED)
        ),
        "approval": ScriptedModel(look, calls(call("close_ticket", number="4711"), usage=USED)),
        "paused": ScriptedModel(
            look, calls(call("search_handbook", query="exceptions"), usage=USED)
        ),
        "failed": ScriptedModel(
            look,
            fails(errors.LLMUnavailableError("the provider is down")),
            fails(errors.LLMAuthError("the key has expired")),
        ),
        "editor": ScriptedModel(
            calls(
                call(
                    "delegate_to_agent", agent="researcher", task="How long is the notice period?"
                ),
                usage=USED,
            ),
            calls(
                call("spawn_agents", tasks=[{"agent": name, "task": task} for name, task in TASKS]),
                usage=USED,
            ),
        ),
        "researcher": ScriptedModel(
            says("30 days", usage=USED),
            calls(call("search_handbook", query="slow shelf"), usage=USED),
        ),
        "writer": ScriptedModel(calls(call("close_ticket", number="4711"), usage=USED)),
        "finished": ScriptedModel(
            look, says("The notice period is 30 days (section 4).", usage=USED)
        ),
    }


@contextlib.asynccontextmanager
async def turns() -> AsyncIterator[tuple[AgentClient, str]]:
    """A client whose turns are in the states that the pictures show, and the address of the UI."""
    async with (
        DevServer(folder=None, port=0) as server,
        local_runtime(app(), model=models(), address=server.address.address) as client,
    ):
        for name in TURNS:
            budget = (
                Budget(usd="0.03", time=timedelta(hours=2))
                if name == "paused"
                else Budget(usd="0.50", time=timedelta(hours=2))
            )
            await client.start(
                name,
                "How long is the notice period?",
                id=f"{name}/ticket-4711",
                budget=budget,
                labels={"team": "support"},
            )
        await asyncio.sleep(6)
        yield client, server.address.ui


async def pictures(browser: str, pages: dict[str, str]) -> None:
    """Have the browser paint each page, when it has had time to load."""
    async with async_playwright() as driver:
        running = await driver.chromium.launch(
            executable_path=browser, args=["--no-sandbox", "--disable-gpu"]
        )
        for name, url in pages.items():
            page = await running.new_page(viewport={"width": 1400, "height": 1000})
            await page.goto(url, wait_until="load")
            await page.get_by_text(
                "Workflow ID" if name == "list" else "Event History"
            ).first.wait_for(timeout=30_000)
            await page.wait_for_timeout(2_000)
            await page.screenshot(path=HERE / f"{name}.png")
            await page.close()
            print(f"docs/pictures/{name}.png")
        await running.close()


async def main() -> int:
    """Take all pictures."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        print("no Chromium on the path: the pictures stay as they are", file=sys.stderr)
        return 1
    async with turns() as (client, ui):
        runs = {name: await client.turn(f"{name}/ticket-4711").first_run() for name in TURNS}
        pages = {
            name: f"{address_in_ui(ui, 'default', f'{name}/ticket-4711')}/{run}/timeline"
            for name, run in runs.items()
        }
        pages["card"] = pages["paused"].replace("/timeline", "/user-metadata")
        pages["tree"] = pages.pop("editor").replace("/timeline", "/user-metadata")
        pages["list"] = f"{ui}/namespaces/default/workflows"
        await pictures(browser, pages)
        with contextlib.suppress(errors.PerdureError):
            for name in ("running", "approval", "paused", "editor"):
                await client.turn(f"{name}/ticket-4711").cancel("the pictures are taken")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
