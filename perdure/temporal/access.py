"""Access to Temporal's server, the same for turns, sessions, batches and schedules.

This module has the ids, the errors, the patience through outages, the text of cursors, and the
start of a workflow that may exist.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
from temporalio.client import Client
from temporalio.common import RawValue, TypedSearchAttributes
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors, limits, validation
from perdure.errors import PerdureError
from perdure.session.wire import SessionRequest
from perdure.temporal.acts import sources
from perdure.temporal.encryption import data_subjects
from perdure.temporal.search_marks import Marks
from perdure.text import one_line
from perdure.turn.wire import TurnRequest

logger = logging.getLogger("perdure")

V = TypeVar("V")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
_FATAL = {
    RPCStatusCode.NOT_FOUND,
    RPCStatusCode.INVALID_ARGUMENT,
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.UNIMPLEMENTED,
}
"""The server's errors that another attempt does not change."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of thing that the server is asked about.

    Attributes:
        noun: Its name, such as `turn`.
        key: The name of its id in the context of errors.
        not_found: The error if the server does not have it.
        absence: The message of that error, with `{}` for the noun and the id.
        id_characters: The largest length of a new id.
    """

    noun: str
    key: str
    not_found: type[PerdureError]
    absence: str
    id_characters: int

    def subject(self, id: str) -> str:
        """Return the noun with an id, such as `turn 'x'`; without an id, the plural."""
        if not id:
            return f"{self.noun}es" if self.noun.endswith("ch") else f"{self.noun}s"
        return f"{self.noun} {one_line(id, limits.TURN_ID_CHARACTERS)!r}"

    def missing(self, id: str) -> PerdureError:
        """Return the error for an id that the server does not have."""
        return self.not_found(self.absence.format(self.subject(id)), context=self.context(id))

    def context(self, id: str) -> dict[str, Any]:
        """Return the context of an error about an id; empty without an id."""
        return {self.key: one_line(id, limits.TURN_ID_CHARACTERS)} if id else {}

    def translated(self, id: str, error: RPCError) -> PerdureError:
        """Translate an error of the server about an id; empty for all of them."""
        match error.status:
            case RPCStatusCode.NOT_FOUND if _is_of_namespace(error):
                return errors.ConfigurationError(
                    f"Temporal's error: {error.message.rstrip('.')}; `perdure setup --namespace"
                    " NAME --create-namespace` creates one"
                )
            case RPCStatusCode.NOT_FOUND:
                return self.missing(id)
            case RPCStatusCode.PERMISSION_DENIED | RPCStatusCode.UNAUTHENTICATED:
                return errors.ConfigurationError(
                    f"Temporal does not let this client ask about {self.subject(id)}:"
                    f" {error.message}"
                )
            case RPCStatusCode.INVALID_ARGUMENT:
                return errors.InvalidRequestError(
                    f"{self.subject(id)}: {error.message}", context=self.context(id)
                )
            case _:
                return errors.ServerUnreachableError(
                    f"Temporal cannot be asked about {self.subject(id)}: {error.message}",
                    context=self.context(id),
                )

    @contextlib.contextmanager
    def asking(self, id: str = "") -> Iterator[None]:
        """Translate the errors of the server in a block that asks about an id.

        Raises:
            PerdureError: The server refuses it, or does not answer.
        """
        try:
            yield
        except RPCError as error:
            raise self.translated(id, error) from error

    async def asked(self, id: str, call: Awaitable[V]) -> V:
        """Return the answer to a call about an id.

        Raises:
            PerdureError: The server refuses it, or does not answer.
        """
        with self.asking(id):
            return await call

    async def asked_if_known(self, id: str, call: Awaitable[V]) -> V | None:
        """Return the answer to a call about an id; None if the server does not have the id.

        Raises:
            PerdureError: The server refuses it, or does not answer.
        """
        try:
            return await self.asked(id, call)
        except self.not_found:
            return None

    async def patiently(self, id: str, ask: Callable[[], Awaitable[V]]) -> V:
        """Return the server's answer about an id, after an outage of any length.

        Raises:
            PerdureError: The server answers with an error that another attempt does not change.
        """
        pause = FIRST_PAUSE_S
        while True:
            try:
                return await ask()
            except RPCError as error:
                if error.status in _FATAL:
                    raise self.translated(id, error) from error
                if pause < LONGEST_PAUSE_S <= pause * 2:
                    logger.warning(
                        "the Temporal server does not answer (%s); %s is followed on",
                        error.status.name,
                        self.subject(id),
                    )
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def known_id(self, id: str) -> str:
        """Return an id that may exist, after validation.

        Raises:
            InvalidRequestError: It is not a string, or empty.
        """
        given, types = {"id": id}, {"id": validation.KnownId}
        validation.check(f"the {self.noun}", given, types, errors.InvalidRequestError)
        return id

    def new_id(self, id: str) -> str:
        """Return an id of a new resource, after validation.

        Raises:
            InvalidRequestError: It is not valid.
        """
        return validation.new_id(self.noun, id, self.id_characters)


def _is_of_namespace(error: RPCError) -> bool:
    """Return whether the namespace was not found. The message may quote an id with that word."""
    details = error.grpc_status.details
    return any(detail.Is(NamespaceNotFoundFailure.DESCRIPTOR) for detail in details)


TURN = Resource(
    "turn",
    "turn_id",
    errors.TurnNotFoundError,
    "there is no {}, or its retention is over",
    limits.TURN_ID_CHARACTERS,
)
SESSION = Resource(
    "session",
    "session_id",
    errors.SessionNotFoundError,
    "there is no {}, or its retention is over",
    limits.SESSION_ID_CHARACTERS,
)
BATCH = Resource(
    "batch",
    "batch",
    errors.BatchNotFoundError,
    "there is no {}, its upload was not finished, or its retention is over",
    limits.BATCH_ID_CHARACTERS,
)
PARTS = Resource(
    "batch",
    "batch",
    errors.BatchNotFoundError,
    "parts of {} are gone: their retention is over",
    limits.BATCH_ID_CHARACTERS,
)
"""The parts of a batch, by the id of the batch."""
EVENT = Resource(
    "event",
    "event_id",
    errors.PerdureError,
    "{} cannot be kept",
    limits.MESSAGE_ID_CHARACTERS,
)
SCHEDULE = Resource(
    "schedule",
    "schedule_id",
    errors.ScheduleNotFoundError,
    "there is no {}; `perdure schedule list` shows those that there are",
    limits.SCHEDULE_ID_CHARACTERS,
)


async def start(
    client: Client,
    resource: Resource,
    workflow: str,
    payload: RawValue,
    *,
    id: str,
    marks: tuple[Marks, TurnRequest | SessionRequest] | None = None,
    subject: str | None = None,
    like: str = "",
    about: str = "",
    started_by: Mapping[str, Any] | None = None,
    **options: Any,
) -> str | None:
    """Start a workflow, unless there is a workflow of its id that the options keep.

    Args:
        client: Temporal's client.
        resource: What the workflow is, or is a part of.
        workflow: The type of the workflow.
        payload: Its input.
        id: Its id.
        marks: The search attributes, with the request that they describe; None for a workflow
            without search attributes.
        subject: The data subject, without `marks`.
        like: The id of a workflow that has the same data subject, without `marks`.
        about: The id for errors, if it is not the id of the workflow.
        started_by: Who starts it, as `sources.memo` returns it.
        options: The other options of Temporal's client.

    Returns:
        Temporal's id of the run; None if nothing was started.

    Raises:
        PerdureError: The server refuses it, or does not answer.
    """
    if started_by:
        options["memo"] = {**options.get("memo", {}), **started_by}
    request = sources.marked(payload)

    async def started(attributes: TypedSearchAttributes | None) -> str | None:
        handle = await client.start_workflow(
            workflow, request, id=id, search_attributes=attributes, **options
        )
        return handle.first_execution_run_id

    try:
        with resource.asking(about or id):
            if marks is not None:
                return await marks[0].applied(marks[1], started)
            if like:
                async with data_subjects.starting_like(client, like):
                    return await started(None)
            async with data_subjects.starting(client, subject):
                return await started(None)
    except WorkflowAlreadyStartedError:
        return None


def cursor_of(position: bytes) -> str:
    """Return a position as the text of a cursor."""
    return base64.urlsafe_b64encode(position).decode()


def position_in(cursor: str, noun: str) -> bytes:
    """Return the position in a cursor, with or without the padding at its end.

    Args:
        cursor: The cursor.
        noun: What it has to be a cursor of, for the error.

    Raises:
        InvalidRequestError: It is not a cursor.
    """
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return base64.b64decode(padded.encode(), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise no_cursor(cursor, noun) from None


def no_cursor(cursor: str, noun: str) -> errors.InvalidRequestError:
    """Return the error for a string that is not a cursor of the list or the stream."""
    return errors.InvalidRequestError(f"{one_line(cursor, 100)!r} is not a cursor of {noun}")
