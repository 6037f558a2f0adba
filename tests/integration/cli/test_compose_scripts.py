"""The command of deploy/compose.yaml that prepares the namespace, run on the session's server as in
its container.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

from perdure.temporal.connect import connect

yaml: Any = pytest.importorskip("yaml", reason="PyYAML is in the extras dev and deploy")

COMPOSE = Path(__file__).parents[3] / "deploy/compose.yaml"


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a container's command."""
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
async def test_namespace_is_created_once_and_then_left_as_it_is(perdure_server: str) -> None:
    """The service runs at every `up`, so the second time it must change nothing and succeed."""
    service = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]["temporal-namespace"]
    command = [*service["entrypoint"], *service["command"]]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {
        "PATH": path,
        "TEMPORAL_ADDRESS": perdure_server,
        "TEMPORAL_NAMESPACE": "composed",
    }
    first, second = [await asyncio.to_thread(run, command, environment) for _ in range(2)]
    client = await connect(perdure_server)
    described = await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace="composed")
    )

    assert (first.returncode, second.returncode) == (0, 0), (first.stderr, second.stderr)
    assert "composed was created" in first.stdout
    assert "PerdureAgent (Keyword) was registered" in first.stdout
    assert "was" not in second.stdout
    assert described.config.workflow_execution_retention_ttl.ToTimedelta().days == 7
