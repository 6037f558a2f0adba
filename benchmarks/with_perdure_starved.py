"""The worker of `benchmarks.starvation`: two model calls over HTTP, and a tool call."""

from __future__ import annotations

import os

from perdure import Agent, tool
from perdure.activities.providers.openai_chat import OpenAIChat
from perdure.worker import AgentWorker

PROVIDER = "BENCH_PROVIDER"
"""The variable with the address of the provider."""


@tool
def charge() -> str:
    """Do what may be done once."""
    return "charged"


def make() -> AgentWorker:
    """The worker."""
    provider = OpenAIChat(base_url=os.environ[PROVIDER], api_key_env=None, name="stub")
    return AgentWorker(
        Agent(name="starved", model="stub:model", tools=[charge]), providers={"stub": provider}
    )
