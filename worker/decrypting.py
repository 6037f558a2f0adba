"""What a worker does about encryption beside its codec.

A reason of a cancel is no payload, so it is hidden and revealed where workflows meet Temporal. A
worker that cannot decrypt the input of a running workflow must not end it, as another worker may
have the key: it refuses to start, and if it learns of such a workflow later, leaves it alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Client
from temporalio.converter import PayloadCodec
from temporalio.service import RPCError
from temporalio.worker import (
    UnsandboxedWorkflowRunner,
    WorkflowInstance,
    WorkflowInstanceDetails,
    WorkflowRunner,
)

from perdure import errors
from perdure.temporal.acts import cancellations
from perdure.temporal.encryption import codec as encryption
from perdure.temporal.encryption import contexts, data_keys, marks
from perdure.worker.wrapped_workflow import WrappedRunner, WrappedWorkflow

logger = logging.getLogger("perdure")

_LOOKED_AT = 1000
"""How many running workflows of the queue a worker looks at when it starts."""
_FIRST_TASK = 3
"""The events of a workflow whose first task has not ended: that it started, and its task."""


class Decrypting(WrappedRunner):
    """A workflow runner whose workflows see the reasons of cancels, and Temporal does not."""

    def __init__(self, inner: WorkflowRunner | None, codec: PayloadCodec | None) -> None:
        super().__init__(inner or UnsandboxedWorkflowRunner())
        self._codec = codec

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return the workflow instance of one run."""
        info = replace(
            det.info,
            raw_memo=_readable(det.info.raw_memo),
            headers=_readable(det.info.headers),
        )
        inner = self._inner.create_instance(replace(det, info=info))
        return _DecryptingInstance(inner, self._codec, info.workflow_id)


class _DecryptingInstance(WrappedWorkflow):
    def __init__(
        self, inner: WorkflowInstance, codec: PayloadCodec | None, workflow_id: str
    ) -> None:
        super().__init__(inner)
        self._codec = codec
        self._workflow_id = workflow_id
        self._data_key = ""
        if data_keys.of(codec) is not None:
            self.get_serialization_context = self._keyed_context  # type: ignore[method-assign]

    def _keyed_context(self, command_info: Any) -> Any:
        """Return the context of a payload, with the data key of the input of this workflow."""
        context = self._inner.get_serialization_context(command_info)
        return contexts.keyed(context, self._data_key)

    def activate(self, act: Any) -> Any:
        for job in act.jobs:
            if job.HasField("cancel_workflow"):
                cancel = job.cancel_workflow
                cancel.reason = cancellations.reason_in(cancel.reason, self._codec)
            if job.HasField("initialize_workflow"):
                problem = self._problem_of(job.initialize_workflow)
                if problem and act.is_replaying:
                    return self._left_alone(act.run_id, problem)
        completion = self._inner.activate(act)
        for command in completion.successful.commands:
            for kind in (
                "cancel_child_workflow_execution",
                "request_cancel_external_workflow_execution",
            ):
                if command.HasField(kind):
                    asked = getattr(command, kind)
                    asked.reason = self._hidden(asked.reason)
        return completion

    def _problem_of(self, started: Any) -> str:
        """Take the data key of the input; return why the input is not decrypted, empty if it is."""
        for name in started.headers.keys() - _readable(started.headers).keys():
            del started.headers[name]
        for payload in started.arguments:
            if marks.is_encrypted(payload):
                # no data key is taken, so what the workflow says of it is under no subject's key
                return marks.problem(payload)
            self._data_key = marks.data_key_of(payload)
        return ""

    def _hidden(self, reason: str) -> str:
        """Return a reason as Temporal gets it; none if its key cannot be had, as it must go on."""
        try:
            return encryption.hidden(reason, self._codec, self._data_key)
        except (errors.DecryptionError, errors.KeyStoreError) as error:
            logger.warning("%s cancels without its reason: %s", self._workflow_id, error.message)
            return ""

    def _left_alone(self, run_id: str, problem: str) -> WorkflowActivationCompletion:
        """Return the failure of a task, which a worker with the key completes."""
        message = f"the input cannot be read: {problem}"
        logger.error("%s cannot go on at this worker: %s", self._workflow_id, message)
        completion = WorkflowActivationCompletion(run_id=run_id)
        completion.failed.failure.message = message
        completion.failed.failure.application_failure_info.type = errors.DecryptionError.code
        return completion


def _readable(fields: Mapping[str, Payload]) -> dict[str, Payload]:
    """Return the fields that the SDK can decode.

    Others would fail the task, and the input says already that there is no key.
    """
    return {name: payload for name, payload in fields.items() if not marks.is_encrypted(payload)}


async def check_keys(client: Client, task_queue: str) -> None:
    """Check that this process has the keys of the workflows that run on its task queue.

    The store of the keys of data subjects has to answer. A server that does not list the workflows
    is no reason not to start.

    Raises:
        DecryptionError: One that has begun is encrypted with a key that this process lacks.
        KeyStoreError: The store of the keys of data subjects does not answer.
    """
    keys = data_keys.of(client.data_converter.payload_codec)
    if keys is not None:
        await keys.check()
    try:
        await _check_keys(client, task_queue)
    except RPCError as error:
        logger.warning("whether the worker has the keys of its turns is not known: %s", error)


async def _check_keys(client: Client, task_queue: str) -> None:
    codec = client.data_converter.payload_codec
    names = codec.key_names if isinstance(codec, encryption.Encryption) else ()
    subjects = data_keys.of(codec)
    query = f"ExecutionStatus = 'Running' AND TaskQueue = '{task_queue}'"
    async for run in client.list_workflows(query, limit=_LOOKED_AT):
        encrypted = filter(marks.is_encrypted, run.raw_info.memo.fields.values())
        payload = next((one for one in encrypted if marks.key_of(one) not in names), None)
        if payload is not None and subjects is not None and marks.data_key_of(payload):
            note = await subjects.cipher(marks.data_key_of(payload))
            if not isinstance(note, bytes):
                continue
            if note != marks.NO_KEY:
                logger.error("%s runs, and cannot go on: its data subject was erased", run.id)
                continue  # no worker will ever have its key
        if payload is not None and await _has_begun(client, run.id, run.run_id):
            raise errors.DecryptionError(
                f"the worker cannot start: {run.id} runs on the task queue {task_queue!r}, and"
                f" {marks.problem(payload)}",
                context={"key": marks.key_of(payload)},
            )


async def _has_begun(client: Client, workflow_id: str, run_id: str) -> bool:
    """Return whether a worker has completed a task of a workflow: others end with a clear error."""
    description = await client.get_workflow_handle(workflow_id, run_id=run_id).describe()
    return description.history_length > _FIRST_TASK
