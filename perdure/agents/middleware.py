"""Middleware: checks before a turn and after it, a timeout, a line in the log.

The first in an agent's list is the outermost.

A `Timeout` and a `Logger` are values that the turn itself interprets. User code runs in the worker,
each call as an activity: `before` gets the task, `after` the report of a turn that has an answer.
Their exceptions end the turn: a `GuardrailError` unchanged, any other error converted to a
`PerdureError` (`Recovery` is the name of this conversion, which is always on). A cancel is never
suppressed.
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
    """Base class of user-defined middleware: override one of the two methods, or both."""

    async def before(self, task: Task) -> None:
        """Called before the first step. Raise `GuardrailError` to refuse the task.

        Called as well with each further message of the user, as the content of the task, before the
        model reads it.
        """

    async def after(self, report: AgentReport) -> None:
        """Called with the report of a turn that has an answer; its output has the agent's type.

        Its `steps` and `messages` may begin in the middle of a long turn, see `messages_from`.
        Raise `GuardrailError` to refuse it.
        """


Check = Callable[..., bool | str | Awaitable[bool | str]]
"""A check returns `True` to accept, `False` or a reason to refuse; sync or async."""


@dataclass(frozen=True)
class InputGuardrail(Middleware):
    """Refuses a task with `check(task)`, before anything is spent.

    Each further message of the user is checked like a task, before the model reads it.
    """

    check: Annotated[Check, validation.FUNCTION]

    def __post_init__(self) -> None:
        validation.check_fields(InputGuardrail, "InputGuardrail", self)

    async def before(self, task: Task) -> None:
        """Call the check. A worker calls it in a thread, where it may block."""
        self.judge(await _said(self.check(task)))

    def judge(self, said: object, what: str = "the task") -> None:
        """Refuse the task or a message, depending on the result of the check.

        Raises:
            GuardrailError: The check refused it.
            ConfigurationError: The check returned neither a bool nor a string.
        """
        _judge(self.check, said, what)


@dataclass(frozen=True)
class OutputGuardrail(Middleware):
    """Refuses an answer with `check(report)`."""

    check: Annotated[Check, validation.FUNCTION]

    def __post_init__(self) -> None:
        validation.check_fields(OutputGuardrail, "OutputGuardrail", self)

    async def after(self, report: AgentReport) -> None:
        """Call the check. A worker calls it in a thread, where it may block."""
        self.judge(await _said(self.check(report)))

    def judge(self, said: object) -> None:
        """Refuse the answer, depending on the result of the check.

        Raises:
            GuardrailError: The check refused the answer.
            ConfigurationError: The check returned neither a bool nor a string.
        """
        _judge(self.check, said, "the answer")


@dataclass(frozen=True)
class Timeout(Middleware):
    """Limits the wall clock of what comes after it in the list, with `TurnTimeoutError`.

    Waits are included.

    Raises:
        ConfigurationError: The time is not above zero, or longer than 3650 days.
    """

    limit: validation.Time

    def __post_init__(self) -> None:
        validation.check_fields(Timeout, "Timeout", self)


@dataclass(frozen=True)
class Logger(Middleware):
    """Writes lines to the worker's log when a turn enters it, and when the turn leaves it.

    Its position in the list determines when that is.

    Raises:
        ConfigurationError: The level is not a number, such as `logging.DEBUG`.
    """

    level: validation.CountOrZero = logging.INFO

    def __post_init__(self) -> None:
        validation.check_fields(Logger, "Logger", self)


@dataclass(frozen=True)
class Recovery(Middleware):
    """Marks the place where exceptions are typed. It is always on, so naming it is optional."""


async def _said(result: object) -> object:
    return await result if inspect.isawaitable(result) else result


def _judge(check: Check, result: object, subject_name: str) -> None:
    if result is True:
        return
    if not isinstance(result, bool | str):
        advice = f"return True to accept {subject_name}, or False or a reason to refuse it"
        raise errors.ConfigurationError(
            f"the guardrail {named(check)} returned {validation.sort(result)}; {advice}"
        )
    reason = result or "no reason given"
    raise errors.GuardrailError(
        f"a guardrail refused {subject_name}: {reason}",
        context={"guardrail": getattr(check, "__name__", type(check).__name__)},
    )
