"""Filters for turns: a list filter for Temporal, and a check of its results.

A list filter may find too much, because stores compare differently: SQLite finds `Region=EU` for
`region=eu`. So the results are checked again. The outcome of a turn that could not record it is
derived from Temporal's own status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from temporalio.common import TypedSearchAttributes

from perdure import errors
from perdure.clients.turns.entries import TurnEntry
from perdure.temporal import search_attributes
from perdure.temporal.encryption import hiding
from perdure.temporal.names import TURN
from perdure.values import states
from perdure.values.reports import Outcome
from perdure.values.states import State

_STATUS = {
    Outcome.COMPLETED: "Completed",
    Outcome.TRUNCATED: "Completed",
    Outcome.CANCELLED: "Canceled",
    Outcome.TERMINATED: "Terminated",
    Outcome.TIMED_OUT: "TimedOut",
}
"""Temporal's status of a turn with this outcome; `Failed` for all other outcomes."""

_ENDS = "('Completed', 'Failed', 'Canceled', 'Terminated', 'TimedOut')"
_STATES = {
    State.RUNNING: (
        f"ExecutionStatus = 'Running' AND ({search_attributes.STATE.name} IS NULL OR"
        f" {search_attributes.STATE.name} = 'running')"
    ),
    State.WAITING: f"ExecutionStatus = 'Running' AND {search_attributes.STATE.name} = 'waiting'",
    State.PAUSED: (
        f"ExecutionStatus NOT IN {_ENDS} AND ({search_attributes.STATE.name} = 'paused' OR"
        " ExecutionStatus != 'Running')"
    ),
    State.ENDED: f"ExecutionStatus IN {_ENDS}",
}

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Selects the turns that match all given values; by the types of workflows, also others."""

    agent: str | None = None
    outcome: Outcome | None = None
    state: states.OfTurn | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    parent: str | None = None
    version: str | None = None
    subject: str | None = None
    task_queue: str | None = None
    schedule: str | None = None
    id_prefix: str | None = None
    workflows: tuple[str, ...] = (TURN,)

    @property
    def needs_attributes(self) -> bool:
        """Whether the filter needs the search attributes in the namespace."""
        # any namespace knows the id, the task queue, the schedule and the type of a workflow
        plain = replace(self, task_queue=None, schedule=None, id_prefix=None, workflows=(TURN,))
        return plain != Filter()

    def admits_id(self, workflow_id: str) -> bool:
        """Whether an id that Temporal found begins with the prefix."""
        return workflow_id.startswith(self.id_prefix or "")

    def query(self) -> str:
        """Return Temporal's list filter. A run that continued as new is not a separate turn."""
        types = " OR ".join(f"WorkflowType = '{name}'" for name in self.workflows)
        return " AND ".join(
            [
                f"({types})" if len(self.workflows) > 1 else types,
                "ExecutionStatus != 'ContinuedAsNew'",
                *(f"({part})" for part in self._parts()),
            ]
        )

    def admits(self, entry: TurnEntry, attributes: TypedSearchAttributes, task_queue: str) -> bool:
        """Whether a turn that Temporal found matches the filter."""
        written = {pair.key.name: pair.value for pair in attributes}
        return (
            all(written.get(name) == value for name, value in self._keywords())
            and self.admits_id(entry.id)
            and self._labels() <= set(attributes.get(search_attributes.LABELS, ()))
            and self.outcome in (None, entry.outcome)
            and self.state in (None, entry.state)
            and self.task_queue in (None, task_queue)
        )

    def _parts(self) -> Iterator[str]:
        yield from (f"{name} = '{value}'" for name, value in self._keywords())
        yield from (
            f"{search_attributes.LABELS.name} = '{label}'" for label in sorted(self._labels())
        )
        # Temporal finds no other names, however they are quoted
        if (
            self.task_queue is not None
            and search_attributes.keyword(self.task_queue) == self.task_queue
        ):
            yield f"TaskQueue = '{self.task_queue}'"
        # a prefix with quotes is only checked afterwards
        if self.id_prefix and search_attributes.keyword(self.id_prefix) == self.id_prefix:
            yield f"WorkflowId STARTS_WITH '{self.id_prefix}'"
        if self.state is not None:
            yield _STATES[self.state]
        if self.outcome is not None:
            name = search_attributes.OUTCOME.name
            yield (
                f"{name} = '{self.outcome}' OR ({name} IS NULL AND ExecutionStatus ="
                f" '{_STATUS.get(self.outcome, 'Failed')}')"
            )

    def _keywords(self) -> Iterator[tuple[str, str]]:
        values = {
            search_attributes.AGENT.name: self.agent,
            search_attributes.PARENT.name: self.parent,
            search_attributes.SCHEDULE.name: self.schedule,
        }
        yield from (
            (name, search_attributes.keyword(value))
            for name, value in values.items()
            if value is not None
        )

    def _labels(self) -> set[str]:
        is_hidden = self.labels or self.subject is not None
        if is_hidden and not hiding.labels_are_plain():
            raise errors.InvalidRequestError(
                "lists cannot be filtered by labels or by a subject, because"
                f" {hiding.LABELS_VARIABLE} keeps them out of search"
                " attributes; filter by agent, state, or the beginning of the id"
            )
        labels = {search_attributes.label(name, value) for name, value in self.labels.items()}
        if self.version is not None:
            labels.add(search_attributes.version(self.version))
        if self.subject is not None:
            labels.add(search_attributes.data_subject(self.subject))
        return labels


def turn_state(name: str | None) -> states.OfTurn | None:
    """Return a state of turns by its name.

    Raises:
        InvalidRequestError: No turn has such a state.
    """
    state = None if name is None else states.of_turn(name)
    if name is not None and state is None:
        raise errors.InvalidRequestError(
            f"there is no state {name!r} of turns; there are {', '.join(_STATES)}"
        )
    return state


def member(cls: type[E], name: str | None) -> E | None:
    """Return an outcome by its name.

    Raises:
        InvalidRequestError: The name is unknown.
    """
    if name is None:
        return None
    if name not in tuple(cls):
        raise errors.InvalidRequestError(
            f"there is no {cls.__name__.lower()} {name!r}; there are {', '.join(cls)}"
        )
    return cls(name)
