"""The models that pydantic-ai knows, by its adapters.

Gemini, Bedrock, Groq, Mistral, Cohere and others. Needs the extra `pydantic-ai`.

Its direct requests are used, and nothing of its agents. The vendor's library is told not to try
again where it can be told: the turn decides that. What a request and an answer become is said in
`pydantic_ai_messages`, what an exception means in `pydantic_ai_errors`. Both stay unloaded until
the first request, and are loaded in a thread: the library takes a second, and some vendors' take
more.
"""

from __future__ import annotations

import asyncio
import contextlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from perdure import errors
from perdure.activities.provider import Heard, ModelRequest
from perdure.values.answers import ModelAnswer

if TYPE_CHECKING:
    from pydantic_ai.models import Model

INSTALL = (
    'pydantic-ai is not installed; pip install "perdure[pydantic-ai]", and what it needs for your'
    ' vendor, as in "pydantic-ai-slim[google]"'
)


class PydanticAI:
    """Asks models through pydantic-ai.

    `models` is what stands before the colon in pydantic-ai's own names: with
    `providers={"gemini": PydanticAI("google")}`, our `gemini:gemini-2.5-flash` is its
    `google:gemini-2.5-flash`. Keys and addresses come from the environment, as its documentation
    says. Or it is a model object of yours, which answers whatever name is asked for.

    Raises:
        ConfigurationError: pydantic-ai is not installed.
    """

    def __init__(self, models: str | Model) -> None:
        if find_spec("pydantic_ai") is None:
            raise errors.ConfigurationError(INSTALL)
        self._models = models
        self._known: dict[str, Model] = {}
        self._opening = asyncio.Lock()
        self._open = contextlib.AsyncExitStack()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Ask, and wait for the whole answer.

        Raises:
            LLMError: The table of `pydantic_ai_errors` says which subclass. Its context holds
                `model`, and `status`, `retry_after_s`, `charged` and `usage` where they apply.
            ConfigurationError: pydantic-ai does not know the model, or lacks a key, a setting or
                the vendor's library.
        """
        return await self._ask(request, None)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Ask, and give the words of the answer to `heard` as they come.

        A model that cannot stream is asked for a whole answer.

        Raises:
            LLMError: As `complete` does; a stream that ends before the answer is an
                `LLMUnavailableError`.
            ConfigurationError: As `complete` does.
        """
        return await self._ask(request, heard)

    async def close(self) -> None:
        """Close connections."""
        self._known.clear()
        await self._open.aclose()

    async def _ask(self, request: ModelRequest, heard: Heard | None) -> ModelAnswer:
        model = await self._model(request.model)
        from perdure.activities.providers import pydantic_ai_requests

        return await pydantic_ai_requests.ask(model, request, heard)

    async def _model(self, name: str) -> Model:
        """The model of this name, with its connections open."""
        async with self._opening:
            if name not in self._known:
                made = await asyncio.to_thread(_made, self._models, name)
                self._known[name] = await self._open.enter_async_context(made)
            return self._known[name]


def _made(models: str | Model, name: str) -> Model:
    from perdure.activities.providers import pydantic_ai_requests

    return pydantic_ai_requests.model_of(models, name)
