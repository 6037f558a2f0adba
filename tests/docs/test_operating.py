"""Run the code blocks of `docs/operating.md`."""

import asyncio
from pathlib import Path

import pytest
from temporalio.envconfig import ClientConfigProfile, ClientConfigTLS

from perdure.worker.dev import server_binary

from .conftest import Tell


async def temporal(address: str, *arguments: str) -> None:
    """Run Temporal's own command line."""
    binary = server_binary.find().path
    process = await asyncio.create_subprocess_exec(
        binary, *arguments, "--address", address, stdout=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0


@pytest.mark.slow
async def test_namespace_is_prepared_and_watched_as_the_page_says(tell: Tell) -> None:
    """The commands work on a new namespace, and Temporal's own libraries read the profile."""
    async with tell("operating") as story:
        await temporal(
            story.terminal.environment["TEMPORAL_ADDRESS"],
            "operator",
            "namespace",
            "create",
            "--namespace",
            "agents",
            "--retention",
            "7d",
        )
        profile = await story.up_to("TLS and API keys for Temporal", "toml")

    loaded = ClientConfigProfile.load(
        "production", config_source=profile.text, disable_env=True, config_file_strict=True
    )
    assert loaded == ClientConfigProfile(
        address="example.a2dd6.tmprl.cloud:7233",
        namespace="example.a2dd6",
        tls=ClientConfigTLS(
            client_cert=Path("/etc/temporal/tls.crt"),
            client_private_key=Path("/etc/temporal/tls.key"),
        ),
    )
