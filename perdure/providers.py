"""Providers of models, and what it takes to write a provider.

`AgentWorker(providers={"name": OpenAIChat(base_url=…)})` adds a provider to those that every worker
has. `connect("openai:gpt-5-mini")` asks a model without Temporal.
"""

from perdure.activities.provider import Heard, ModelRequest, Provider
from perdure.activities.providers import (
    Anthropic,
    Model,
    OpenAIChat,
    OpenAIResponses,
    PydanticAI,
    connect,
    defaults,
)
from perdure.values.answers import ModelAnswer
from perdure.values.reports import StopReason

__all__ = [
    "Anthropic",
    "Heard",
    "Model",
    "ModelAnswer",
    "ModelRequest",
    "OpenAIChat",
    "OpenAIResponses",
    "Provider",
    "PydanticAI",
    "StopReason",
    "connect",
    "defaults",
]
