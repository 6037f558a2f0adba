"""Model providers: one module per vendor API.

httpx is imported with the first request, not with this package.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta

from perdure import limits, validation
from perdure.activities.provider import Models, Provider
from perdure.activities.providers.anthropic import ANTHROPIC_URL, Anthropic
from perdure.activities.providers.direct import Model
from perdure.activities.providers.librarian import Librarian
from perdure.activities.providers.openai_chat import OpenAIChat
from perdure.activities.providers.openai_responses import OpenAIResponses
from perdure.activities.providers.pydantic_ai import PydanticAI

__all__ = [
    "Anthropic",
    "Model",
    "OpenAIChat",
    "OpenAIResponses",
    "PydanticAI",
    "connect",
    "defaults",
]

OPENAI_URL = "https://api.openai.com/v1"
OLLAMA_HOST = "127.0.0.1:11434"

_PORT = re.compile(r":\d+$")


def defaults() -> dict[str, Provider]:
    """The built-in providers of every worker, by the prefix of a model name (`provider:model`).

    Keys and addresses come from the environment: `anthropic` reads ANTHROPIC_API_KEY and
    ANTHROPIC_BASE_URL, `openai` and `openai-responses` read OPENAI_API_KEY and OPENAI_BASE_URL,
    `ollama` reads OLLAMA_HOST, including Ollama's own forms (`127.0.0.1:11434`). `offline` needs
    neither a key nor a network.
    """
    return {
        "anthropic": Anthropic(base_url=os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL),
        "openai": OpenAIChat(base_url=os.environ.get("OPENAI_BASE_URL") or OPENAI_URL),
        "openai-responses": OpenAIResponses(
            base_url=os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        ),
        "ollama": OpenAIChat(
            base_url=ollama_url(os.environ.get("OLLAMA_HOST") or OLLAMA_HOST),
            api_key_env=None,
            name="ollama",
        ),
        "offline": Librarian(),
    }


def connect(
    model: str,
    *,
    providers: Mapping[str, Provider] | None = None,
    timeout: timedelta = limits.MODEL_CALL,
) -> Model:
    """Return a model that can be called without Temporal, with its key from the environment.

    Args:
        model: `provider:model`.
        providers: Additional providers by prefix, merged over the providers of `defaults`.
        timeout: The time limit of each answer.

    Raises:
        ConfigurationError: The provider is unknown, or the timeout is not valid.
    """
    validation.check("the model", {"timeout": timeout}, {"timeout": validation.Time})
    provider, name = Models({**defaults(), **(providers or {})}).find(model)
    return Model(model, provider, name, timeout=timeout)


def ollama_url(host: str) -> str:
    """Return the base URL for a value of OLLAMA_HOST.

    The scheme, port and path are optional, and the value may be a listening address (`0.0.0.0`).
    """
    scheme, _, authority = host.strip().rpartition("://")
    address, _, path = authority.partition("/")
    if not _PORT.search(address) and not scheme:
        address += ":11434"
    if address.startswith((":", "0.0.0.0:")):
        address = f"127.0.0.1:{address.rpartition(':')[2]}"
    return f"{scheme or 'http'}://{address}/{path.rstrip('/') or 'v1'}"
