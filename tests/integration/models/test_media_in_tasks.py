"""Images and files in a task: invalid ones, and large ones that are stored outside of history."""

from __future__ import annotations

import base64
import dataclasses
import secrets
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.converter import (
    DataConverter,
    ExternalStorage,
)
from temporalio.worker import Replayer

from perdure import Agent, Media, Task, Text, UserMessage, errors, limits, tool
from perdure.clients import AgentClient
from perdure.testing import ScriptedModel, call, calls
from perdure.worker import AgentWorker
from perdure.workflows import AgentTurn
from perdure.workflows.single_input import OneInput

from ...conftest import Runtime
from ...support.storage import Folder

LARGE = base64.b64encode(secrets.token_bytes(3_000_000)).decode()


def picture(data: str) -> Task:
    return Task(content=(Text(text="What is it?"), Media(media_type="image/png", data=data)))


@tool(read_only=True)
def look() -> str:
    """Look somewhere."""
    return "seen"


@pytest.mark.slow
async def test_large_image_goes_by_its_digest_through_external_storage(
    perdure_server: str, tmp_path: Path
) -> None:
    """Every request has the complete image, and so does the report; history has a reference, and
    replays.
    """
    converter = dataclasses.replace(
        DataConverter.default, external_storage=ExternalStorage(drivers=[Folder(tmp_path)])
    )
    temporal = await Client.connect(perdure_server, data_converter=converter)
    model = ScriptedModel(calls(call("look")), "a cat")
    worker = AgentWorker(
        Agent(name="seer", model="scripted:m", tools=[look]),
        task_queue=f"test-{secrets.token_hex(6)}",
        providers={"scripted": model},
    )
    client = AgentClient.from_temporal(temporal, task_queue=worker.task_queue)
    async with worker.running(temporal):
        turn = await client.start("seer", picture(LARGE))
        report = await turn.result()
    history = await temporal.get_workflow_handle(turn.id).fetch_history()
    await Replayer(
        workflows=[AgentTurn], interceptors=[OneInput()], data_converter=converter
    ).replay_workflow(history)

    seen = UserMessage(parts=(Text(text="What is it?"), Media(media_type="image/png", data=LARGE)))
    assert report.output == "a cat"
    assert (
        report.messages[0] == seen == model.requests[0].messages[0] == model.requests[1].messages[0]
    )
    assert sum(event.ByteSize() for event in history.events) < 20_000
    assert len(list(tmp_path.iterdir())) == 1  # noqa: ASYNC240 - one file


async def test_large_image_or_history_without_external_storage_is_refused_with_what_helps(
    runtime: Runtime,
) -> None:
    """By the client, before anything is started; for a history, with its size."""
    history = [UserMessage(parts=(Text(text="x" * 2_000_000),))]
    async with runtime(Agent(name="seer", model="scripted:m"), model=ScriptedModel()) as client:
        with pytest.raises(
            errors.TooLargeError,
            match="give images and files as addresses, or Temporal's client an external storage",
        ):
            await client.start("seer", picture(LARGE))
        with pytest.raises(
            errors.TooLargeError,
            match=r"20\d{5} bytes of that are history: give fewer of its messages",
        ):
            await client.start("seer", "And now?", history=history)


async def test_images_that_are_too_large_for_any_storage_are_refused(runtime: Runtime) -> None:
    """By the client, too."""
    async with runtime(Agent(name="seer", model="scripted:m"), model=ScriptedModel()) as client:
        with pytest.raises(
            errors.TooLargeError, match="the images and files of the task are"
        ) as refused:
            await client.start("seer", picture("x" * (limits.MEDIA_BYTES + 1)))

    assert refused.value.context["limit"] == limits.MEDIA_BYTES


async def test_image_that_a_vendor_does_not_take_is_refused_before_it_is_sent(
    runtime: Runtime,
) -> None:
    """By provider: Anthropic's API accepts no TIFF, and limits the size of a picture."""
    model = ScriptedModel()
    agent = Agent(name="seer", model="anthropic:claude-sonnet-4-5")
    tiff = Task(content=(Media(media_type="image/tiff", data="aGk="),))
    async with runtime(AgentWorker(agent, providers={"anthropic": model})) as client:
        with pytest.raises(
            errors.LLMInvalidRequestError,
            match="anthropic:claude-sonnet-4-5: it takes no image/tiff",
        ):
            await client.run("seer", tiff)

    assert model.call_count == 0
