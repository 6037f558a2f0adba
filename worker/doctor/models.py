"""Asks each model of a worker for one word."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from perdure.activities.provider import CheckedProvider, ModelRequest, Models
from perdure.errors import PerdureError
from perdure.text import one_line
from perdure.values.messages import UserMessage
from perdure.values.options import RequestOptions
from perdure.worker.setup_checks import Finding

if TYPE_CHECKING:
    from perdure.worker.agent_worker import AgentWorker

_PATIENCE_S = 60.0
_MOST_TOKENS = 16
_REASON_CHARACTERS = 300
_REMEDY = "turns that ask it wait and try again; look at its key, its quota and its status page"


async def asked(app: AgentWorker) -> list[Finding]:
    """Send a short request to each model of the worker's agents. It costs some 20 tokens each."""
    models = Models(app.all_providers(), app.models)
    names = dict.fromkeys(
        name for agent in app.registry.agents() for name in _known(models, agent.models)
    )
    try:
        ready = [name for name in names if _is_set_up(models, name)]
        return list(await asyncio.gather(*(_asked(models, name) for name in ready)))
    finally:
        await models.close()


def _known(models: Models, chain: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return models.resolve(chain)
    except PerdureError:
        return ()  # reported for its agent


def _is_set_up(models: Models, name: str) -> bool:
    """Whether a model can be asked; what it lacks is reported for it."""
    provider, _ = models.find(name)
    try:
        if isinstance(provider, CheckedProvider):
            provider.check_setup()
    except PerdureError:
        return False
    return True


async def _asked(models: Models, name: str) -> Finding:
    provider, model = models.find(name)
    request = ModelRequest(
        model=model,
        messages=(UserMessage.of("Reply with the word: ready"),),
        options=RequestOptions(max_output_tokens=_MOST_TOKENS),
    )
    subject = f"answer of {name}"
    try:
        answer = await asyncio.wait_for(provider.complete(request), _PATIENCE_S)
    except TimeoutError:
        return Finding(subject, "failed", f"none within {_PATIENCE_S:.0f} s", _REMEDY)
    except PerdureError as error:
        return Finding(subject, "failed", one_line(error.message, _REASON_CHARACTERS), _REMEDY)
    return Finding(subject, "ok", f"it answers, with {answer.usage.output_tokens} tokens")
