"""The input of a turn, made from what a caller says: checked before anything is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from perdure import errors, outputs
from perdure.activities.payloads import explain
from perdure.activities.signatures import MEMO
from perdure.agents import Agent
from perdure.messages import Message
from perdure.tasks import Context, Task, headline
from perdure.wire import TurnRequest


def turn_request(
    agent: Agent[Any] | str,
    task: str | Task,
    *,
    output: Any = None,
    context: Context | Mapping[str, str] | None = None,
    history: Sequence[Message] = (),
    labels: Mapping[str, str] | None = None,
    allowed_tools: Sequence[str] | None = None,
    **given: Any,
) -> TurnRequest:
    """The input of a turn. `given` are further fields of it, as they are.

    Raises:
        TooLargeError: The input is too large.
        InvalidRequestError: It is not valid.
        ConfigurationError: No model can be held to the output type.
    """
    fields = {
        "agent": agent.name if isinstance(agent, Agent) else agent,
        "task": task,
        "context": context if isinstance(context, Context) or context is None else {"blocks": dict(context)},
        "history": tuple(history),
        "labels": dict(labels or {}),
        "output_schema": outputs.schema_of(output),
    }
    try:
        request = TurnRequest.model_validate(fields)
        request.check()
    except ValidationError as error:
        raise errors.InvalidRequestError(f"the turn cannot be started: {explain(error)}") from None
    return request.model_copy(update={"allowed_tools": None if allowed_tools is None else tuple(allowed_tools), **given})


def introduced(request: TurnRequest, trace: Mapping[str, Any]) -> dict[str, Any]:
    """How a turn introduces itself in Temporal's lists: the options of its start. `trace` is the memo that says whose trace it goes on in."""
    line = headline(request.task)
    return {"static_summary": f"{request.agent}: {line}", "memo": {MEMO: {"agent": request.agent, "task": line}, **trace}}


def type_of(agent: Agent[Any] | str, output: Any) -> Any:
    """What an answer is read as: the type that was asked for, else the agent's own; None where nobody knows."""
    if output is not None:
        return output
    return None if isinstance(agent, str) else agent.output or str
