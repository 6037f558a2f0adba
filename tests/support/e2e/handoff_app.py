"""Agents of a crash test: a clerk that hands over to a cashier, whose factory kills its first
worker.

Their worker is a process of its own: `python -m perdure worker tests.support.e2e.handoff_app:make`.
"""

import os
from pathlib import Path

from perdure import Agent, Registry, TurnInfo
from perdure.activities.providers import OpenAIChat
from perdure.worker import AgentWorker

from .app import AGENT, charge, fetch

INSTRUCTIONS = "Do as told."


def cashier(info: TurnInfo) -> Agent:
    """Takes money."""
    calls = Path(os.environ["E2E_JOURNAL"]).with_suffix(".factory")
    is_first = not calls.exists()
    with calls.open("a", encoding="utf-8") as journal:
        journal.write(f"{info.agent}\n")
    if is_first:
        os._exit(7)
    return Agent(
        name="cashier", model="stub:cashier", instructions=INSTRUCTIONS, tools=[charge, fetch]
    )


def make() -> AgentWorker:
    """The worker that the environment describes."""
    provider = OpenAIChat(base_url=os.environ["E2E_PROVIDER"], api_key_env=None, name="stub")
    clerk = Agent(name=AGENT, model="stub:clerk", instructions=INSTRUCTIONS, handoffs=["cashier"])
    return AgentWorker(Registry([clerk, cashier]), providers={"stub": provider})
