"""The activities of a worker, put together from its agents. Nothing is opened or started here."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.client import Client
from temporalio.common import RawValue

from perdure import errors, limits
from perdure.activities.answer_checks import Answers
from perdure.activities.call_model import ModelActivities
from perdure.activities.call_tool import Handler, ToolActivities, ToolNames
from perdure.activities.carry import Carrier
from perdure.activities.effects_afterwards import EffectsAfterwards
from perdure.activities.effects_before_reset import EffectsBeforeReset
from perdure.activities.error_log import logged
from perdure.activities.hooks import Hooks
from perdure.activities.later_calls import LaterCalls
from perdure.activities.live_text import LiveTexts
from perdure.activities.local_runs import LocalRuns
from perdure.activities.mcp.toolboxes import Servers
from perdure.activities.policies import Policies
from perdure.activities.pricing import Prices
from perdure.activities.profiles import Profiles
from perdure.activities.provider import Models
from perdure.activities.read_change import read_change
from perdure.activities.read_child import read_ended
from perdure.activities.record_turn import TurnRecorder
from perdure.activities.register_waiter import register_waiter
from perdure.activities.resolve_agent import Agents
from perdure.activities.settle_schedule import NOT_KEPT, settle_schedule
from perdure.activities.tool_loop import ToolLoop
from perdure.activities.transcripts import Transcripts
from perdure.activities.verify_effect import Verifications
from perdure.activities.webhook_rules import WebhookRules
from perdure.activities.webhooks import NOT_SENT, Webhooks
from perdure.agents.definitions import Target, define
from perdure.agents.registry import Registry
from perdure.batch.wire import StoreCall
from perdure.clients.batches.storing import NOT_STORED, store_batch
from perdure.clients.schedules.sending import REFUSED, send_message
from perdure.delivery.push import ChangeCall, PushCall
from perdure.delivery.webhook import Notification, WebhookCall
from perdure.errors import PerdureError
from perdure.keyed_events.wire import Registration
from perdure.session.scheduled import MessageCall
from perdure.session.wire import RecordCall
from perdure.temporal import failures
from perdure.temporal.encryption.hiding import labels_are_plain
from perdure.temporal.names import (
    ASK_POLICY,
    CALL_MODEL,
    CANCEL_CALL,
    CARRY,
    CHECK_RECEIVER,
    END_OF_TURN,
    NOTIFY,
    POLL_CALL,
    READ_CHANGE,
    READ_CHILD,
    RECORD_TURN,
    REGISTER_WAITER,
    RESOLVE_AGENT,
    RUN_MIDDLEWARE,
    SEND_MESSAGE,
    SETTLE_SCHEDULE,
    STORE_BATCH,
    TELL_OBSERVERS,
    VERIFY,
)
from perdure.temporal.payloads import V, is_foreign, pack, raw_input, undecodable, unpack
from perdure.turn.agent_call import AgentCall
from perdure.turn.approvals import PolicyCall
from perdure.turn.continuation import CarryCall
from perdure.turn.hook_values import HookCall, ObserverCall
from perdure.turn.schedule_account import SettleScheduleCall
from perdure.turn.wire import ChildRun, ModelCall, ToolRun
from perdure.worker import internals
from perdure.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from perdure.worker.agent_worker import AgentWorker


@dataclass(frozen=True)
class Activities(Container[str]):
    """The activities of a worker, with what they share.

    It contains the names of the activities, and of the tools of MCP servers, which are dynamic.

    Attributes:
        call_model: The activity that calls models, which the workers of other queues run, too.
        others: The activities that neither call models nor run tools.
        tool_calls: What the activities that run tools call.
        tool_names: The names of the tools that are known when the worker starts.
        carrier: The activity that carries the state of a run over to the next.
        registry: The agents as the app declares them.
        agents: The agents as activities find them.
        models: The models, with their providers.
        texts: The texts of the model calls that run in this process.
        transcripts: The transcripts of turns that this process knows.
        local_runs: The local calls that this process has begun.
        loops: The event loops of tools and of MCP servers, in the order in which they open.
    """

    call_model: Handler
    others: tuple[Handler, ...]
    tool_calls: ToolActivities
    tool_names: ToolNames
    carrier: Carrier
    registry: Registry
    agents: Agents
    models: Models
    texts: LiveTexts
    transcripts: Transcripts
    local_runs: LocalRuns
    loops: tuple[ToolLoop, ToolLoop]

    @cached_property
    def tools(self) -> tuple[Handler, ...]:
        """The activities that run tools."""
        return tuple(self.tool_calls.handlers())

    @property
    def all(self) -> list[Handler]:
        """The activities to register."""
        return [*self.others, self.call_model, *self.tools]

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the activities; empty for the dynamic activity."""
        return frozenset(map(internals.activity_name, self.all))

    @cached_property
    def _without_tools(self) -> frozenset[str]:
        """The activities that need no tool; a read-back, a poll and a cancel call one."""
        names = map(internals.activity_name, (*self.others, self.call_model))
        return frozenset(names) - {VERIFY, POLL_CALL, CANCEL_CALL}

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.names or self.tool_names.is_of_server(name))

    async def open(self, opened: contextlib.AsyncExitStack, client: Client) -> None:
        """Open what the activities need; `opened` closes it in the reverse order."""
        for loop in self.loops:
            await loop.open()
            opened.push_async_callback(loop.close)
        opened.push_async_callback(self.models.close)
        await self.texts.open(opened, client)
        await self.agents.warm(client)

    async def prepare(self, client: Client, args: Sequence[RawValue]) -> None:
        """Make available what a tool needs before it runs. Refuse some local calls."""
        info = activity.info()
        if info.activity_type in self._without_tools:
            return
        if info.is_local:
            await self.local_runs.check(client, info)
        if self.registry.has_factories:
            await self.agents.prepare(client, info, unpack(raw_input(args), ToolRun).owner)
        if _has_keys(args):
            await self.tool_calls.learn(client, unpack(raw_input(args), ToolRun))


_HAS_KEYS = b'"effect_scope"'
"""What the input of a call contains whose tool has effect keys. A false hit only costs time."""


def _has_keys(args: Sequence[RawValue]) -> bool:
    """Return whether this may be the input of a call whose tool has effect keys."""
    with contextlib.suppress(IndexError):  # an activity of other people, without an input
        return _HAS_KEYS in raw_input(args).payload.data
    return False


def build(app: AgentWorker, settings: WorkerSettings) -> Activities:
    """Put the activities together. Each agent is defined once, so that a wrong agent fails here.

    Raises:
        ConfigurationError: A queue or a model has no provider, or an agent cannot be defined.
    """
    app.registry.roll_out(app.rollouts)
    providers = app.all_providers()
    _refuse_unknown_queues(app.queues, providers)
    watched = app.telemetry.watching(providers) if app.telemetry else providers
    models, prices = Models(watched, app.models), Prices(app.prices)
    names = _tool_names(app.registry)
    servers = Servers(names.activity_of)
    webhooks = Webhooks(WebhookRules.of(settings.webhook_hosts, settings.webhook_secrets))
    agents = Agents(
        app.registry,
        models,
        prices,
        Profiles(app.profiles),
        dict(app.queues),
        servers,
        names.activity_of,
        app.model_retry,
        webhooks,
    )
    _check_agents(app.registry, models, names)
    loop, transcripts = ToolLoop(app.lifespan), Transcripts()
    texts = LiveTexts(settings.live_text)
    model_calls = ModelActivities(models, prices, transcripts, Answers(agents), texts)
    known = EffectsBeforeReset(), EffectsAfterwards()
    tool_calls = ToolActivities(names, agents, loop, servers, transcripts, *known)
    later, carrier = LaterCalls(tool_calls), Carrier()
    return Activities(
        call_model=_handler(CALL_MODEL, model_calls.call_model, ModelCall),
        others=(
            *_others(agents, Hooks(agents, transcripts)),
            _handler(CARRY, carrier.carry, CarryCall, may_be_stored=True),
            _handler(VERIFY, Verifications(tool_calls).verify, ToolRun),
            _handler(POLL_CALL, later.poll, ToolRun),
            _handler(CANCEL_CALL, later.cancel, ToolRun),
            *deliveries(webhooks),
        ),
        tool_calls=tool_calls,
        tool_names=names,
        carrier=carrier,
        registry=app.registry,
        agents=agents,
        models=models,
        texts=texts,
        transcripts=transcripts,
        local_runs=LocalRuns(transcripts),
        loops=(loop, servers.loop),
    )


def _others(agents: Agents, hooks: Hooks) -> tuple[Handler, ...]:
    """Return the activities that neither call models nor run tools, nor deliver anything."""
    unreadable = failures.UNREADABLE
    record_turn = TurnRecorder().record_turn
    return (
        _handler(RESOLVE_AGENT, agents.resolve_agent, AgentCall),
        _handler(ASK_POLICY, Policies(agents).ask_policy, PolicyCall),
        _handler(RUN_MIDDLEWARE, hooks.run_middleware, HookCall),
        _handler(TELL_OBSERVERS, hooks.tell_observers, ObserverCall),
        _handler(READ_CHILD, read_ended, ChildRun, final=unreadable),
        _handler(RECORD_TURN, record_turn, RecordCall, may_be_stored=True, final=unreadable),
        _handler(REGISTER_WAITER, register_waiter, Registration),
        _handler(SEND_MESSAGE, send_message, MessageCall, final=REFUSED),
        _handler(STORE_BATCH, store_batch, StoreCall, final=NOT_STORED),
        _handler(SETTLE_SCHEDULE, settle_schedule, SettleScheduleCall, final=NOT_KEPT),
    )


def deliveries(webhooks: Webhooks) -> tuple[Handler, ...]:
    """Return the activities that deliver webhooks and push notifications."""
    return (
        _handler(END_OF_TURN, webhooks.end_of_turn, WebhookCall, final=failures.UNREADABLE),
        _handler(NOTIFY, webhooks.notify, Notification, final=NOT_SENT),
        _handler(CHECK_RECEIVER, webhooks.check_receiver, PushCall, final=NOT_SENT),
        _handler(READ_CHANGE, read_change, ChangeCall, final=failures.UNREADABLE),
    )


def _tool_names(registry: Registry) -> ToolNames:
    """Return the names of the tools of agents that need no factory."""
    offered = [tool for agent in registry.agents() for tool in agent.toolset().values()]
    tools = [tool for tool in offered if tool.asks is None]
    tools += [tool.undo for tool in tools if tool.undo is not None]
    return ToolNames(
        tools,
        has_servers=any(agent.servers for agent in registry.agents()),
        are_hidden=not labels_are_plain(),
    )


def _check_agents(registry: Registry, models: Models, names: ToolNames) -> None:
    """Define every agent once.

    Raises:
        ConfigurationError: A model has no provider, or an agent cannot be defined.
    """
    for agent in registry.agents():
        chain = [Target(model=model) for model in models.resolve(agent.models)]
        define(agent, chain=chain, activity_of=names.activity_of)


def _refuse_unknown_queues(queues: Iterable[str], providers: Collection[str]) -> None:
    """Check that each provider with a queue of its own exists.

    Raises:
        ConfigurationError: One does not.
    """
    unknown = [name for name in queues if name not in providers]
    if unknown:
        raise errors.ConfigurationError(
            f"there is a queue for the provider {unknown[0]!r}, but this worker only has"
            f" {', '.join(sorted(providers))}"
        )


def _handler(
    name: str,
    method: Callable[[V], Awaitable[Any]],
    takes: type[V],
    *,
    may_be_stored: bool = False,
    final: failures.Final = PerdureError,
) -> Handler:
    """Wrap a typed method as an activity with raw payloads and typed failures.

    `may_be_stored` allows a larger result if the client has an external storage. Errors that are
    not `final` are tried again if the workflow allows it; an exception of another class, which is a
    bug, is logged and counts as a `PerdureError`.
    """

    async def run(raw: RawValue) -> RawValue:
        with failures.typed(final), logged():
            if is_foreign(raw.payload):  # another worker may have the codec
                raise failures.of_activity(undecodable(None, [raw.payload]), is_final=False)
            result = await method(unpack(raw, takes))
            is_stored = activity.client().data_converter.external_storage is not None
            most_bytes = (
                limits.STORED_BYTES if may_be_stored and is_stored else limits.PAYLOAD_BYTES
            )
            return pack(result, f"the result of {name}", most_bytes=most_bytes)

    run.__annotations__ = {"raw": RawValue, "return": RawValue}  # or the SDK evaluates the names
    return activity.defn(name=name)(run)
