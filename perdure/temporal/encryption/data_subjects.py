"""The data subject of what is started, and of what is sent to a workflow.

A client names the key of a subject when it starts something. For what it sends to a workflow
afterwards, it looks for the key in the memo of the workflow, or in its input: what was encrypted
once tells with which key. All of this is done only by processes with a store of such keys.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    DescribeScheduleResponse,
    DescribeWorkflowExecutionRequest,
    GetWorkflowExecutionHistoryRequest,
)
from temporalio.client import Client
from temporalio.converter import PayloadCodec
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.temporal.encryption import contexts, data_keys, key_stores, marks
from perdure.temporal.encryption.codec import Encryption
from perdure.temporal.encryption.data_keys import SubjectKeys
from perdure.values.turn_options import StoredOptions


def attach(client: Client) -> Client:
    """Let the codec of a connection look up the keys of workflows, and return the client."""
    codec = client.data_converter.payload_codec
    if isinstance(codec, Encryption) and codec.data_keys is not None:

        async def find(workflow_id: str) -> str | None:
            return await _key_of(client, workflow_id)

        codec.find = find
    return client


def keys_of(client: Client) -> SubjectKeys:
    """Return the keys of data subjects of a connection.

    Raises:
        ConfigurationError: It has none.
    """
    return keys_in(client.data_converter.payload_codec)


def keys_in(codec: PayloadCodec | None) -> SubjectKeys:
    """Return the keys of data subjects of a codec.

    Raises:
        ConfigurationError: It has none.
    """
    keys = data_keys.of(codec)
    if keys is None:
        raise errors.ConfigurationError(
            f"a data subject needs encryption with keys of its own: set {key_stores.VARIABLE} and"
            " PERDURE_ENCRYPTION_KEYS for this process and for the workers; nothing was started"
        )
    return keys


@contextlib.asynccontextmanager
async def starting(client: Client, subject: str | None) -> AsyncIterator[None]:
    """Encrypt what is started in a block with the key of its data subject, if it has one.

    Raises:
        ConfigurationError: The connection has no keys of data subjects.
        ErasedError: The subject is being erased; or it was, and must not return.
        KeyStoreError: The store of the keys does not answer.
    """
    key = "" if subject is None else await keys_of(client).id_for(subject)
    with contexts.writing(key, starts=True):
        yield


@contextlib.asynccontextmanager
async def expecting(
    client: Client, session_id: str, begins: StoredOptions | None
) -> AsyncIterator[None]:
    """Encrypt what is sent in a block to a session that may be started in the same moment.

    `begins` is the input with which it may be started; None if it is not.

    Raises:
        TurnConflictError: The session is there, and of another subject, or of none.
        RPCError: The server does not answer.
        PerdureError: As `starting`.
    """
    if begins is None or begins.subject is None:
        yield
        return
    key, there = await keys_of(client).id_for(begins.subject), await _key_of(client, session_id)
    if there is not None:
        await refuse_other(client, session_id, there, begins.subject)
    with contexts.writing(key if there is None else there, starts=there is not None):
        yield


async def refuse_other(client: Client, session_id: str, key: str, subject: str) -> None:
    """Refuse a session whose data key is none of a subject.

    Raises:
        TurnConflictError: It is none.
        PerdureError: As `is_key_of`.
    """
    if not await is_key_of(client, key, subject):
        raise errors.TurnConflictError(
            f"session {session_id!r} is not of the subject {subject!r}, so it would keep the"
            " messages after an erasure; choose another session",
            context={"session_id": session_id},
        )


@contextlib.asynccontextmanager
async def starting_like(client: Client, workflow_id: str) -> AsyncIterator[None]:
    """Encrypt what is started in a block with the key of a workflow that it is about.

    Raises:
        RPCError: The server does not answer.
    """
    with contexts.writing(await key_of(client, workflow_id), starts=True):
        yield


@contextlib.contextmanager
def writing_to(description: DescribeScheduleResponse) -> Iterator[None]:
    """Encrypt what is written to a schedule in a block with its key."""
    with contexts.writing(key_of_schedule(description), starts=True):
        yield


async def key_of(client: Client, workflow_id: str) -> str:
    """Return the data key of a workflow; empty for a workflow of no subject, or that is not there.

    Raises:
        RPCError: The server does not answer.
    """
    codec = client.data_converter.payload_codec
    return await codec.data_key_of(workflow_id) if isinstance(codec, Encryption) else ""


async def is_key_of(client: Client, key: str, subject: str) -> bool:
    """Return whether a data key is one of a subject.

    Raises:
        ConfigurationError: The connection has no keys of data subjects.
        KeyStoreError: The store of the keys does not answer.
    """
    return key in {known.id for known in await keys_of(client).known(subject)}


async def is_erased(client: Client, payloads: Iterable[Payload]) -> bool:
    """Return whether payloads are encrypted with the key of a data subject that was erased.

    Raises:
        KeyStoreError: The store of the keys does not answer.
    """
    key, keys = _first_key(payloads), data_keys.of(client.data_converter.payload_codec)
    if not key or keys is None:
        return False
    cipher = await keys.cipher(key)
    return isinstance(cipher, bytes) and cipher.startswith(marks.ERASED)


def key_of_schedule(description: DescribeScheduleResponse) -> str:
    """Return the data key of a schedule; empty for one of no subject."""
    action = description.schedule.action.start_workflow
    return _first_key([*action.input.payloads, *action.memo.fields.values()])


def key_in_memo(info: WorkflowExecutionInfo) -> str | None:
    """Return the data key that a memo is encrypted with; None if it has nothing encrypted."""
    encrypted = list(filter(marks.is_encrypted, info.memo.fields.values()))
    return _first_key(encrypted) if encrypted else None


async def key_of_run(client: Client, info: WorkflowExecutionInfo) -> str:
    """Return the data key of a run; from its input, if its memo does not tell. Empty without one.

    Raises:
        RPCError: The server does not answer.
    """
    key = key_in_memo(info)
    if key is None:
        key = await key_of_input(client, info.execution.workflow_id, info.execution.run_id)
    return key or ""


async def key_of_input(client: Client, workflow_id: str, run_id: str = "") -> str | None:
    """Return the data key of the input of a workflow; None if there is no such workflow.

    Raises:
        RPCError: The server does not answer.
    """
    request = GetWorkflowExecutionHistoryRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id, run_id=run_id),
        maximum_page_size=1,
    )
    service = client.workflow_service
    try:
        page = await service.get_workflow_execution_history(request, retry=True)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    return _first_key(
        payload
        for event in page.history.events[:1]
        for payload in event.workflow_execution_started_event_attributes.input.payloads
    )


async def _key_of(client: Client, workflow_id: str) -> str | None:
    request = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=workflow_id)
    )
    try:
        described = await client.workflow_service.describe_workflow_execution(request, retry=True)
    except RPCError as error:
        if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
            return None  # the request itself says what is wrong with the id
        raise
    found = key_in_memo(described.workflow_execution_info)
    return await key_of_input(client, workflow_id) if found is None else found


def _first_key(payloads: Iterable[Payload]) -> str:
    return next(filter(None, map(marks.data_key_of, payloads)), "")
