"""A storm, and what is recorded of it outside of the product."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from perdure.clients import Turn

from ..e2e.stories import Story
from .scripts import Call
from .senders import ByClient, ByGateway, Kind, Sending, Way
from .waiting_app import Jobs


@dataclass
class Storm:
    """What is killed, and what is recorded outside of it.

    Attributes:
        urls: The addresses of the gateways that run now.
        sendings: All that was sent.
        turns: The turns by their tasks.
        polled: The results of jobs that were looked up, by the names of the calls.
        answered: The questions that somebody has answered, by the names of the calls.
        over: The tasks whose turns are over.
    """

    story: Story
    jobs: Jobs
    urls: list[str]
    sendings: list[Sending] = field(default_factory=list)
    turns: dict[str, Turn] = field(default_factory=dict)
    polled: dict[str, str] = field(default_factory=dict)
    is_wrecked: asyncio.Event = field(default_factory=asyncio.Event)
    answered: set[str] = field(default_factory=set)
    over: set[str] = field(default_factory=set)

    @property
    def records(self) -> int:
        """How much has happened so far."""
        sent = sum(len(sending.ends) for sending in self.sendings)
        return len(self.story.stub.requests) + len(self.jobs.asked()) + sent

    def way(self, luck: random.Random) -> Way:
        """How somebody sends."""
        if luck.random() < 0.5:
            return ByClient(self.story.client)
        return ByGateway(self.urls, luck)

    def sending(self, kind: Kind, task: str, call: Call, content: str, id: str = "") -> Sending:
        """The record of what somebody is going to send."""
        made = Sending(kind, self.turns[task].id, call.what, content, id)
        self.sendings.append(made)
        return made
