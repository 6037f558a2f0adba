"""Turns that wait for events by key, as their task says."""

from __future__ import annotations

import json
import secrets
from types import SimpleNamespace
from typing import Any

from perdure import Agent
from perdure.clients import AgentClient, Turn
from perdure.events import WaitBegan
from perdure.testing import FunctionModel, ModelRequest, Reply, call, calls, says
from perdure.toolboxes import waiting
from perdure.turn.event_keys import workflow_id
from perdure.values.messages import ToolMessage, UserMessage

from .spending import look, until


def waiter(**fields: Any) -> Agent:
    """An agent that waits for events."""
    given = {"name": "waiter", "model": "scripted:waiter", "tools": [look]}
    return Agent(**{**given, "toolboxes": [waiting()], "max_iterations": "unlimited", **fields})


def task(*answers: list[dict[str, Any]]) -> str:
    """A task whose turn waits: the calls of each of its answers, as arguments of `wait_for`."""
    return json.dumps(answers)


def key_of_test() -> str:
    """A key that no other test has."""
    return f"build-{secrets.token_hex(4)}"


def waits_as_told(request: ModelRequest) -> Reply:
    """Wait as the task says, and answer with what the calls returned."""
    texts = [message.text for message in request.messages if isinstance(message, UserMessage)]
    answers = json.loads(next(text for text in texts if text.startswith("[")))
    results = [message for message in request.messages if isinstance(message, ToolMessage)]
    if len(results) == len(answers):
        return says("\n".join(each.content for message in results for each in message.results))
    common = {"event": "built", "note": "the build"}
    return calls(*(call("wait_for", **common | given) for given in answers[len(results)]))


MODEL = FunctionModel(waits_as_told)


async def waiting_turn(client: AgentClient, *keys: str, **fields: Any) -> Turn[Any]:
    """Start a turn that waits for an event of each of these keys, one after the other."""
    told = task(*([{"key": key}] for key in keys))
    turn = await client.start("waiter", told, **fields)
    await until(turn, WaitBegan)
    return turn


def keeper(client: AgentClient, key: str, name: str = "built") -> Any:
    """The workflow that keeps the events of a key."""
    return client.temporal.get_workflow_handle(workflow_id(name, key))


def timed(client: AgentClient, key: str) -> Any:
    """The same workflow, as `skip_time` takes it."""

    async def first_run() -> str:
        return str((await keeper(client, key).describe()).run_id)

    return SimpleNamespace(id=keeper(client, key).id, first_run=first_run)
