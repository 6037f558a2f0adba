"""MCP servers by other authors.

They are looked up next to this Python, on the path, and in the folder `PERDURE_NODE_MODULES`.
"""

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path

import pytest

from perdure import MCPServer
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import Run
from ...support.mcp.processes import accepts
from ...support.ports import free_port

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")


def program(name: str) -> str:
    """The path of a program; a test without it is skipped."""
    modules = Path(os.environ.get("PERDURE_NODE_MODULES", "node_modules"))
    places = [str(Path(sys.executable).parent), str(modules / ".bin"), os.environ.get("PATH", "")]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None or (shutil.which("node") is None and "time" not in name):
        pytest.skip(f"{name} is not installed")
    return found


@pytest.mark.slow
@pytest.mark.accepts("T15")
async def test_server_of_time(run: Run) -> None:
    """In Python, with the newest version of the protocol."""
    server = MCPServer.stdio(
        "time", [program("mcp-server-time"), "--local-timezone", "UTC"], trusted=True
    )
    asked = call(
        "time__convert_time",
        source_timezone="Europe/Berlin",
        time="12:00",
        target_timezone="Asia/Tokyo",
    )

    report = await run(
        ScriptedModel(
            calls(asked, call("time__get_current_time", timezone="Nowhere")), says("done")
        ),
        toolboxes=[server],
    )

    converted, nowhere = report.steps[0].results
    assert not converted.is_error
    assert "Asia/Tokyo" in converted.content
    assert nowhere.is_error


@pytest.mark.accepts("T15")
async def test_server_of_everything(run: Run) -> None:
    """In TypeScript: texts, structured values, images, links, progress."""
    server = MCPServer.stdio("all", [program("mcp-server-everything")])
    asked = [
        call("all__get-sum", a=2, b=3),
        call("all__get-tiny-image"),
        call("all__get-structured-content", location="New York"),
        call("all__get-resource-links", count=2),
        call("all__trigger-long-running-operation", duration=1, steps=4),
    ]

    report = await run(ScriptedModel(calls(*asked), says("done")), toolboxes=[server])

    total, image, weather, links, slow = report.steps[0].results
    assert [result.is_error for result in report.steps[0].results] == [False] * 5
    assert "5" in total.content
    assert "[image/png, " in image.content
    assert [media.media_type for media in image.media] == ["image/png"]
    assert weather.content.count("temperature") == 1
    assert links.content.count("[resource ") == 2
    assert "completed" in slow.content


@pytest.mark.accepts("T15")
async def test_server_of_everything_over_http(run: Run) -> None:
    """With sessions, as in versions before 2026."""
    port = free_port()
    command = (program("mcp-server-everything"), "streamableHttp")
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, "PORT": str(port)}, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        await accepts(port)
        server = MCPServer.http("all", f"http://127.0.0.1:{port}/mcp")
        report = await run(
            ScriptedModel(
                calls(call("all__get-sum", a=2, b=3), call("all__echo", message="hi")), says("done")
            ),
            toolboxes=[server],
        )
    finally:
        process.kill()
        await process.wait()

    assert ["5" in report.steps[0].results[0].content, report.steps[0].results[1].content] == [
        True,
        "Echo: hi",
    ]


@pytest.mark.accepts("T15")
async def test_server_of_files(run: Run, tmp_path: Path) -> None:
    """A refusal is an error result."""
    (tmp_path / "note.txt").write_text("call Ada")
    server = MCPServer.stdio(
        "files",
        [program("mcp-server-filesystem"), str(tmp_path)],
        allowed=["read_text_file", "write_file"],
        requires_approval=["write_file"],
    )
    asked = [
        call("files__read_text_file", path=str(tmp_path / "note.txt")),
        call("files__read_text_file", path="/etc/hostname"),
    ]

    report = await run(ScriptedModel(calls(*asked), says("done")), toolboxes=[server])

    read, refused = report.steps[0].results
    assert (read.content, read.is_error) == ("call Ada", False)
    assert refused.is_error
    assert "outside allowed directories" in refused.content
