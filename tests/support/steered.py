"""A scripted model whose turn is steered while the model answers, however the turn was started."""

from __future__ import annotations

from uuid import uuid4

from temporalio import activity

from perdure.activities.provider import Heard, ModelRequest
from perdure.temporal.names import STEER
from perdure.temporal.payloads import pack
from perdure.testing import ScriptedModel
from perdure.testing.scripted import Reply
from perdure.turn.wire import Steer
from perdure.values.answers import ModelAnswer

MORE = "One more thing."
"""The message of the user."""


class SteeredModel(ScriptedModel):
    """A model whose turn gets a message of the user before each answer with the text `during`."""

    def __init__(self, *replies: Reply | str, during: str) -> None:
        super().__init__(*replies)
        self._during = during

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Return the next reply, after the message."""
        return await self._steered(await super().complete(request))

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Return the next reply, after the message, and pass its text to `heard`."""
        return await self._steered(await super().stream(request, heard))

    async def _steered(self, answer: ModelAnswer) -> ModelAnswer:
        if answer.message.text == self._during:
            turn_id = activity.info().workflow_id
            assert turn_id is not None
            handle = activity.client().get_workflow_handle(turn_id)
            await handle.execute_update(STEER, pack(Steer(text=MORE)), id=uuid4().hex)
        return answer
