"""What the model asks for in a storm: each turn has a script of its own, drawn by its task."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.testing.stub_provider import StubCall, StubProvider, StubReply

SEED = os.environ.get("PERDURE_WAITING_SEED", "0")
KINDS = ("time", "event", "twins", "question", "deploy", "order", "build")
TWO = 2


@dataclass(frozen=True)
class Call:
    """A call of the script: its kind, and its name, which no other call has."""

    kind: str
    what: str

    @property
    def requested(self) -> StubCall:
        """The call as the model makes it."""
        match self.kind:
            case "time":
                return {"name": "wait", "arguments": {"seconds": 1, "note": self.what}}
            case "event" | "twins":
                return {"name": "wait_for", "arguments": {"event": self.what, "note": self.what}}
            case "question":
                return {"name": "ask", "arguments": {"question": self.what}}
            case _:
                return {"name": self.kind, "arguments": {"what": self.what}}


def luck_of(*what: object) -> random.Random:
    """The choices of one part of the test."""
    return random.Random(" ".join(map(str, (SEED, *what))))


def script(task: str) -> list[list[Call]]:
    """The calls of a turn, by step. Twins are two calls that wait for the same event."""
    luck = luck_of("script", task)
    steps = []
    for step in range(luck.randint(2, 4)):
        calls: list[Call] = []
        for number in range(luck.randint(1, 3)):
            call = Call(luck.choice(KINDS), f"{task}.{step}.{number}")
            calls += [call] * (TWO if call.kind == "twins" else 1)
        steps.append(calls)
    return steps


class Watcher(StubProvider):
    """Makes the calls of the script of each task."""

    def __init__(self) -> None:
        super().__init__([])

    def reply(self, body: Mapping[str, Any]) -> StubReply:
        """The calls of the next step; a text after the last one."""
        task, since = list(parts(body))[-1]
        done = sum(message["role"] == "assistant" for message in since)
        steps = script(task)
        if done < len(steps):
            return {"calls": [call.requested for call in steps[done]]}
        return {"text": f"{task} is done"}


def parts(body: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each task in a request, with the messages after it."""
    task, since = "", list[dict[str, Any]]()
    for message in body["messages"]:
        if message["role"] == "user" and message["content"].startswith("go "):
            if task:
                yield task, since
            task, since = message["content"].removeprefix("go "), []
        else:
            since.append(message)
    yield task, since
