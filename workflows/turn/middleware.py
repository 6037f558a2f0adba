"""Runs middleware around a turn and observers beside it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel
from temporalio import workflow

from perdure import errors, limits
from perdure.agents.definitions import AgentDefinition, Stage
from perdure.agents.versions import address
from perdure.errors import PerdureError
from perdure.temporal.names import RUN_MIDDLEWARE, TELL_OBSERVERS
from perdure.turn.decide import Done
from perdure.turn.facts import HookEnded
from perdure.turn.hook_values import HookCall, ObserverCall
from perdure.turn.keys import HookKey
from perdure.values.reports import Outcome
from perdure.workflows.turn import log_events
from perdure.workflows.turn.calls import Calls
from perdure.workflows.turn.clock import run_until
from perdure.workflows.turn.turn_context import Board

Turn = Callable[[], Coroutine[Any, Any, Done]]

_CHECKS_MESSAGES = "messages-are-checked"
"""Turns of an earlier release checked the task alone."""


class Pipeline:
    """The middleware and the observers of one turn.

    A later run of the turn begins inside its middleware, because the first run has entered it.

    Attributes:
        observed: The number of steps that observers were notified of.
        notified: The number of notifications.
        entered: When the turn entered each middleware, the outermost first.
    """

    def __init__(self, board: Board, calls: Calls) -> None:
        self._board = board
        self._calls = calls
        self.observed = 0
        self.notified = 0
        self.entered: list[datetime] = []
        self._checks = 0
        self._passed: set[str] = set()

    async def through(self, agent: AgentDefinition, turn: Turn, position: int = 0) -> Done:
        """Run `turn` inside the middleware from `position` onwards.

        Raises:
            GuardrailError: A middleware rejected the turn.
            TurnTimeoutError: The turn exceeded the limit of a `Timeout`.
            PerdureError: A middleware or the turn failed.
        """
        if position == len(agent.middleware):
            return await turn()
        stage = agent.middleware[position]
        is_entered = position < len(self.entered)
        if not is_entered:
            self.entered.append(workflow.now())
        inner = functools.partial(self.through, agent, turn, position + 1)
        if stage.timeout_s is not None:
            return await _within(timedelta(seconds=stage.timeout_s), self.entered[position], inner)
        if stage.log_level is not None:
            if not is_entered:
                log_events.passed(self._board.state, "turn_in", stage.log_level)
            return await self._logged(agent, position, stage.log_level, inner)
        if stage.has_before and not is_entered:
            call = HookCall(agent=self._started, place=position, moment="before")
            await self._hook(stage, call, HookKey("before", position + 1), "before the turn")
        return await self._checked(stage, position, inner)

    async def check_messages(self, agent: AgentDefinition) -> bool:
        """Have the middleware check the messages that the model is about to read.

        Returns whether there were any besides those that the turn began with.

        Raises:
            GuardrailError: A middleware rejected a message.
            PerdureError: A middleware failed.
        """
        stages = [(position, stage) for position, stage in enumerate(agent.middleware)]
        checks = [(position, stage) for position, stage in stages if stage.has_before]
        has_checked = False
        while checks and (new := self._unchecked) and workflow.patched(_CHECKS_MESSAGES):
            for position, stage in checks:
                self._checks += 1
                call = HookCall(agent=self._started, place=position, moment="before", messages=new)
                await self._hook(stage, call, HookKey("message", self._checks), "a message")
            self._passed.update(new)
            has_checked = True
        return has_checked

    @property
    def _unchecked(self) -> tuple[str, ...]:
        """The ids of the unread messages that the middleware has not checked in this run."""
        request, unread = self._board.state.request, self._board.state.inbox.unread
        begun_with = {message.id for message in request.said or ()} if request else set()
        passed = self._passed | begun_with
        return tuple(message.id for message in unread if message.id and message.id not in passed)

    async def observe(
        self,
        agent: AgentDefinition,
        *,
        waits_for: str = "",
        reason: str = "",
        outcome: Outcome | None = None,
        risk: str | None = None,
    ) -> None:
        """Notify the agent's observers of what they have not seen."""
        steps = self._board.state.step_count
        if not agent.observes or (steps == self.observed and not waits_for and outcome is None):
            return
        call = ObserverCall(
            agent=self._started,
            seen=self.observed,
            steps=steps,
            waits_for=waits_for,
            reason=reason,
            outcome=outcome,
            risk=risk,
        )
        self.observed, self.notified = steps, self.notified + 1
        observed = (
            f"waits for {waits_for}" if waits_for else outcome.value if outcome else f"step {steps}"
        )
        await self._run(
            HookKey("observe", self.notified), TELL_OBSERVERS, call, f"observers: {observed}"
        )

    @property
    def _started(self) -> str:
        """The agent that the turn was started with. Its code is around the turn after a handoff."""
        request, agent = self._board.state.request, self._board.state.agent
        assert request is not None
        assert agent is not None
        return address(request.agent, agent.version.started)

    async def _checked(self, stage: Stage, position: int, inner: Turn) -> Done:
        done = await inner()
        if stage.has_after:
            call = HookCall(
                agent=self._started,
                place=position,
                moment="after",
                outcome=done.outcome,
                risk=done.risk,
            )
            await self._hook(stage, call, HookKey("after", position + 1), "after the turn")
        return done

    async def _hook(self, stage: Stage, call: HookCall, key: HookKey, summary: str) -> None:
        ended = await self._run(key, RUN_MIDDLEWARE, call, f"{stage.name}, {summary}")
        if ended.error is not None:
            raise errors.from_info(ended.error)

    async def _run(self, key: HookKey, name: str, call: BaseModel, summary: str) -> HookEnded:
        """Run a hook, again where its worker was lost.

        The turn's deadline does not interrupt it, because an unfinished check has not passed.
        """
        attempt = 1
        while True:
            key = replace(key, attempt=attempt)
            fact = await self._calls.perform(
                key, name, call, limits.TOOL_CALL, summary, has_deadline=False
            )
            assert isinstance(fact, HookEnded)
            if not fact.lost or attempt == limits.LOST_ATTEMPTS:
                return fact
            attempt += 1

    async def _logged(self, agent: AgentDefinition, position: int, level: int, inner: Turn) -> Done:
        """Log the end of `inner`. A continue-as-new is not an end."""
        began = self.entered[position]
        try:
            done = await inner()
        except PerdureError as failure:
            self._log_out(level, began, failure.code)
            raise
        except asyncio.CancelledError:
            is_late = self._board.is_too_late or self._is_timed_out(agent.middleware[:position])
            error = errors.TurnTimeoutError if is_late else errors.TurnCancelledError
            self._log_out(level, began, error.code)
            raise
        self._log_out(level, began)
        return done

    def _is_timed_out(self, outer: Sequence[Stage]) -> bool:
        """Return whether the time of one of these stages is up, which cancels what is inside."""
        return any(
            stage.timeout_s is not None
            and workflow.now() >= entered + timedelta(seconds=stage.timeout_s)
            for stage, entered in zip(outer, self.entered, strict=False)
        )

    def _log_out(self, level: int, began: datetime, error: str = "") -> None:
        took_ms = int((workflow.now() - began).total_seconds() * 1000)
        log_events.passed(self._board.state, "turn_out", level, duration_ms=took_ms, error=error)


async def _within(limit: timedelta, began: datetime, inner: Turn) -> Done:
    """Run `inner` with a time limit since `began`."""
    error = errors.TurnTimeoutError(
        f"the turn took longer than {limit}", context={"limit_s": limit.total_seconds()}
    )
    return await run_until(began + limit, inner, f"the turn may take {limit}", error)
