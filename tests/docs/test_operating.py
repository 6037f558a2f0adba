"""Run the code blocks of `docs/operating.md`."""

import asyncio
import base64
import importlib
import os
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.protobuf import json_format
from temporalio.api.common.v1 import Payloads
from temporalio.envconfig import ClientConfigProfile, ClientConfigTLS

from perdure import Agent
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel
from perdure.worker.dev import server_binary

from .conftest import Tell

KEYS = [f"{name}:{base64.b64encode(os.urandom(32)).decode()}" for name in ("k1", "k2")]


async def temporal(address: str, *arguments: str) -> None:
    """Run Temporal's own command line."""
    binary = server_binary.find().path
    process = await asyncio.create_subprocess_exec(
        binary, *arguments, "--address", address, stdout=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0


@pytest.mark.accepts("P15", "P16")
@pytest.mark.slow
async def test_namespace_is_prepared_watched_and_encrypted_as_the_page_says(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands work on a new namespace, the codec before and after a key rotation, the codec
    server for the web UI only, and Temporal's own libraries read the profile.
    """
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
        await story.through("Read encrypted turns in the web UI")
        monkeypatch.setenv(
            "PERDURE_DATA_CONVERTER", story.terminal.environment["PERDURE_DATA_CONVERTER"]
        )
        monkeypatch.setenv("ENCRYPTION_KEYS", KEYS[0])
        client = await story.works(Agent(name="clerk", model="main"), ScriptedModel("30 days"))
        await client.run("clerk", "How long is it?", id="locked")
        history = await client.temporal.get_workflow_handle("locked").fetch_history()
        monkeypatch.setenv("ENCRYPTION_KEYS", f"{KEYS[1]},{KEYS[0]}")
        later = await AgentClient.connect(story.terminal.environment["TEMPORAL_ADDRESS"])
        report = await later.turn("locked").result()
        started = history.events[0].workflow_execution_started_event_attributes.input
        answers = await asyncio.to_thread(served, importlib.import_module("codec_server"), started)
        profile = await story.up_to("TLS and API keys for Temporal", "toml")

    assert report.output == "30 days"
    assert [
        event.event_id for event in history.events if b"How long" in event.SerializeToString()
    ] == []
    assert [answer.status_code for answer in answers] == [403, 200]
    assert b"How long is it?" in json_format.Parse(answers[1].content, Payloads()).payloads[0].data
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


def served(module: Any, payloads: Payloads) -> list[httpx.Response]:
    """The codec server's response to a page of another origin, and to the web UI."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), module.CodecServer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address, content = (
            f"http://127.0.0.1:{server.server_port}/decode",
            json_format.MessageToJson(payloads),
        )
        return [
            httpx.post(address, content=content, headers={"origin": origin})
            for origin in ("http://evil.example", module.UI)
        ]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
