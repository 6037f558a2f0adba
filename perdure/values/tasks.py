"""What a turn is given."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from perdure import text
from perdure.base import Value
from perdure.validation import Given, Must
from perdure.values.budgets import Budget
from perdure.values.messages import Media, Text, UserMessage


class Task(Given):
    """What is asked, and under which constraints.

    Attributes:
        content: Plain text, or parts where there is more than text.
        type: A name of your own that stands with it in history and in the log.
        allowed_tools: Only these tools are offered, and calling another ends the turn; None for
            every tool, `()` for none.
        budget: What the turn may spend; what it is started with goes before it, limit by limit.
        requires_human_approval: Every call of a tool that is not read-only waits until somebody
            approves it.
    """

    content: Annotated[
        str | tuple[Annotated[Text | Media, Field(discriminator="type")], ...],
        Must("a string, or a list of Text and Media"),
    ]
    type: str = ""
    allowed_tools: tuple[str, ...] | None = None
    budget: Budget | None = None
    requires_human_approval: bool = False

    @property
    def text(self) -> str:
        """The words of the task."""
        return (
            self.content if isinstance(self.content, str) else UserMessage(parts=self.content).text
        )


class Context(Given):
    """Named blocks given with a task, such as memory or documents.

    They stand before it in the first message. A turn never changes them.
    """

    blocks: dict[str, str]


class TurnInfo(Value):
    """What a factory may know about the turn that it makes an agent for."""

    turn_id: str
    agent: str
    task: Task
    labels: dict[str, str] = {}


def opening(task: Task, context: Context | None) -> UserMessage:
    """The message that begins a turn: the blocks of the context, then the task."""
    blocks = tuple(
        Text(text=f"<{name}>\n{body}\n</{name}>\n\n")
        for name, body in (context.blocks if context else {}).items()
    )
    parts = (Text(text=task.content),) if isinstance(task.content, str) else task.content
    return UserMessage(parts=blocks + parts)


def headline(task: Task) -> str:
    """The task in one line, for lists."""
    return text.one_line(task.text, 120)
