"""Provider for the models of pydantic-ai: Gemini, Bedrock, Groq, Mistral, Cohere and others.

It needs the extra `pydantic-ai` and uses only pydantic-ai's direct requests, not its agents.
Retries of the vendor libraries are disabled where possible, as the turn decides about retries.
`pydantic_ai_messages` converts requests and answers, `pydantic_ai_errors` exceptions. Both are
imported with the first request, in a thread: the library takes a second to import, and some
vendors' libraries take longer.
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
    'pydantic-ai is not installed; run pip install "perdure[pydantic-ai]", and install what it'
    ' needs for your vendor, as in "pydantic-ai-slim[google]"'
)


class PydanticAI:
    """A provider that calls models through pydantic-ai.

    `models` is the prefix of pydantic-ai's own model names: with
    `providers={"gemini": PydanticAI("google")}`, our `gemini:gemini-2.5-flash` is its
    `google:gemini-2.5-flash`. Keys and addresses come from the environment, as documented by
    pydantic-ai. Alternatively it is a model object, which is used for every model name.

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
        """Send the request and wait for the whole answer.

        Raises:
            LLMError: One of the subclasses in the table of `pydantic_ai_errors`. The context holds
                `model`, and `status`, `retry_after_s`, `charged` and `usage` where they apply.
            ConfigurationError: pydantic-ai does not know the model, or lacks a key, a setting or
                the vendor's library.
        """
        return await self._ask(request, None)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Send the request and pass the answer's text to `heard` as it arrives.

        A model that cannot stream returns its answer whole.

        Raises:
            LLMError: As for `complete`; a stream that ends before the answer is an
                `LLMUnavailableError`.
            ConfigurationError: As for `complete`.
        """
        return await self._ask(request, heard)

    async def close(self) -> None:
        """Close all connections."""
        self._known.clear()
        await self._open.aclose()

    async def _ask(self, request: ModelRequest, heard: Heard | None) -> ModelAnswer:
        model = await self._model(request.model)
        from perdure.activities.providers import pydantic_ai_requests

        return await pydantic_ai_requests.ask(model, request, heard)

    async def _model(self, name: str) -> Model:
        """Return the model of this name, with its connections open."""
        async with self._opening:
            if name not in self._known:
                made = await asyncio.to_thread(_made, self._models, name)
                self._known[name] = await self._open.enter_async_context(made)
            return self._known[name]


def _made(models: str | Model, name: str) -> Model:
    from perdure.activities.providers import pydantic_ai_requests

    return pydantic_ai_requests.model_of(models, name)
