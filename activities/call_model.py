"""Calls models. The workflow owns the retries, so nothing below it retries."""

from __future__ import annotations

import asyncio
import time

from temporalio import activity

from perdure import errors, limits
from perdure.activities.models import ModelRequest, Models
from perdure.activities.transcripts import Transcripts
from perdure.facts import Key
from perdure.reports import StopReason
from perdure.wire import ModelAnswer, ModelCall


class ModelActivities:
    """One request to a model for each call."""

    def __init__(self, models: Models, transcripts: Transcripts) -> None:
        self._models = models
        self._transcripts = transcripts

    async def call_model(self, call: ModelCall) -> ModelAnswer:
        """Load the transcript that `call` names, ask the model, remember the answer.

        Raises:
            LLMError: The provider's error.
            TranscriptMismatchError: History does not hold the transcript; nothing was sent.
            ConfigurationError: The provider is not set up on this worker.
        """
        info = activity.info()
        provider, name = self._models.find(call.model)
        state = await self._transcripts.load(activity.client(), info, call)
        assert state.agent is not None
        request = ModelRequest(model=name, system=state.agent.instructions, messages=state.messages, tools=state.agent.tools)
        began = time.monotonic()
        try:
            async with asyncio.timeout(limits.MODEL_CALL.total_seconds()):
                answer = await provider.complete(request)
        except TimeoutError as error:
            raise errors.LLMTimeoutError(f"{call.model} did not answer within {limits.MODEL_CALL.total_seconds():g} s") from error
        answer = answer.model_copy(update={"duration_ms": int((time.monotonic() - began) * 1000)})
        _refuse_nothing(call.model, answer)
        key = Key.parse(info.activity_id)
        assert key is not None
        assert info.workflow_run_id is not None
        self._transcripts.remember_answer(info.workflow_run_id, state, key, answer)
        return answer


def _refuse_nothing(model: str, answer: ModelAnswer) -> None:
    """An answer without text and calls is an error of the model, unless it was cut off or declined."""
    empty = not answer.message.text.strip() and not answer.message.calls
    if empty and answer.stop not in (StopReason.MAX_TOKENS, StopReason.REFUSED):
        raise errors.LLMUnavailableError(f"{model} answered with nothing (stop reason: {answer.stop})")
