"""The worker of the librarian: its agent, and the provider of its model."""

from __future__ import annotations

import os
from pathlib import Path

from perdure import errors
from perdure.activities.provider import Provider
from perdure.activities.providers import OpenAIChat, OpenAIResponses
from perdure.activities.toolboxes.folder import folder_toolbox
from perdure.agents.agent import Agent
from perdure.worker.agent_worker import AgentWorker
from perdure.worker.librarian.journal import Journal, journaled

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
    return journaled(worker, agent, Journal(Path(journal))) if journal else worker


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
