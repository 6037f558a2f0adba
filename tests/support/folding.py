"""Simulated turns, and what must be true of their transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import HealthCheck, settings

from perdure.agents.definitions import AgentDefinition, ToolDefinition
from perdure.values.messages import AssistantMessage, Message, ToolMessage

from .thorough import examples


def offered(name: str, *, is_idempotent: bool) -> ToolDefinition:
    return ToolDefinition(
        name=name,
        description="",
        parameters={},
        activity=name,
        is_idempotent=is_idempotent,
        timeout_s=60,
        schema_digest="",
    )


AGENT = AgentDefinition(
    name="any",
    instructions="",
    model="any:model",
    tools=(offered("write", is_idempotent=False), offered("look", is_idempotent=True)),
    max_iterations=5,
)


def is_paired(messages: Sequence[Message]) -> bool:
    """Every call has one result, in the tool message right after it, in call order; there are no
    other results.
    """
    for before, message in pairwise((None, *messages, None)):
        calls = before.calls if isinstance(before, AssistantMessage) else ()
        given = message.results if isinstance(message, ToolMessage) else ()
        if [call.id for call in calls] != [result.call_id for result in given] or (
            isinstance(message, ToolMessage) and not calls
        ):
            return False
    return True


every_turn = settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
