"""The names of the people and programs that cancel a workflow.

Temporal's request has a reason, and the identity of the client. History keeps both, so the name is
in the identity, after what the request was made through (`sources.identity`). A worker sees the
reason alone. A connection that encrypts hides reason and name in the reason, and has the identity
of the process.
"""

from __future__ import annotations

import json
import re

from pydantic import TypeAdapter, ValidationError
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client
from temporalio.converter import DataConverter, PayloadCodec

from perdure import errors
from perdure.temporal.acts import sources
from perdure.temporal.encryption.codec import Encryption, revealed

_BY = "by:"
"""How the identity with a name begins. The SDK's own is `<process>@<host>`."""
_ERASED = "(erased)"
_UNREADABLE = ("(encrypted with the key ", _ERASED)
"""How `revealed` begins in place of what it cannot read."""
_OF_WORKFLOW = re.compile(
    r"Cancel requested by workflow with run id [0-9a-f-]{36}(?: with reason: )?"
)
"""How the SDK begins the reason of a workflow that cancels another one."""
_HIDDEN = TypeAdapter(tuple[str, str])
"""The reason and the name, as they are hidden together."""


async def request_of(
    client: Client, id: str, reason: str, by: str | None, *, outlives_subject: bool = False
) -> tuple[str, str]:
    """Return the reason and the identity of a request of this person or program.

    With `outlives_subject`, both can be read after the erasure of the data subject, too.

    Raises:
        RPCError: The server does not answer.
        PerdureError: The data subject of the workflow was erased, or its key cannot be had.
    """
    codec = client.data_converter.payload_codec
    if not isinstance(codec, Encryption):
        return reason, sources.identity(client.identity if by is None else f"{_BY}{by}")
    text = json.dumps([reason, by], ensure_ascii=False) if by else reason
    data_key = await codec.data_key_of(id) if text and not outlives_subject else ""
    if data_key and codec.data_keys is not None:
        await codec.data_keys.cipher(data_key)  # so that it is known below, and nothing blocks
    return codec.hide(text, data_key), sources.identity(client.identity)


def requested(event: HistoryEvent, converter: DataConverter) -> tuple[str, str | None]:
    """Return the reason and the name of the event that records a request."""
    asked = event.workflow_execution_cancel_requested_event_attributes
    _, name = sources.identified(asked.identity)
    if name.startswith(_BY):
        return asked.cause, name.removeprefix(_BY)
    return _with_name(asked.cause, converter.payload_codec)


def is_hidden(event: HistoryEvent, converter: DataConverter) -> bool:
    """Return whether reason and name of a request are encrypted, and cannot be read here."""
    cause = _said(event.workflow_execution_cancel_requested_event_attributes.cause)
    text = revealed(cause, converter.payload_codec)
    return text != cause and text.startswith(_UNREADABLE)


def unreadable(reason: str) -> errors.DecryptionError:
    """Return the error for a request that is hidden, by what stands for its reason."""
    if reason == _ERASED:
        return errors.ErasedError("its data subject was erased, and the key destroyed")
    return errors.DecryptionError(reason)


def reason_in(cause: str, codec: PayloadCodec | None) -> str:
    """Return the reason of a request as the workflow gets it."""
    return _with_name(cause, codec)[0]


def _said(cause: str) -> str:
    """Return a reason without the words of the SDK about the workflow that has given it."""
    words = _OF_WORKFLOW.match(cause)
    return cause[words.end() :] if words else cause


def _with_name(cause: str, codec: PayloadCodec | None) -> tuple[str, str | None]:
    """Return the reason and the name of a request, which may be hidden."""
    cause = _said(cause)
    text = revealed(cause, codec)
    if text == cause or not text.startswith('["'):
        return text, None
    try:
        reason, by = _HIDDEN.validate_json(text)
    except ValidationError:  # a reason of the user's that begins like this
        return text, None
    return reason, by


async def last_name(client: Client, id: str, run_id: str) -> str | None:
    """Return who has asked a workflow last to stop, in this run or in those that it continues.

    History is read from its end, as far as the request. None without a request or a name.

    Raises:
        RPCError: There is no such run, or the server does not answer.
    """
    while run_id:
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=id, run_id=run_id),
        )
        run_id = ""
        while True:
            service = client.workflow_service
            page = await service.get_workflow_execution_history_reverse(request, retry=True)
            for event in page.history.events:
                if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
                    return requested(event, client.data_converter)[1]
                run_id = (
                    event.workflow_execution_started_event_attributes.continued_execution_run_id
                )
            if not page.next_page_token:
                break
            request.next_page_token = page.next_page_token
    return None
