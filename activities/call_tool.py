"""The activities that run tools.

A failing tool is data for the model, so these activities return an error result instead of failing.

Each tool name is its own activity type: sync functions run in the worker's threads, where they can
be interrupted, async functions on the tool loop. Tools that were unknown when the worker started,
such as those made by a factory, and local calls, run under `perdure.call_tool` or
`perdure.call_sync_tool`. Tools of MCP servers run under their own names through the worker's single
dynamic activity, if an agent has servers when the worker starts.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError

from perdure import errors, limits
from perdure.activities import effect_keys, heartbeats, output_validation, tool_compatibility
from perdure.activities.effect_keys import Recognized
from perdure.activities.effects_afterwards import EffectsAfterwards
from perdure.activities.effects_before_reset import EffectsBeforeReset
from perdure.activities.error_log import log_raised, logged
from perdure.activities.mcp.toolboxes import Servers
from perdure.activities.resolve_agent import Agents
from perdure.activities.tool_compatibility import error_result, unknown_result
from perdure.activities.tool_loop import ToolLoop
from perdure.activities.tool_results import fitted, most_bytes, output_of
from perdure.activities.transcripts import Transcripts
from perdure.activities.unknown_outcomes import may_have_taken_effect
from perdure.agents.mcp_effects import MCPReader
from perdure.agents.mcp_servers import BETWEEN, MCPTool
from perdure.agents.tool_context import OutcomeUnknown, Sharing, ToolContext
from perdure.agents.tools import Tool
from perdure.agents.tracebacks import place_of, raised
from perdure.schemas.tool_arguments import StatedArguments
from perdure.temporal import failures, secrets
from perdure.temporal.names import CALL_SYNC_TOOL, CALL_TOOL, TURN
from perdure.temporal.payloads import pack, raw_input, unpack
from perdure.text import clean, described, size, words_of
from perdure.turn import call_tokens
from perdure.turn.effect_values import KnownEffect
from perdure.turn.keys import ToolKey, VerifyKey, parse_key
from perdure.turn.wire import ToolOutput, ToolRun
from perdure.values.losses import CallLoss, Loss

Handler = Callable[..., Any]

_NO_DEPS = " (this worker has no lifespan, so ctx.deps is None)"
_ROOT = re.compile(r"(^|; )answer: ")
"""The name of the whole value in messages of `output_validation`."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A call with valid arguments, ready to run."""

    tool: Tool
    arguments: Mapping[str, Any]
    run: ToolRun
    began: datetime
    stated: Mapping[str, Any] | None = None
    """The model's arguments only, which must fit the schema that the tool was made from."""
    lacks_deps: bool = False
    """Whether the tool takes a context, but the worker has no lifespan to provide deps."""
    effect: Recognized = Recognized()
    """The effect of the call, if the tool says what it is."""

    @property
    def what(self) -> str:
        """The name of the call in the log."""
        return f"tool {self.tool.name!r}"

    def completed(self, output: ToolOutput) -> ToolOutput:
        """Return the result with the key of the effect, and what it changes of the shared state."""
        fields: dict[str, Any] = dict(self.effect.fields) if self.effect.key else {}
        context = self.arguments.get(self.tool.context_parameter or "")
        if isinstance(context, ToolContext) and not output.is_error:
            fields["shared_patch"] = context.sharing.patch
        return output.model_copy(update=fields) if fields else output


class ToolNames:
    """The tools that are known when the worker starts.

    Each name becomes an activity, which is sync if any tool of that name is. `has_servers` enables
    the dynamic activity for tools of MCP servers. `taken` are activity types that the user
    registers. With `are_hidden`, turns that begin here run every tool by a general activity, since
    activity types are not encrypted; earlier turns still find the activities of these names.
    """

    def __init__(
        self, tools: Iterable[Tool], *, has_servers: bool = False, are_hidden: bool = False
    ) -> None:
        self.is_async: dict[str, bool] = {}
        self.has_servers = has_servers
        self._are_hidden = are_hidden
        self.taken: Collection[str] = ()
        for item in tools:
            self.is_async[item.name] = self.is_async.get(item.name, True) and item.is_async

    def activity_of(self, item: Tool) -> str:
        """Return the activity type that runs a tool."""
        is_of_server = isinstance(item, MCPTool) and self.is_of_server(item.name)
        has_own = item.name in self.is_async or is_of_server
        if has_own and not self._are_hidden:
            return item.name
        return CALL_TOOL if item.is_async else CALL_SYNC_TOOL

    def is_of_server(self, name: str) -> bool:
        """Return whether the dynamic activity runs tools of this name."""
        return self.has_servers and BETWEEN in name and name not in self.taken


class ToolActivities:
    """Runs the tools of `agents`.

    Tools in `names` are activities of their own; others run under two general activity types.

    Attributes:
        has_storage: Whether the worker's client has an external storage, which holds large results.
    """

    def __init__(
        self,
        names: ToolNames,
        agents: Agents,
        loop: ToolLoop,
        servers: Servers,
        transcripts: Transcripts,
        before_reset: EffectsBeforeReset,
        afterwards: EffectsAfterwards,
    ) -> None:
        self._names = names
        self._servers = servers
        self._agents = agents
        self._loop = loop
        self._transcripts = transcripts
        self._before_reset = before_reset
        self._afterwards = afterwards
        self.has_storage = False

    def handlers(self) -> list[Handler]:
        """Return the activities to register."""
        kinds = {**self._names.is_async, CALL_TOOL: True, CALL_SYNC_TOOL: False}
        return [
            *(self._handler(name, is_async) for name, is_async in kinds.items()),
            *([self._dynamic()] if self._names.has_servers else []),
        ]

    def _handler(self, name: str, is_async: bool) -> Handler:
        def run_sync(raw: RawValue) -> RawValue:
            with failures.typed(), logged():
                return self._run_sync(unpack(raw, ToolRun))

        async def run(raw: RawValue) -> RawValue:
            with failures.typed(), logged():
                return await self._run_async(unpack(raw, ToolRun))

        return activity.defn(name=name)(run if is_async else run_sync)

    def _dynamic(self) -> Handler:
        async def run_tool_of_server(args: Sequence[RawValue]) -> RawValue:
            info = activity.info()
            if info.workflow_type != TURN or not self._names.is_of_server(info.activity_type):
                raise ApplicationError(
                    f"Activity function {info.activity_type} is not registered on this worker",
                    type=failures.NOT_REGISTERED,
                )
            with failures.typed(), logged():
                return await self._run_async(unpack(raw_input(args), ToolRun))

        return activity.defn(dynamic=True)(run_tool_of_server)

    def _run_sync(self, run: ToolRun) -> RawValue:
        began = time.monotonic()
        ready = _fitting(self._prepared(run))
        if isinstance(ready, ToolOutput):
            return self._done(run, ready, began)
        if ready.tool.is_async:
            output = self.loop_of(ready.tool).run_blocking(_awaited(ready), ready.what)
        else:
            output = _called(ready)
        return self._done(run, ready.completed(output), began)

    async def _run_async(self, run: ToolRun) -> RawValue:
        began = time.monotonic()
        ready = self._prepared(run)
        if isinstance(ready, _Ready) and ready.stated is not None:
            ready = await asyncio.to_thread(_fitting, ready)  # it may take its time
        if isinstance(ready, ToolOutput):
            return self._done(run, ready, began)
        if ready.tool.is_async:
            output = await self.loop_of(ready.tool).run(_awaited(ready), ready.what)
        else:
            output = await asyncio.to_thread(_called, ready)
        return self._done(run, ready.completed(output), began)

    def loop_of(self, item: Tool) -> ToolLoop:
        """Return the loop on which an async tool runs."""
        return self._servers.loop if isinstance(item, MCPTool | MCPReader) else self._loop

    def deployed(self, run: ToolRun) -> Tool | None:
        """Return the deployed tool of a call; None if there is none."""
        info = activity.info()
        name = run.undoes or run.tool or info.activity_type
        item = self._agents.tool(info.workflow_run_id or "", run.owner, name, run.schema_digest)
        return item.undo if item is not None and run.undoes else item

    def _prepared(self, run: ToolRun) -> _Ready | ToolOutput:
        """Find the tool and parse the arguments; a result means that the tool does not run."""
        info = activity.info()
        name, run_id = run.tool or info.activity_type, info.workflow_run_id or ""
        item = self.deployed(run)
        if item is None:
            return error_result(
                f"{name}: the deployed worker does not have this tool of agent {run.owner} any more"
            )
        if info.is_local and not item.read_only:
            raise failures.not_local(f"{name} is not read-only any more since a deploy")
        try:
            arguments = item.arguments.parse(clean(run.arguments))
        except ValueError as error:
            return tool_compatibility.refused(run, item, str(error))
        held_back = tool_compatibility.held_back(
            run, item, self._agents.approval(info.workflow_run_id or "", run.owner)
        )
        if held_back is not None:
            return held_back
        if item.pinned_job is not None and not run.token:
            return error_result(
                f"{name} was not called: since a deploy, its result comes later, and this turn"
                " began before that"
            )
        stated = dict(arguments) if isinstance(item.arguments, StatedArguments) else None
        effect = self._effect_of(item, run, run_id)
        if isinstance(effect, ToolOutput):
            return effect
        if item.context_parameter:
            context = self.context(run, info, name, effect.service_key, may_change=True)
            arguments[item.context_parameter] = context
        lacks_deps = bool(item.context_parameter) and not self._loop.has_lifespan
        return _Ready(item, arguments, run, info.started_time, stated, lacks_deps, effect)

    def _effect_of(self, item: Tool, run: ToolRun, run_id: str) -> Recognized | ToolOutput:
        """Recognize the effect of a call; a result means that the call is not made."""
        try:
            effect = self.recognized(item, run, run_id)
        except Exception as error:  # noqa: BLE001 - it is code of the tool
            log_raised(f"effect= of tool {item.name!r} raised {raised(error)}", error)
            return error_result(
                f"{item.name} was not called: its effect= failed: {described(error)}"
            )
        known = effect.instead_of_call(
            item, lambda same: self._before_reset.result_of(run_id, same)
        )
        return effect if known is None else known

    async def learn(self, client: Client, run: ToolRun) -> None:
        """Read what this turn does not know of the effect of a call, before it is made.

        Raises:
            PayloadDecodeError: This process lacks the codec or the key.
            RPCError: The server does not answer.
        """
        info = activity.info()
        await self._before_reset.learn(client, info)
        name, run_id = run.tool or info.activity_type, info.workflow_run_id or ""
        known = (*run.known, *self._before_reset.of(run_id, name))
        if all(one.is_done and not one.can_undo for one in known):
            return
        item = await asyncio.to_thread(self.deployed, run)  # a resolver may block
        if item is not None:
            effect = await asyncio.to_thread(_recognized_if_possible, item, run, known)
            await self._afterwards.learn(client, info, effect)

    def recognized(self, item: Tool, run: ToolRun, run_id: str) -> Recognized:
        """Return the effect of a call. What `effect=` of the tool raises is passed on."""
        effect = effect_keys.recognized(item, run, self._before_reset.of(run_id, item.name))
        return self._afterwards.of(item, run_id, effect)

    def context(
        self,
        run: ToolRun,
        info: activity.Info,
        name: str,
        effect_key: str,
        *,
        may_change: bool = False,
    ) -> ToolContext[Any]:
        """Return the context of a call, which may change the shared state, or of its read-back."""
        parsed = parse_key(info.activity_id)
        key = parsed if isinstance(parsed, ToolKey | VerifyKey) else ToolKey(0, 0)
        turn_id = info.workflow_id or ""
        idempotency_key = run.idempotency_key(turn_id, key.step, key.call, name)
        return ToolContext(
            deps=self._loop.deps,
            turn_id=turn_id,
            call_id=run.call_id,
            idempotency_key=idempotency_key,
            effect_key=effect_key or idempotency_key,
            # else no attempt has called the tool
            attempt=(key.attempt if run.repeats or run.approved is None else 1),
            labels=run.labels,
            beat=heartbeats.beat_of_this_activity(),
            read_secret=secrets.read,
            call_token=run.token,
            answers=run.answers,
            sharing=Sharing(run.shared_state, may_change=may_change),
        )

    def _done(self, run: ToolRun, output: ToolOutput, began: float) -> RawValue:
        output = output.model_copy(update={"duration_ms": int((time.monotonic() - began) * 1000)})
        info = activity.info()
        name = run.tool or info.activity_type
        output = fitted(output, name, run.media_bytes, has_storage=self.has_storage)
        if info.is_local and output.media:
            raise failures.not_local(f"{name} returned images or files")
        key = parse_key(info.activity_id)
        if isinstance(key, ToolKey) and info.workflow_run_id:
            self._transcripts.remember_result(info.workflow_run_id, key, run.call_id, output)
        limit = most_bytes(output, has_storage=self.has_storage)
        return pack(output, f"the result of {name}", most_bytes=limit)


def _recognized_if_possible(item: Tool, run: ToolRun, known: Sequence[KnownEffect]) -> Recognized:
    """Return the effect of a call; nothing if `effect=` fails, which the call itself reports."""
    try:
        return effect_keys.recognized(item, run, known)
    except BaseException:  # noqa: BLE001 - it is code of the tool, which may even exit
        return Recognized()


def _fitting(ready: _Ready | ToolOutput) -> _Ready | ToolOutput:
    """Return an error result if the arguments do not fit the schema that the tool was made from."""
    if isinstance(ready, ToolOutput) or ready.stated is None:
        return ready
    try:
        output_validation.validator(ready.tool.arguments.schema)(ready.stated)
    except ValueError as error:
        reason = _ROOT.sub(r"\1arguments: ", str(error))
    except errors.PerdureError as error:
        reason = error.message
    else:
        return ready
    return tool_compatibility.refused(ready.run, ready.tool, reason)


def _called(ready: _Ready) -> ToolOutput:
    try:
        return _returned(ready, ready.tool.function(**ready.arguments))
    except CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - everything that a tool raises is for the model, even SystemExit
        return _raised(ready, error)


async def _awaited(ready: _Ready) -> ToolOutput:
    try:
        coroutine: Coroutine[Any, Any, object] = ready.tool.function(**ready.arguments)
        value = await coroutine
        return _returned(ready, _finished(value))
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        return _raised(ready, error)


def _returned(ready: _Ready, value: object) -> ToolOutput:
    """Return the result for what a function returned: of a job, its handle."""
    tool, token = ready.tool, ready.run.token
    if isinstance(value, ToolOutput) or not token or tool.pinned_job is None:
        return output_of(value)  # an MCP server says itself whether it has begun a task
    output = output_of("" if value is None else value)
    if output.is_error:
        return output
    if output.media or size(output.content) > limits.HANDLE_BYTES:
        loss = CallLoss.at(Loss.NO_ANSWER, ready.began)
        return unknown_result(
            f"{tool.name} started a job, but its handle is no text of at most"
            f" {limits.HANDLE_BYTES} bytes, so its result cannot be waited for",
            loss,
        )
    return ToolOutput(content="", handle=output.content, proof=call_tokens.proof_of(token))


def _finished(value: object) -> object:
    """Return the value of an async function, which must not itself be awaitable."""
    if not isinstance(value, Awaitable):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise ValueError(
        "the function returned something to await; put await in front of what it returns"
    )


def _raised(ready: _Ready, error: BaseException) -> ToolOutput:
    """Return the error result and log the exception.

    It is no failure if the call may have taken effect. A `ValueError` of Perdure's own toolboxes is
    not logged.
    """
    hint = (
        _NO_DEPS
        if ready.lacks_deps
        and isinstance(error, AttributeError | TypeError)
        and "'NoneType'" in words_of(error)
        else ""
    )
    if place_of(error) or not isinstance(error, ValueError):
        log_raised(f"the {ready.what} raised {raised(error)}{hint}", error, level=logging.WARNING)
    if may_have_taken_effect(ready.tool, error):
        reason = words_of(error) if isinstance(error, OutcomeUnknown) else described(error)
        loss = CallLoss.at(Loss.NO_ANSWER, ready.began)
        return unknown_result(
            f"{ready.tool.name}: {reason}{loss.after}; whether it took effect is unknown", loss
        )
    return error_result(f"{ready.tool.name} failed: {described(error)}{hint}")
