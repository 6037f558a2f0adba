"""The image of deploy/ is built, and its worker runs a turn, reports its health and drains."""

import json
import os
import re
import secrets
from pathlib import Path

import pytest

from perdure.clients import AgentClient

from ..support.e2e import images
from ..support.e2e.command_line import status_of, wait_until
from ..support.ports import free_port

ASKED = "PERDURE_CHECK_IMAGE"

AGENTS = """
from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

@tool
def add(a: int, b: int) -> str:
    \"\"\"Add.\"\"\"
    return str(a + b)

model = ScriptedModel(calls(call("add", a=1, b=2)), says("It is 3."))
app = AgentWorker([Agent(name="adder", model="mine:m", tools=[add])], providers={"mine": model})
"""


def health_check() -> list[str]:
    """The command of the image's health check."""
    text = images.DOCKERFILE.read_text(encoding="utf-8")
    [line] = re.findall(r"HEALTHCHECK.*\\\n\s+CMD (.*)$", text, re.MULTILINE)
    command: list[str] = json.loads(line)
    return command


def is_ready(port: int) -> bool:
    try:
        return status_of(f"http://127.0.0.1:{port}/readyz") == 200
    except OSError:
        return False


def module(folder: Path) -> Path:
    """A folder with the agents, which the user of the image can read."""
    folder.chmod(0o755)
    (folder / "adding.py").write_text(AGENTS, encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.accepts("O36")
async def test_image_is_built_and_runs_turns(perdure_server: str, tmp_path: Path) -> None:
    """As a user without rights, with the model and the tools of a module in /app."""
    if not os.environ.get(ASKED):
        pytest.skip("an image takes minutes to build; `make image-check` does it")
    try:
        engine = images.engine()
    except images.NoEngineError as error:
        pytest.skip(f"the image is not built and not started: {error}")
    images.build(engine)
    queue, port = f"image-{secrets.token_hex(4)}", free_port()
    settings = {
        "TEMPORAL_ADDRESS": perdure_server,
        "PERDURE_TASK_QUEUE": queue,
        "PERDURE_HEALTH_PORT": str(port),
        "PERDURE_GRACE_S": "5",
        "PYTHONPATH": "/app",
    }
    with (
        images.container(engine, module(tmp_path), settings) as container,
        container.worker("adding:app") as process,
    ):
        wait_until(lambda: is_ready(port) or process.poll() is not None, "the worker is ready")
        assert process.poll() is None, container.said
        client = await AgentClient.connect(perdure_server, task_queue=queue)
        report = await client.run("adder", "Add.")
        user = container.run("id", "-u").strip()
        container.run(*health_check())
        code = images.terminate(process)

    assert report.output == "It is 3."
    assert user == "10001"
    assert code == 0, container.said
