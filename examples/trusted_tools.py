"""The toolboxes that come with Perdure: a folder, the web, the time, arithmetic, commands.

And what they refuse.
"""

import asyncio
import http.server
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perdure import Agent
from perdure.clients import AgentClient
from perdure.events import WaitBegan
from perdure.testing import ScriptedModel, call, calls, local_runtime, says
from perdure.toolboxes import calculator, clock, fetch, files, shell


class Shop(http.server.BaseHTTPRequestHandler):
    """A page for the example. The real web needs no server of yours."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(
            b"<title>Shop</title><h1>Tea</h1><p>Green tea costs <b>3.90</b> &euro;.</p>"
        )

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def shop() -> Iterator[int]:
    """The port of the shop, on this machine."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_address[1]
        server.shutdown()


def clerk(folder: Path, port: int) -> Agent:
    return Agent(
        name="clerk",
        model="openai:gpt-5-mini",
        toolboxes=[
            files(folder, write=True),
            # for the shop; `fetch()` reads the public web, no more
            fetch(allow_networks=["127.0.0.1/32"], allow_ports=[80, port]),
            clock("Europe/Berlin"),
            calculator(),
            shell(folder, ["wc"]),
        ],
    )


async def approve(client: AgentClient, turn_id: str) -> None:
    """What a person does: writing and commands wait for one."""
    turn = client.turn(turn_id)
    async for event in turn.events():
        if isinstance(event.fact, WaitBegan):
            for pending in await turn.pending_approvals():
                print("approved:", pending.tool, pending.arguments)
                await turn.approve(pending)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name, shop() as port:
        folder = Path(name)
        (folder / "orders.md").write_text("# Orders\n\nAda wants 12 packets of green tea.\n")
        model = ScriptedModel(
            calls(
                call("search_files", query="Ada"),
                call("fetch", url=f"http://127.0.0.1:{port}/tea"),
                call("calculate", expression="12 * 3.90"),
                call("now", time_zone="Europe/Berlin"),
            ),
            calls(
                call("write_file", path="bills/ada.md", text="12 packets, 46.80 euros\n"),
                call("run_program", program="wc", arguments=["-l", "orders.md"]),
            ),
            calls(
                call("read_file", path="../../etc/passwd"),
                call("fetch", url="http://169.254.169.254/latest/meta-data/"),
                call("calculate", expression="__import__('os').getcwd()"),
                call("run_program", program="sh", arguments=["-c", "env"]),
            ),
            says("The bill is written."),
        )
        async with local_runtime(clerk(folder, port), model=model) as client:
            turn = await client.start("clerk", "Write Ada's bill.", id="bill-1")
            await approve(client, turn.id)
            report = await turn.result()
        found, page, product, now = (result.content for result in report.steps[0].results)
        print(
            "Ada wants 12" in found,
            "Green tea costs 3.90" in page,
            product,
            '"Europe/Berlin"' in now,
        )
        print(*(result.content for step in report.steps[1:3] for result in step.results), sep="\n")
        print((folder / "bills" / "ada.md").read_text(), end="")


if __name__ == "__main__":
    asyncio.run(main())
