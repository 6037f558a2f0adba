"""Middleware: checks before a turn and after it, a timeout, a line in the log.

The first in an agent's list is the outermost.

A `Timeout` and a `Logger` are values that the turn itself interprets. Code of yours runs in the
worker, each call as an activity: `before` sees the task, `after` the report of a turn that has an
answer. What they raise ends the turn: a `GuardrailError` as it is, anything else typed as a
`PerdureError` (which is what `Recovery` names; it is always on). A cancel is never swallowed.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from perdure import errors, validation
from perdure.agents.tracebacks import named
from perdure.values.reports import AgentReport
from perdure.values.tasks import Task


class Middleware:
    """Base of middleware of your own: override one of the two, or both."""

    async def before(self, task: Task) -> None:
        """Called before the first step. Raise `GuardrailError` to refuse the task."""

    async def after(self, report: AgentReport) -> None:
        """Called with the report of a turn that has an answer, its output in the agent's type.

        Raise `GuardrailError` to refuse it.
        """


Check = Callable[..., bool | str | Awaitable[bool | str]]
"""A check returns `True` to accept, `False` or a reason to refuse; sync or async."""


@dataclass(frozen=True)
class InputGuardrail(Middleware):
    """Refuses a task before anything is spent: `check(task)`."""

    check: Annotated[Check, validation.FUNCTION]

    def __post_init__(self) -> None:
        validation.check_fields(InputGuardrail, "InputGuardrail", self)

    async def before(self, task: Task) -> None:
        """Ask the check. A worker asks it in a thread, where it may block."""
        self.judge(await _said(self.check(task)))

    def judge(self, said: object) -> None:
        """Refuse the task, if that is what the check said.

        Raises:
            GuardrailError: It is.
            ConfigurationError: The check returned neither a bool nor a string.
        """
        _judge(self.check, said, "the task")


@dataclass(frozen=True)
class OutputGuardrail(Middleware):
    """Refuses an answer: `check(report)`."""

    check: Annotated[Check, validation.FUNCTION]

    def __post_init__(self) -> None:
        validation.check_fields(OutputGuardrail, "OutputGuardrail", self)

    async def after(self, report: AgentReport) -> None:
        """Ask the check. A worker asks it in a thread, where it may block."""
        self.judge(await _said(self.check(report)))

    def judge(self, said: object) -> None:
        """Refuse the answer, if that is what the check said.

        Raises:
            GuardrailError: It is.
            ConfigurationError: The check returned neither a bool nor a string.
        """
        _judge(self.check, said, "the answer")


@dataclass(frozen=True)
class Timeout(Middleware):
    """Ends what stands after it in the list with `TurnTimeoutError`: wall clock, waits included.

    Raises:
        ConfigurationError: The time is not above zero, or longer than 3650 days.
    """

    limit: validation.Time

    def __post_init__(self) -> None:
        validation.check_fields(Timeout, "Timeout", self)


@dataclass(frozen=True)
class Logger(Middleware):
    """Writes a line to the worker's log when the turn comes in, and one when it goes out, at its place in the list.

    Raises:
        ConfigurationError: The level is no number, such as `logging.DEBUG`.
    """

    level: validation.CountOrZero = logging.INFO

    def __post_init__(self) -> None:
        validation.check_fields(Logger, "Logger", self)


@dataclass(frozen=True)
class Recovery(Middleware):
    """Says by its place whose exceptions are typed. It is always on, so it need not be named."""


async def _said(said: object) -> object:
    return await said if inspect.isawaitable(said) else said


def _judge(check: Check, said: object, what: str) -> None:
    if said is True:
        return
    if not isinstance(said, bool | str):
        wanted = f"return True to accept {what}, or False or a reason to refuse it"
        raise errors.ConfigurationError(
            f"the guardrail {named(check)} returned {validation.sort(said)}; {wanted}"
        )
    reason = said or "no reason given"
    raise errors.GuardrailError(
        f"a guardrail refused {what}: {reason}",
        context={"guardrail": getattr(check, "__name__", type(check).__name__)},
    )
