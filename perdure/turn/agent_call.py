"""The input of the activity that resolves an agent."""

from __future__ import annotations

from operator import not_

from pydantic import Field, JsonValue

from perdure.agents.delegates import InheritedTool
from perdure.base import Wire
from perdure.turn.wire import TurnRequest
from perdure.values.client_tools import ClientTool
from perdure.values.model_retry import ModelRetryPolicy


class AgentCall(Wire):
    """Input of the activity that resolves an agent.

    The task is in history already, and only a factory reads it. `extra` has the further fields of
    the turn's requests; vendors charge more for some of them. `instructions` are those of the
    caller, which only an agent with `takes_instructions` takes. `model_retry` is the policy of the
    turn, for every agent that it is handed over to. `inherited` has the tools inherited
    from the turns above. `on_done` and `on_wait` are the URLs of the turn's webhooks, which the
    worker may refuse. With `handed_to`, that agent is resolved, with the rules of `agent`. With
    `undoes`, the agent has one tool, that which takes calls of this tool back. `client_tools` are
    those that the client runs, which only an agent with `takes_tools` takes. `version` is the
    version of `agent` that the caller chooses. Without one, a rollout chooses by the id `subject`;
    empty for the turn's own.
    """

    agent: str
    allowed: tuple[str, ...] | None = None
    extra: dict[str, JsonValue] = {}
    model: str | None = None
    model_retry: ModelRetryPolicy | None = None
    inherited: tuple[InheritedTool, ...] = ()
    on_done: str | None = None
    on_wait: str | None = Field(default=None, exclude_if=not_)
    handed_to: str | None = None
    undoes: str = Field(default="", exclude_if=not_)
    in_session: bool = Field(default=False, exclude_if=not_)
    instructions: str | None = Field(default=None, exclude_if=not_)
    client_tools: tuple[ClientTool, ...] = Field(default=(), exclude_if=not_)
    version: str = Field(default="", exclude_if=not_)
    subject: str = Field(default="", exclude_if=not_)


def agent_call(request: TurnRequest, agent: str, model: str | None = None) -> AgentCall:
    """Return the input of the activity that resolves an agent of a turn.

    The caller's instructions and tools are for the agent that the turn was started with.
    """
    return AgentCall(
        agent=agent,
        model=model,
        allowed=request.allowed,
        extra=request.options.extra if request.options else {},
        model_retry=request.model_retry,
        inherited=request.lineage.tools if request.lineage else (),
        undoes=request.undo.record.tool if request.undo else "",
        in_session=request.session is not None,
        instructions=request.instructions if agent == request.agent else None,
        client_tools=request.client_tools if agent == request.agent else (),
        version=(request.version or "") if agent == request.agent else "",
        subject=request.subject_of(""),
    )
