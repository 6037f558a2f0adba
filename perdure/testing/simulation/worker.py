"""The worker of a simulation: the product's own activities over simulated histories.

Agents are resolved, requests to models are built, policies are asked and histories are carried over
by the code of a real worker. Only models and tools are played: by the world.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, cast

from pydantic import BaseModel
from temporalio.activity import Info
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from perdure.activities import effect_keys, heartbeats, streaming
from perdure.activities.call_tool import Handler
from perdure.activities.effect_keys import Recognized
from perdure.activities.effects_afterwards import EffectsAfterwards
from perdure.activities.effects_before_reset import EffectsBeforeReset
from perdure.activities.provider import Heard, ModelRequest
from perdure.activities.webhook_rules import WebhookRules
from perdure.activities.webhooks import NOT_SENT, Webhooks, not_delivered
from perdure.agents.agent import Agent
from perdure.agents.tools import Tool
from perdure.agents.versions import parts_of
from perdure.delivery.webhook import Delivered, Notification
from perdure.live_text.values import LiveText
from perdure.temporal import failures
from perdure.temporal.names import (
    CALL_MODEL,
    CANCEL_CALL,
    NOTIFY,
    POLL_CALL,
    RESOLVE_AGENT,
    SEND_MESSAGE,
    VERIFY,
)
from perdure.temporal.payloads import pack, unpack
from perdure.testing.simulation.calls.jobs import with_known_secret
from perdure.testing.simulation.clients.session_messages import MessageSender
from perdure.testing.simulation.clients.worker_client import WorkerClient
from perdure.testing.simulation.features.earlier_release import EarlierRelease
from perdure.testing.simulation.features.versions import FEATURE, both_versions
from perdure.testing.simulation.server.activity_info import info_of
from perdure.testing.simulation.server.loops import loop_of
from perdure.testing.simulation.server.runs import Activity
from perdure.testing.simulation.server.sdk import failure_of
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.testing.simulation.world import HOST, PRICE
from perdure.turn.effect_values import Verification
from perdure.turn.keys import ToolKey, parse_key
from perdure.turn.wire import Noted, ToolOutput, ToolRun
from perdure.values.answers import ModelAnswer
from perdure.values.messages import Text
from perdure.worker import AgentWorker, internals
from perdure.worker.assembly import build
from perdure.worker.settings import WorkerSettings

_SETTINGS = WorkerSettings(webhook_hosts=(HOST,), webhook_secrets=("whsec_" + "c2VjcmV0" * 4,))
_WEBHOOKS = Webhooks(WebhookRules.of(_SETTINGS.webhook_hosts, _SETTINGS.webhook_secrets))


class World(Protocol):
    """What is outside of Perdure: models, tools, and the receivers of webhooks."""

    def answer(self, activity: Activity, request: ModelRequest) -> ModelAnswer:
        """Return the answer of a model.

        Raises:
            LLMError: The provider fails.
        """

    def result(self, activity: Activity, run: ToolRun, effect_key: str = "") -> ToolOutput:
        """Return the result of a tool. `effect_key` is the key of its effect, if there is one.

        Raises:
            PerdureError: The activity fails.
        """

    def resolved(self, definition: RawValue) -> RawValue:
        """Return the definition of an agent with what its servers list now."""

    def look_up(self, effect_key: str) -> Verification:
        """Return whether the effect with a key is there.

        Raises:
            ApplicationError: The service is away.
        """

    def poll(self, run: ToolRun) -> ToolOutput:
        """Return the result of a job.

        Raises:
            ApplicationError: There is none yet, or the service is away.
        """

    def stop(self, run: ToolRun) -> None:
        """Cancel a job.

        Raises:
            ApplicationError: The service is away.
        """

    def receive(self, activity: Activity, sent: Notification) -> int:
        """Return the status with which a receiver answers a message."""


class SimulatedWorker:
    """Does the work of activities, at once in virtual time.

    It has two processes, each with its caches. An attempt runs in one of them.

    Attributes:
        client: The client of its activities.
        misheard: The first live text that is not that of its call; empty if there is none.
        earlier: The release that the workers have at first; None if it is this one.
    """

    def __init__(self, server: SimulatedServer, agents: Sequence[Agent[Any]], world: World) -> None:
        self._server = server
        self._world = world
        self.misheard = ""
        self._said = ""
        self._running: Activity | None = None
        self.earlier: EarlierRelease | None = None
        self.client = WorkerClient(server)
        self._client = cast("Client", self.client)
        self._models = {model for agent in agents for model in agent.models} | {"model:second"}
        self._tools = {name: item for agent in agents for name, item in agent.toolset().items()}
        self._agents = dict.fromkeys((0, 1), agents)
        self._processes: dict[int, dict[str, Handler]] = {}
        self._before_reset = EffectsBeforeReset()
        self._afterwards = EffectsAfterwards()
        self._loop = loop_of("activities")
        self._played: dict[str, Callable[[Activity], BaseModel]] = {
            VERIFY: self._verification,
            POLL_CALL: self._polled,
            CANCEL_CALL: self._polled,
            SEND_MESSAGE: MessageSender(server, self.client).send,
        }

    def deploy(self, place: int, agents: Sequence[Agent[Any]]) -> None:
        """Start one of the processes again, with these agents."""
        self._agents[place] = agents
        self._processes.pop(place, None)

    def _app(self, place: int) -> AgentWorker:
        """Return the worker of a process; the vendors of all models are the world."""
        prefixes = {model.partition(":")[0] for model in self._models}
        has_versions = self._server.choices.has(FEATURE)
        given = self._agents[place]
        agents, rollouts = both_versions(given) if has_versions else (given, {})
        return AgentWorker(
            agents,
            rollouts=rollouts,
            providers=dict.fromkeys(prefixes, self),
            prices=dict.fromkeys(self._models, PRICE),
        )

    def _place(self) -> int:
        """Return the process that gets an attempt."""
        return self._server.choices.pick((0, 0, 0, 1))

    def _called(self, activity: Activity) -> ToolOutput:
        """Call a tool, unless the process does not have it any more."""
        with failures.typed():
            run = unpack(RawValue(activity.input), ToolRun)
            if not self._has(run.owner, run.undoes or run.tool or activity.type):
                return ToolOutput(content="the deployed worker does not have it", is_error=True)
            return self._result(activity, run)

    def _has(self, owner: str, tool: str) -> bool:
        """Return whether the process that gets an attempt has a tool."""
        is_same = self._agents[0] is self._agents[1]
        deployed = self._agents[0 if is_same else self._place()]
        agent = {agent.name: agent for agent in deployed}.get(parts_of(owner)[0])
        return agent is not None and tool in agent.toolset()

    def _polled(self, activity: Activity) -> BaseModel:
        """Poll for the result of a job, or cancel the job.

        Raises:
            ApplicationError: The process does not have the tool, or the service is away.
        """
        run = unpack(RawValue(activity.input), ToolRun)
        if not self._has(run.owner, run.tool):
            raise ApplicationError("the deployed worker does not have it")
        if activity.type == POLL_CALL:
            return self._world.poll(run)
        self._world.stop(run)
        return Noted()

    def _handler(self, activity: Activity) -> Handler:
        """Return the code of an activity, in the process that has got it."""
        place = self._place()
        if place not in self._processes:
            built = build(self._app(place), _SETTINGS)
            self._processes[place] = {
                internals.activity_name(one): one for one in (*built.others, built.call_model)
            }
        return self._processes[place][activity.type]

    def execute(self, activity: Activity) -> Payload | Failure:
        """Do the work of an attempt."""
        try:
            heartbeats.refuse_second_attempt(self._info(activity))
            if isinstance(parse_key(activity.key), ToolKey):
                return pack(self._called(activity)).payload
            if activity.type in self._played:
                return pack(self._played[activity.type](activity)).payload
            if activity.type == NOTIFY:
                with failures.typed(NOT_SENT):
                    return pack(self._delivered(activity)).payload
            return self._loop.run_until_complete(self._executed(activity)).payload
        except Exception as error:  # noqa: BLE001 - an activity may raise anything
            return failure_of(error)

    def _result(self, activity: Activity, run: ToolRun) -> ToolOutput:
        """Return the result of a tool, unless its effect is known."""
        item = self._tool(activity, run)
        effect = Recognized() if item is None else self._recognized(activity, item, run)
        if item is None or not effect.key:
            return self._world.result(activity, run)
        run_id = activity.run.begun.run_id
        known = effect.instead_of_call(
            item, lambda same: self._before_reset.result_of(run_id, same)
        )
        if known is not None:
            return known
        output = self._world.result(activity, run, effect.service_key)
        return output.model_copy(update=effect.fields)

    def _tool(self, activity: Activity, run: ToolRun) -> Tool | None:
        """Return the tool of a call, which may take back the calls of another one."""
        item = self._tools.get(run.undoes or run.tool or activity.type)
        return item.undo if item is not None and run.undoes else item

    def _recognized(self, activity: Activity, item: Tool, run: ToolRun) -> Recognized:
        """Return the effect of a call, with what was said since, and done before a reset."""
        info, run_id = self._info(activity), activity.run.begun.run_id
        if run.effect_scope:
            self.run(self._before_reset.learn(self._client, info))
        before_reset = self._before_reset.of(run_id, item.name)
        effect = effect_keys.recognized(item, run, before_reset)
        self.run(self._afterwards.learn(self._client, info, effect))
        return self._afterwards.of(item, run_id, effect)

    def _verification(self, activity: Activity) -> Verification:
        """Look the effect of a call up, under the key that it was made with."""
        run = unpack(RawValue(activity.input), ToolRun)
        item = self._tool(activity, run)
        assert item is not None
        effect = self._recognized(activity, item, run)
        return self._world.look_up(effect.service_key).model_copy(update=effect.fields)

    def _delivered(self, activity: Activity) -> Delivered:
        """Send a message, as far as the network.

        Raises:
            WebhookRefusedError: The worker does not send to its host.
            ApplicationError: It was not delivered.
        """
        sent = unpack(RawValue(activity.input), Notification)
        _WEBHOOKS.check(sent.url)
        status = self._world.receive(activity, sent)
        if 200 <= status < 300:
            return Delivered(status=status, attempts=activity.attempt)
        raise not_delivered(HOST, status, {})

    def _info(self, activity: Activity) -> Info:
        """Return what an activity knows of itself."""
        return info_of(activity, self._server.clock.now_ns)

    async def _executed(self, activity: Activity) -> RawValue:
        environment = ActivityEnvironment(self._client)
        environment.info = self._info(activity)
        self._running = activity
        handler = self._handler(activity)
        told: list[LiveText] = []
        heartbeats.beat_with(lambda payload: told.append(unpack(payload, LiveText)))
        self._said = ""
        try:
            result: RawValue = await environment.run(handler, RawValue(activity.input))
        finally:
            self._check_told(activity, told)
        if activity.type == RESOLVE_AGENT:
            result = with_known_secret(self._world.resolved(result), activity)
            return self.earlier.resolved(result) if self.earlier else result
        if activity.type != CALL_MODEL:
            return result
        answer = unpack(result, ModelAnswer)  # the machine's clock has no place in a simulation
        return pack(answer.model_copy(update={"duration_ms": 0}))

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer a request, as the provider of all models."""
        assert self._running is not None
        return self._world.answer(self._running, request)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Answer a request, as `complete` does, and say the text in pieces before that."""
        answer = await self.complete(request)
        self._said = "".join(part.text for part in answer.message.parts if isinstance(part, Text))
        half = len(self._said) // 2
        for piece in filter(None, (self._said[:half], self._said[half:])):
            heard(piece)
            await asyncio.sleep(2 * streaming.EVERY_S)
            self._server.counts["pieces of live text"] += 1
        return answer

    def _check_told(self, activity: Activity, told: Sequence[LiveText]) -> None:
        """Note the first live text that is not what the model has said in this call."""
        for live in told:
            end = live.offset + len(live.text)
            if self._said[live.offset : end] != live.text and not self.misheard:
                self.misheard = f"{activity.key} of {activity.run.id}: {live.text!r}"

    async def close(self) -> None:
        """Close nothing."""

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end, between two activities."""
        return self._loop.run_until_complete(coroutine)
