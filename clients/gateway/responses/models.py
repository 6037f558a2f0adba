"""Models of OpenAI's API: a model is an agent."""

from __future__ import annotations

from typing import Final, Literal

from perdure import limits
from perdure.base import Value
from perdure.clients.gateway.operations import Call, operation
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.responses.refusals import refusal
from perdure.temporal.names import GENERATE

PATH: Final = "/models"


class ModelObject(Value):
    """An agent as a model.

    Attributes:
        id: The name of the agent.
        object: Always `model`.
        created: The start of the first known turn, in whole seconds since 1970; 0 without a turn.
        owned_by: Always `perdure`.
    """

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: Literal["perdure"] = "perdure"


class ModelList(Value):
    """Agents."""

    object: Literal["list"] = "list"
    data: tuple[ModelObject, ...]


@operation("GET", PATH, may="read", refuse=refusal)
async def list_models(call: Call) -> ModelList:
    """List the agents that the gateway was told of, and those of the caller's last turns."""
    return ModelList(data=await _models(call))


@operation("GET", f"{PATH}/{{id:path}}", may="read", refuse=refusal)
async def retrieve_model(call: Call) -> ModelObject:
    """Return an agent of that list."""
    name = call.request.path_params["id"]
    for model in await _models(call):
        if model.id == name:
            return model
    raise RefusedError(
        404,
        "MODEL_NOT_FOUND",
        f"the gateway was not told of an agent {name!r}, and no recent turn has had it; it can be"
        " asked nevertheless, if a worker has it",
    )


async def _models(call: Call) -> tuple[ModelObject, ...]:
    """Return the agents that are known here, by their names. Workers know others."""
    created = dict.fromkeys(call.gateway.agents, 0)
    listing = call.client.turns(id_prefix=call.caller.prefix or None)
    page = await listing.page(None, size=limits.HTTP_LIST)
    for entry in page.entries:
        if entry.agent and entry.agent != GENERATE and entry.started_at is not None:
            began = int(entry.started_at.timestamp())
            created[entry.agent] = min(began, created.get(entry.agent) or began)
    return tuple(ModelObject(id=name, created=created[name]) for name in sorted(created))
