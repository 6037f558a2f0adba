"""The story of `docs/operating.md`."""

import asyncio
from pathlib import Path

from temporalio.envconfig import ClientConfigProfile, ClientConfigTLS

from perdure.worker import server_binary

from .conftest import Tell


async def temporal(address: str, *arguments: str) -> None:
    """Run Temporal's own command line."""
    binary = server_binary.find().path
    process = await asyncio.create_subprocess_exec(binary, *arguments, "--address", address, stdout=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0


async def test_namespace_is_prepared_and_watched_as_the_page_says(tell: Tell) -> None:
    """The commands on a namespace that has no attributes yet, and a profile as Temporal's own libraries read it."""
    async with tell("operating") as story:
        await temporal(
            story.terminal.environment["TEMPORAL_ADDRESS"], "operator", "namespace", "create", "--namespace", "agents", "--retention", "7d"
        )
        profile = await story.up_to("TLS and API keys for Temporal", "toml")

    loaded = ClientConfigProfile.load("production", config_source=profile.text, disable_env=True, config_file_strict=True)
    assert loaded == ClientConfigProfile(
        address="example.a2dd6.tmprl.cloud:7233",
        namespace="example.a2dd6",
        tls=ClientConfigTLS(client_cert=Path("/etc/temporal/tls.crt"), client_private_key=Path("/etc/temporal/tls.key")),
    )
