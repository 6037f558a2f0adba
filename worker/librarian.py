"""The agent of `perdure ask` and the demo, which answers from the documents of a folder.

As it runs in a process of its own, it is configured by the environment: `PERDURE_ASK_FOLDER`,
`PERDURE_ASK_MODEL`, `PERDURE_ASK_BASE_URL`, and for the demo `PERDURE_ASK_JOURNAL`, a file to which
every model call and tool call writes its activity's id before it begins.
"""

from __future__ import annotations

import asyncio
import functools
import os
from dataclasses import replace
from pathlib import Path

from temporalio import activity

from perdure import errors
from perdure.activities.provider import Heard, ModelRequest, Provider, listen
from perdure.activities.providers import OpenAIChat, OpenAIResponses, defaults
from perdure.activities.toolboxes.folder import folder_toolbox
from perdure.agents.agent import Agent
from perdure.agents.tools import Tool, Toolbox
from perdure.values.answers import ModelAnswer
from perdure.worker.agent_worker import AgentWorker

OFFLINE = "offline:librarian"
INSTRUCTIONS = (
    "You answer questions from the documents in one folder. Search before you answer, read the best"
    " passages, and answer in your own words in at most two paragraphs. End with the source as"
    " path:line. Where the documents are silent, say so; never answer from memory."
)


def make() -> AgentWorker:
    """Return a worker for the folder and the model in the environment."""
    folder = Path(os.environ.get("PERDURE_ASK_FOLDER", "docs"))
    if not folder.is_dir():
        raise errors.ConfigurationError(
            f"{folder} is not a folder; PERDURE_ASK_FOLDER says where the documents are"
        )
    model = os.environ.get("PERDURE_ASK_MODEL", OFFLINE)
    agent = Agent(
        name="librarian",
        description="Answers from the documents of a folder and names the source",
        instructions=INSTRUCTIONS,
        model=model,
        toolboxes=[folder_toolbox(folder)],
    )
    worker = AgentWorker(agent, providers=_providers(model))
    journal = os.environ.get("PERDURE_ASK_JOURNAL")
    return _journaled(worker, agent, Journal(Path(journal))) if journal else worker


def _providers(model: str) -> dict[str, Provider]:
    """Return the provider at the configured address.

    Any other provider would send the documents to its own vendor.
    """
    base_url, name = os.environ.get("PERDURE_ASK_BASE_URL"), model.partition(":")[0]
    if not base_url:
        return {}
    if name not in ("openai", "openai-responses"):
        raise errors.ConfigurationError(
            f"a base URL goes with a model of openai or openai-responses, not with {model!r}"
        )
    key = "OPENAI_API_KEY" if os.environ.get("OPENAI_API_KEY") else None
    return {
        name: (OpenAIChat if name == "openai" else OpenAIResponses)(
            base_url=base_url, api_key_env=key
        )
    }


class Journal:
    """A file outside of Temporal that records what was really done, one line each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, line: str) -> None:
        """Append a line and flush it to disk."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())


class _JournaledModel:
    """A provider that writes a line and waits before each call, so that it can be killed."""

    def __init__(self, inner: Provider, journal: Journal) -> None:
        self._inner = inner
        self._journal = journal

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        await self._begin()
        return await self._inner.complete(request)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        await self._begin()
        return await listen(self._inner, request, heard)

    async def close(self) -> None:
        await self._inner.close()

    async def _begin(self) -> None:
        self._journal.write(activity.info().activity_id)
        await asyncio.sleep(1.0)


def _journaled(worker: AgentWorker, agent: Agent, journal: Journal) -> AgentWorker:
    providers: dict[str, Provider] = {**defaults(), **worker.providers}
    boxes = [
        replace(box, tools=[_with_journal(item, journal) for item in box.tools])
        for box in agent.toolboxes
        if isinstance(box, Toolbox)
    ]
    return replace(
        worker,
        agents=replace(agent, toolboxes=boxes),
        providers={
            name: _JournaledModel(provider, journal) for name, provider in providers.items()
        },
    )


def _with_journal(item: Tool, journal: Journal) -> Tool:
    @functools.wraps(item.function)
    def function(**arguments: object) -> object:
        journal.write(activity.info().activity_id)
        return item.function(**arguments)

    return Tool(function, name=item.name, timeout=item.timeout, read_only=item.read_only)
