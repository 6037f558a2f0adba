"""Turns as tools of an MCP server, for `perdure mcp` and for the gateway.

An editor or an assistant can start agents, which go on without it, and look after them. Decisions
that only a person may make are put to the client's user (`questions.py`). With `perdure mcp`,
standard output carries the protocol only. A client that disconnects does not affect a turn.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.metadata import version
from typing import Annotated, Any, Unpack

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.request_state import RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, ToolAnnotations
from pydantic import Field, JsonValue

from perdure.clients.client import AgentClient
from perdure.clients.gateway.mcp.options import (
    DEFAULTS,
    OfferedOptions,
    arguments,
    limits_in,
)
from perdure.clients.gateway.mcp.questions import (
    Answers,
    Ctx,
    LetsResume,
    LetsRun,
    LetsSettle,
    LetsSpend,
    More,
    answer_in,
    require,
    serving,
    who,
)
from perdure.clients.gateway.mcp.served import LONGEST_WAIT, Served, TurnWatch
from perdure.clients.gateway.mcp.tasks import Tasks
from perdure.clients.gateway.mcp.turn_tools import TurnTools
from perdure.clients.gateway.mcp.turn_view import TurnView
from perdure.clients.turns.entries import TurnEntry
from perdure.values import keywords, states
from perdure.values.approvals import Settlement

DEFAULT_WAIT_S = 45
"""Clients commonly abandon a call after a minute."""

_LONGEST_LIST = 100
_LACKS = ("prompts", "resources")
_INTRODUCTIONS = ("initialize", "server/discover")
"""The methods whose result has the capabilities of the server."""
_LOOKS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
_STARTS = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True
)
_STOPS = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
_DECIDES = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
)


TurnId = Annotated[str, Field(description="The turn's id, as start_turn and list_turns say it.")]
CallId = Annotated[str, Field(description="The call's id, as the turn's waiting_calls say it.")]
Digest = Annotated[
    str,
    Field(
        description=(
            "The call's digest, as waiting_calls say it: it binds the decision to the arguments"
            " that were looked at."
        )
    ),
]


def serve(
    client: AgentClient, agents: Sequence[str] = (), *, approvals: bool = True
) -> MCPServer[Served]:
    """Create an MCP server for turns.

    Args:
        client: The client that starts and finds the turns.
        agents: The names of the agents to serve; all of them by default.
        approvals: Whether it offers actions that need a person's consent: approve, deny and
            settle calls, add to budgets, and resume turns.
    """
    served = Served(client, frozenset(agents))
    return define(lambda: served, agents, approvals=approvals)


def define(
    served: Callable[[], Served],
    agents: Sequence[str] = (),
    *,
    approvals: bool = True,
    middleware: Sequence[ServerMiddleware[Any]] = (),
    state: RequestStateSecurity | None = None,
) -> MCPServer[Served]:
    """Create an MCP server, for any transport.

    Args:
        served: Returns the turns that are offered: once for a connection, or over HTTP for each
            request.
        agents: The names of the agents to serve, which the instructions list.
        approvals: Whether it offers actions that need a person's consent.
        middleware: What wraps each message.
        state: How the state is sealed that a client carries between a question and its answer. By
            default it is sealed with a key of this process.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: MCPServer[Served]) -> AsyncIterator[Served]:
        yield served()

    server = TurnTools(
        served,
        "perdure",
        version=version("perdure"),
        instructions=_instructions(agents, approvals),
        extensions=[Tasks(approvals=approvals)],
        lifespan=lifespan,
        log_level="WARNING",
        middleware=[*middleware, _tools_alone],
        request_state_security=state,
        subscriptions=False,
    )
    server.tool(annotations=_STARTS)(start_turn)
    server.tool(annotations=_LOOKS)(turn_status)
    server.tool(annotations=_LOOKS)(turn_result)
    server.tool(annotations=_LOOKS)(list_turns)
    server.tool(annotations=_STARTS)(steer_turn)
    server.tool(annotations=_STOPS)(cancel_turn)
    if approvals:
        server.tool(annotations=_DECIDES)(add_budget)
        server.tool(annotations=_DECIDES)(resume_turn)
        server.tool(annotations=_DECIDES)(approve_call)
        server.tool(annotations=_DECIDES)(deny_call)
        server.tool(annotations=_DECIDES)(settle_call)
        server.tool(annotations=_DECIDES)(answer_call)
    return server


async def _tools_alone(
    ctx: ServerRequestContext[Served, Any], call_next: CallNext
) -> HandlerResult:
    """Answer as a server that has neither prompts nor resources. The SDK's has empty lists."""
    if ctx.method.partition("/")[0] in _LACKS:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
    result = await call_next(ctx)
    if ctx.method in _INTRODUCTIONS and isinstance(result, dict):
        for name in _LACKS:
            result["capabilities"].pop(name, None)
    return result


def _instructions(agents: Sequence[str], approvals: bool) -> str:
    known = (
        f"The agents are {', '.join(agents)}."
        if agents
        else "The name of the agent is needed; the user knows which there are."
    )
    introduction = (
        "Runs durable agents: a turn is one run of an agent on one task. It goes on in the"
        " background, for hours if need be, whatever becomes of this connection. Start one with"
        f" start_turn, wait for it with turn_result, look after it with turn_status. {known}"
    )
    to_decide = (
        " A turn that is waiting has waiting_calls that a person decides about: show the user the"
        " tool and its arguments first. One with is_unknown was made, and nobody knows whether it"
        " took effect: the user says so, for settle_call. One with is_question is a question to"
        " the user, for answer_call."
    )
    return introduction + to_decide if approvals else introduction


@keywords.shows(OfferedOptions, DEFAULTS)
async def start_turn(
    agent: Annotated[str, Field(description="The agent's name.")],
    task: Annotated[
        str,
        Field(description="What is asked of it. It sees nothing else, so say all it has to know."),
    ],
    ctx: Ctx,
    id: Annotated[
        str | None,
        Field(
            description=(
                "An id of your choice; starting the same id again finds the same turn. Without it"
                " one is made up."
            )
        ),
    ] = None,
    **options: Unpack[OfferedOptions],
) -> TurnView:
    """Start a turn and return at once; it runs in the background.

    Ask turn_result for its answer.
    """
    with serving(ctx, "start") as served:
        served.check(agent)
        if limits_in(options):
            served.require("budget")  # they override those of the agent
        subject = options["subject"] and served.own(options["subject"])
        turn_id = served.new_id(agent, id)
        await served.check_turns(turn_id)
        turn = await served.client.start(
            agent,
            task,
            id=turn_id,
            fairness=served.fairness,
            by=who(served, ctx.session),
            **{**arguments(options), "subject": subject},
        )
        return await served.look(turn)


async def turn_status(turn: TurnId, ctx: Ctx) -> TurnView:
    """How far a turn is, what it does or waits for, and when it is over its answer."""
    with serving(ctx, "read") as served:
        return (await served.turn(turn))[1]


async def turn_result(
    turn: TurnId,
    ctx: Ctx,
    wait_s: Annotated[
        int, Field(description="Seconds to wait at most.", ge=0, le=LONGEST_WAIT.seconds)
    ] = DEFAULT_WAIT_S,
) -> TurnView:
    """Wait for the end of a turn, or until it waits for a person.

    When the time is up, or the server waits no longer, it says how far it is, and may be asked
    again.
    """
    with serving(ctx, "read") as served:
        handle, _ = await served.turn(turn)
        with served.stay_open():
            longest = served.longest_wait.total_seconds()
            await TurnWatch(served, handle).wait(min(wait_s, longest), ctx.report_progress)
        return await served.look(handle)


async def list_turns(
    ctx: Ctx,
    agent: Annotated[str | None, Field(description="Only turns of this agent.")] = None,
    state: Annotated[states.OfTurn | None, Field(description="Only turns in this state.")] = None,
    limit: Annotated[int, Field(ge=1, le=_LONGEST_LIST)] = 20,
) -> list[TurnEntry]:
    """The turns there are: first those that are not over, then the last that ended."""
    with serving(ctx, "read") as served:
        if agent is not None:
            served.check(agent)
        entries: list[TurnEntry] = []
        async for entry in served.client.turns(agent, state=state, id_prefix=served.id_prefix):
            if served.offers(entry.agent):
                entries.append(entry)
            if len(entries) == limit:
                break
        return entries


async def steer_turn(
    turn: TurnId,
    text: Annotated[str, Field(description="What to tell the agent.")],
    ctx: Ctx,
    now: Annotated[
        bool, Field(description="Whether to stop the model call that is running.")
    ] = False,
) -> TurnView:
    """Send a message to a running turn. Its agent reads it before its next step."""
    with serving(ctx, "control") as served:
        handle, _ = await served.turn(turn)
        await handle.steer(text, now=now, by=who(served, ctx.session))
        return await served.look(handle)


async def cancel_turn(
    turn: TurnId,
    ctx: Ctx,
    reason: Annotated[str, Field(description="Why; its report says it.")] = "",
) -> TurnView:
    """Ask a turn to stop. It keeps what it has done, and ends within seconds."""
    with serving(ctx, "control") as served:
        handle, _ = await served.turn(turn)
        await handle.cancel(reason, by=who(served, ctx.session))
        return await served.look(handle)


async def add_budget(turn: TurnId, more: More, consent: LetsSpend, ctx: Ctx) -> TurnView:
    """Add to the budget of a turn or to its iterations; one that is paused goes on.

    Only after the user has said yes.
    """
    with serving(ctx, "budget") as served:
        require(consent, "the user did not agree; nothing was added")
        handle, _ = await served.turn(turn)
        await handle.add_budget(more.added, iterations=more.iterations, by=who(served, ctx.session))
        return await served.look(handle)


async def resume_turn(turn: TurnId, consent: LetsResume, ctx: Ctx) -> TurnView:
    """Make a turn ask its model again at once.

    The turn must be waiting for a provider, or paused because a provider was unavailable.
    Only after the user has said yes.
    """
    with serving(ctx, "start") as served:
        require(consent, "the user did not agree; the turn waits on")
        handle, _ = await served.turn(turn)
        await handle.resume(by=who(served, ctx.session), start=False)
        return await served.look(handle)


async def approve_call(
    turn: TurnId,
    call_id: CallId,
    digest: Digest,
    consent: LetsRun,
    ctx: Ctx,
    reason: Annotated[str, Field(description="Why; the turn's record says it.")] = "",
) -> TurnView:
    """Let a waiting call run.

    Only after the user has seen its tool and arguments and has said yes.
    """
    with serving(ctx, "decide") as served:
        require(consent, "the user did not approve it; the call waits on. deny_call refuses it")
        handle, _ = await served.turn(turn)
        await handle.approve(
            await served.waiting(turn, call_id, digest), reason=reason, by=who(served, ctx.session)
        )
        return await served.look(handle)


async def deny_call(
    turn: TurnId,
    call_id: CallId,
    digest: Digest,
    ctx: Ctx,
    reason: Annotated[str, Field(description="Why; the agent is told.")] = "",
) -> TurnView:
    """Refuse a waiting call. The agent is told why and goes on without it."""
    with serving(ctx, "decide") as served:
        handle, _ = await served.turn(turn)
        await handle.deny(
            await served.waiting(turn, call_id, digest), reason, by=who(served, ctx.session)
        )
        return await served.look(handle)


async def settle_call(
    turn: TurnId,
    call_id: CallId,
    digest: Digest,
    settlement: Annotated[
        Settlement,
        Field(
            description=(
                "done: it has taken effect; absent: it has not; again: make it again, although"
                " nobody knows."
            )
        ),
    ],
    consent: LetsSettle,
    ctx: Ctx,
    result: Annotated[
        str, Field(description="What the agent reads as the result, such as a number.")
    ] = "",
) -> TurnView:
    """Say what became of a waiting call with is_unknown, which was made without an answer.

    Only after the user has found that out and has said so.
    """
    with serving(ctx, "decide") as served:
        require(consent, "the user did not confirm it; the call waits on")
        handle, _ = await served.turn(turn)
        pending = await served.waiting(turn, call_id, digest, to_settle=True)
        await handle.settle(pending, settlement, result, by=who(served, ctx.session))
        return await served.look(handle)


async def answer_call(
    turn: TurnId,
    call_id: CallId,
    digest: Digest,
    filled: Answers,
    ctx: Ctx,
    answer: Annotated[
        JsonValue,
        Field(
            description=(
                "What the user answers: one of the options, a text, or an object that fits the"
                " form. It is left out if this client shows the question to the user itself."
            )
        ),
    ] = None,
) -> TurnView:
    """Answer a waiting call with is_question: the agent of the turn asks the user.

    The answer is the user's own: never make one up. deny_call declines to answer.
    """
    with serving(ctx, "decide") as served:
        pending = await served.waiting(turn, call_id, digest)
        handle, _ = await served.turn(turn)
        given = answer_in(filled, pending, answer)
        await handle.answer(pending, given, by=who(served, ctx.session))
        return await served.look(handle)
