"""Erases a data subject.

First nothing new of it can be started, then what is open is ended, and only then the key is
destroyed: the task of a workflow whose key is gone would fail for ever. Each step may be repeated,
so an erasure that was interrupted is completed by another one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.clients.erasing import places
from perdure.clients.erasing.belongings import Belonging, Belongings
from perdure.clients.erasing.receipts import EndedWork, ErasedKey, ErasureReceipt, How
from perdure.clients.turns import cancelling
from perdure.temporal.acts import erasures, sources
from perdure.temporal.acts.erasures import Erasure
from perdure.temporal.encryption import data_subjects
from perdure.temporal.encryption.key_stores import KeyState, StoredKey
from perdure.temporal.names import ERASURE
from perdure.temporal.payloads import pack
from perdure.text import markdown, word

GRACE = timedelta(seconds=30)
"""How long what is open may take to end after a cancel."""
_PAUSE_S = 0.5
_ID_BYTES = 12
_LAG_S = 1.5
"""How long Temporal's list is watched for what was started just before."""
_GONE = (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION)
_REASON = "its data subject is erased"


async def erase(
    client: Client, task_queue: str, subject: str, by: str | None, grace: timedelta
) -> ErasureReceipt:
    """End what is open of a data subject, destroy its key, and return the receipt.

    The act is recorded on `task_queue`, if the subject has nothing that tells a queue with workers.

    Raises:
        InvalidRequestError: The store of keys has never had a key of the subject.
        ConfigurationError: The connection has no keys of data subjects.
        KeyStoreError: The store of the keys does not answer.
        ServerUnreachableError: Temporal does not answer, or does not end what is open.
    """
    keys, began = data_subjects.keys_of(client), datetime.now(UTC)
    await keys.begin_erasure(subject)
    known = await keys.known(subject)
    if not known:
        raise errors.InvalidRequestError(
            f"there is no data subject {subject!r} in {keys.store.name}; nothing was erased"
        )
    key = next((key.id for key in known if key.state != KeyState.ERASED), "")
    belongings = Belongings(client, {key.id for key in known})
    ending = _Ending(client, belongings, by)
    try:
        queue = await belongings.queue() or task_queue
        await _record(client, queue, Erasure(subject=subject, by=by, key=key))
        await ending.delete_schedules()
        await ending.cancel(grace)
        await ending.terminate()
        destroyed = await keys.destroy(subject)
        await ending.terminate()  # what was started in the moment in which the erasure began
        ended = await belongings.ended()
        retention = await _retention(client)
    except RPCError as error:
        raise errors.ServerUnreachableError(
            f"the erasure of {subject!r} is not complete, as Temporal cannot be asked"
            f" ({error.message}); erase it again. Until then, nothing new of it is started"
        ) from error
    return ErasureReceipt(
        subject=subject,
        namespace=client.namespace,
        key_store=keys.store.name,
        by=by,
        began_at=began,
        erased_at=max(_erased_at(key) for key in destroyed),
        again=not key,
        keys=tuple(
            ErasedKey(id=key.id, created_at=key.created_at, erased_at=_erased_at(key))
            for key in destroyed
        ),
        ended=tuple(ending.ended),
        places=places.of(
            ended,
            deleted_schedules=sum(work.how == "deleted" for work in ending.ended),
            retention=retention,
            erased_at=max(_erased_at(key) for key in destroyed),
            has_storage=client.data_converter.external_storage is not None,
            key_store=keys.store.name,
        ),
    )


async def _record(client: Client, task_queue: str, erasure: Erasure) -> None:
    """Record who erases a data subject, under the key of the environment.

    Raises:
        RPCError: The server does not answer.
    """
    async with data_subjects.starting(client, None):
        await client.start_workflow(
            ERASURE,
            sources.marked(pack(erasure, "the erasure")),
            id=f"{erasures.ID_PREFIX}{secrets.token_hex(_ID_BYTES)}",
            task_queue=task_queue,
            execution_timeout=erasures.OPEN_AT_MOST,
            static_summary=f"{markdown(word(erasure.subject))} is erased",
        )


class _Ending:
    """Ends what is open of a data subject, and records how."""

    def __init__(self, client: Client, belongings: Belongings, by: str | None) -> None:
        self.ended: list[EndedWork] = []
        self._client = client
        self._belongings = belongings
        self._by = by

    async def delete_schedules(self) -> None:
        for schedule_id in await self._belongings.schedules():
            if await _unless_gone(self._client.get_schedule_handle(schedule_id).delete()):
                self._note(schedule_id, "schedule", "deleted")

    async def cancel(self, grace: timedelta) -> None:
        """Ask what is open to end, and wait until it has, for a while."""
        asked: dict[str, Belonging] = {}
        loop = asyncio.get_running_loop()
        until = loop.time() + grace.total_seconds()
        while True:
            found = await self._belongings.open()
            for work in found:
                if work.id not in asked:
                    asked[work.id] = work
                    await self._request(work)
            still = {work.id for work in found}
            if not found or loop.time() >= until:
                break
            await asyncio.sleep(_PAUSE_S)
        for id, work in asked.items():
            if id not in still:
                self._note(id, work.type, "cancelled")

    async def terminate(self) -> None:
        """Terminate what is open, until the list has had nothing for as long as it may lag.

        Raises:
            ServerUnreachableError: There is always something.
        """
        loop = asyncio.get_running_loop()
        last_seen, until = loop.time(), loop.time() + GRACE.total_seconds()
        terminated = set[str]()
        while loop.time() - last_seen < _LAG_S:
            found = await self._belongings.open()
            for work in found:
                handle = self._client.get_workflow_handle(work.id, run_id=work.run_id)
                if await _unless_gone(handle.terminate(reason=_REASON)):
                    last_seen = loop.time()
                    if work.id not in terminated:
                        terminated.add(work.id)
                        self._note(work.id, work.type, "terminated")
            if loop.time() > until:
                raise errors.ServerUnreachableError(
                    f"{len(found)} workflows cannot be ended, and the key is kept; erase again"
                )
            await asyncio.sleep(_PAUSE_S)

    async def _request(self, work: Belonging) -> None:
        asking = cancelling.request(self._client, work.id, _REASON, self._by, outlives_subject=True)
        await _unless_gone(asking)

    def _note(self, id: str, kind: str, how: How) -> None:
        self.ended.append(EndedWork(id=id, type=kind, how=how))


async def _unless_gone(request: Awaitable[object]) -> bool:
    """Return whether a request about something was made; False if that is over or gone."""
    try:
        await request
    except RPCError as error:
        if error.status in _GONE:
            return False
        raise
    return True


async def _retention(client: Client) -> timedelta | None:
    """Return how long Temporal keeps what is over; None if it does not tell."""
    described = await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace=client.namespace), retry=True
    )
    period = described.config.workflow_execution_retention_ttl.ToTimedelta()
    return period or None


def _erased_at(key: StoredKey) -> datetime:
    assert key.erased_at is not None
    return key.erased_at
