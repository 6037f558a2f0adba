"""Tools that return images and files: what the model gets, in history and outside of it."""

from __future__ import annotations

import base64
import dataclasses
import json
import secrets
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.converter import DataConverter, ExternalStorage
from temporalio.worker import Replayer

from perdure import Agent, MCPServer, Media, ModelProfile, ToolMessage, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.clients import AgentClient
from perdure.clients.cli.common import Display
from perdure.clients.cli.running.following import follow
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.testing.stub_provider import StubProvider
from perdure.worker import AgentWorker
from perdure.workflows import AgentTurn
from perdure.workflows.single_input import OneInput

from ...conftest import Runtime
from ...support.loopback import VENDORS, Vendor
from ...support.storage import Folder

SMALL = base64.b64encode(b"\x89PNG" + secrets.token_bytes(5_000)).decode()
LARGE = base64.b64encode(b"\x89PNG" + secrets.token_bytes(3_000_000)).decode()
PNG = Media(media_type="image/png", data=SMALL)
PLACE = "[image/png, 5 KB]"


@tool(read_only=True)
def look(size: str = "small") -> list[str | Media]:
    """Look at the screen."""
    return ["The screen:", PNG if size == "small" else Media(media_type="image/png", data=LARGE)]


@tool(read_only=True)
async def photograph() -> Media:
    """Take a photograph."""
    return PNG


SEER = Agent(name="seer", model="vendor:m", tools=[look, photograph])


def contents(request: ModelRequest) -> list[str]:
    """The texts of the last results in a request."""
    message = request.messages[-1]
    assert isinstance(message, ToolMessage)
    return [result.content for result in message.results]


@pytest.mark.table(1)
@pytest.mark.accepts("M30")
@pytest.mark.parametrize("vendor", VENDORS)
async def test_model_gets_the_image_that_a_tool_returned(runtime: Runtime, vendor: Vendor) -> None:
    """By every API, its bytes in the second request; the report has them too."""
    with StubProvider(
        [{"calls": [{"name": "look", "arguments": {}}, {"name": "photograph", "arguments": {}}]},
         {"text": "a cat"}]
    ) as stub:  # fmt: skip
        worker = AgentWorker(SEER, providers={"vendor": vendor.make(stub.anthropic_url, None)})
        async with runtime(worker) as client:
            report = await client.run("seer", "What is there?")

    assert report.output == "a cat"
    assert [(result.content, result.media) for result in report.steps[0].results] == [
        (f"The screen:\n\n{PLACE}", (PNG,)),
        (PLACE, (PNG,)),
    ]
    assert SMALL not in json.dumps(stub.requests[0])
    assert json.dumps(stub.requests[1]).count(SMALL) == 2
    assert len(stub.requests) == 2


@pytest.mark.accepts("M33")
async def test_model_without_vision_gets_a_sentence_and_the_turn_goes_on(runtime: Runtime) -> None:
    """The same model is asked again, with the kind and the size in the place of the image."""
    model = ScriptedModel(calls(call("look")), "I cannot see it.")
    worker = AgentWorker(
        SEER, providers={"vendor": model}, profiles={"vendor:*": ModelProfile(media={})}
    )
    async with runtime(worker) as client:
        report = await client.run("seer", "What is there?")

    assert report.output == "I cannot see it."
    assert report.steps[1].tried == ()
    assert contents(model.requests[1]) == [
        "The screen:\n\n[image/png, 5 KB: this model takes no image/png]"
    ]
    assert report.steps[0].results[0].media == (PNG,)


@pytest.mark.slow
@pytest.mark.accepts("M34")
async def test_request_that_is_rejected_with_an_image_is_made_again_without(
    runtime: Runtime,
) -> None:
    """A broken image, or a model whose limits are unknown, does not end the turn."""
    rejected = errors.LLMInvalidRequestError("m: could not process image (status 400)")
    model = ScriptedModel(calls(call("look")), fails(rejected), "I cannot see it.")
    async with runtime(AgentWorker(SEER, providers={"vendor": model})) as client:
        report = await client.run("seer", "What is there?")

    assert report.output == "I cannot see it."
    assert [len(message.media) for message in _results(model.requests)] == [1, 0]
    assert contents(model.requests[2]) == [
        "The screen:\n\n[image/png, 5 KB: the provider of this model rejected the request with it]"
    ]
    assert report.model_calls == 2


def _results(requests: list[ModelRequest]) -> list[ToolMessage]:
    return [
        message
        for request in requests
        for message in request.messages
        if isinstance(message, ToolMessage)
    ]


@pytest.mark.accepts("M34")
async def test_request_that_is_rejected_without_an_image_too_ends_the_turn(
    runtime: Runtime,
) -> None:
    """With the provider's error."""
    rejected = errors.LLMInvalidRequestError("m: no such model (status 404)")
    model = ScriptedModel(calls(call("look")), fails(rejected), fails(rejected))
    async with runtime(AgentWorker(SEER, providers={"vendor": model})) as client:
        with pytest.raises(errors.LLMInvalidRequestError, match="no such model"):
            await client.run("seer", "What is there?")

    assert model.call_count == 3


@pytest.mark.slow
@pytest.mark.accepts("M36")
async def test_large_image_without_external_storage_is_an_error_that_the_model_reads(
    runtime: Runtime,
) -> None:
    """The turn goes on, and the model may ask for a smaller one."""
    model = ScriptedModel(calls(call("look", size="large")), calls(call("look")), "a cat")
    async with runtime(AgentWorker(SEER, providers={"vendor": model})) as client:
        report = await client.run("seer", "What is there?")

    (large,), (small,) = (step.results for step in report.steps[:2])
    assert (large.is_error, large.media, small.media) == (True, (), (PNG,))
    assert large.content.startswith(
        "look: TooLargeError: the tool ran, but its images and files are 4.0 MB in base64, more"
        " than the 1.3 MB that a result may have here; ask it for smaller ones"
    )


@pytest.mark.slow
@pytest.mark.accepts("M36")
async def test_large_image_of_a_tool_goes_through_external_storage(
    perdure_server: str, tmp_path: Path
) -> None:
    """The next request holds it whole; history holds a reference, and replays."""
    converter = dataclasses.replace(
        DataConverter.default, external_storage=ExternalStorage(drivers=[Folder(tmp_path)])
    )
    temporal = await Client.connect(perdure_server, data_converter=converter)
    model = ScriptedModel(calls(call("look", size="large")), "a cat")
    worker = AgentWorker(
        SEER, task_queue=f"test-{secrets.token_hex(6)}", providers={"vendor": model}
    )
    client = AgentClient.from_temporal(temporal, task_queue=worker.task_queue)
    async with worker.running(temporal):
        turn = await client.start("seer", "What is there?")
        report = await turn.result()
    history = await temporal.get_workflow_handle(turn.id).fetch_history()
    await Replayer(
        workflows=[AgentTurn], interceptors=[OneInput()], data_converter=converter
    ).replay_workflow(history)

    (seen,) = _results(model.requests)
    assert report.output == "a cat"
    assert [media.data for media in seen.media] == [LARGE]
    assert report.messages[2] == seen
    assert sum(event.ByteSize() for event in history.events) < 20_000
    assert len(list(tmp_path.iterdir())) == 1  # noqa: ASYNC240 - one file


@pytest.mark.accepts("M38")
async def test_events_and_json_of_the_command_line_hold_no_data(
    runtime: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kind and the size, in the text of the result."""
    model = ScriptedModel(calls(call("look")), says("a cat"))
    async with runtime(AgentWorker(SEER, providers={"vendor": model})) as client:
        turn = await client.start("seer", "What is there?")
        await turn.result()
        events = [event async for event in turn.events()]
        await follow(client, turn, Display(as_json=True))
        lines = capsys.readouterr().out
        await follow(client, turn, Display(full=True))
        printed = capsys.readouterr().out

    whole = [event.to_json() for event in events]
    public = [event.public(include=["results"]) for event in events]
    returned = next(event for event in whole if event["kind"] == "tool_returned")
    output: Any = returned["fact"]
    told = json.loads(lines.splitlines()[-1])["report"]
    for text in (json.dumps(whole), json.dumps(public), lines, printed):
        assert SMALL[:100] not in text
        assert PLACE in text
    assert output["output"]["media"] == [
        {"type": "media", "media_type": "image/png", "data": None, "url": None}
    ]
    assert told["steps"][0]["results"][0]["media"][0]["data"] is None


@pytest.mark.accepts("M32")
async def test_images_and_pdf_of_an_mcp_server_reach_the_model(runtime: Runtime) -> None:
    """Sound, and what is not valid, is a sentence as before."""
    pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")
    from mcp_types import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent

    from perdure.testing import FakeMCPServer

    def blob(kind: str) -> EmbeddedResource:
        contents = BlobResourceContents(uri="file:///a", mime_type=kind, blob=SMALL)
        return EmbeddedResource(type="resource", resource=contents)

    def screenshot() -> list[Any]:
        """The screen."""
        return [
            "see",
            ImageContent(type="image", mime_type="image/png", data=SMALL),
            blob("application/pdf"),
            blob("application/zip"),
            AudioContent(type="audio", mime_type="audio/wav", data=SMALL),
            ImageContent(type="image", mime_type="image/png", data="no base64"),
        ]

    server = MCPServer.stdio("screen", ["a-program-that-is-not-there"])
    agent = Agent(name="seer", model="scripted:m", toolboxes=[server])
    model = ScriptedModel(calls(call("screen__screenshot")), "a cat")
    async with runtime(agent, model=model, mcp={"screen": FakeMCPServer(screenshot)}) as client:
        await client.run("seer", "What is there?")

    (seen,) = _results(model.requests)
    assert seen.media == (PNG, Media(media_type="application/pdf", data=SMALL))
    *told, structured = seen.results[0].content.split("\n\n")
    assert told == [
        "see",
        PLACE,
        "[resource file:///a]\n[application/pdf, 5 KB]",
        "[resource file:///a left out: application/zip, 5 KB]",
        "[audio left out: audio/wav, 5 KB]",
        "[image left out: image/png, 6 bytes]",
    ]
    assert structured.startswith('{"result":["see",{"type":"image","data":"[image/png, 5 KB]",')
