"""The inputs of a turn: its task and its context."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from perdure import text
from perdure.base import Value
from perdure.validation import Given, Must
from perdure.values.budgets import Budget
from perdure.values.messages import Media, Text, UserMessage, brief_text


class Task(Given):
    """The task of a turn, with its constraints.

    Attributes:
        content: Plain text, or a list of parts if there is more than text.
        type: A user-defined name that is recorded with it in history and in the log.
        allowed_tools: The only tools that are offered; calling another one ends the turn. None for
            every tool, `()` for none.
        budget: The budget of the turn. Each limit that the turn is started with overrides it.
        requires_human_approval: Whether every call of a tool that is not read-only waits for
            approval.
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
        """The text of the task."""
        return (
            self.content if isinstance(self.content, str) else UserMessage(parts=self.content).text
        )

    @property
    def brief(self) -> str:
        """Its text for people, with the kind and size of each image and file in its place."""
        return self.content if isinstance(self.content, str) else brief_text(self.content)


class Context(Given):
    """Named blocks given with a task, such as memory or documents.

    They are placed before it in the first message. A turn never changes them.
    """

    blocks: dict[str, str]


class TurnInfo(Value):
    """The information about a turn that a factory gets to make an agent."""

    turn_id: str
    agent: str
    task: Task
    labels: dict[str, str] = {}


def opening(task: Task, context: Context | None) -> UserMessage:
    """Return the first message of a turn: the blocks of the context, then the task."""
    blocks = tuple(
        Text(text=f"<{name}>\n{body}\n</{name}>\n\n")
        for name, body in (context.blocks if context else {}).items()
    )
    parts = (Text(text=task.content),) if isinstance(task.content, str) else task.content
    return UserMessage(parts=blocks + parts)


def headline(task: Task) -> str:
    """Return the task in one line, for lists."""
    return text.one_line(task.brief, 120)
