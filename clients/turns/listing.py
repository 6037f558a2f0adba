"""The workflows of a namespace that are turns, sessions or batches, from Temporal's list."""

from __future__ import annotations

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client
from temporalio.converter import decode_typed_search_attributes
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.clients.reading.lists import Found, Listing
from perdure.clients.turns.entries import TurnEntry, entry_of
from perdure.clients.turns.filters import Filter
from perdure.temporal import workflow_list
from perdure.temporal.access import TURN, Resource
from perdure.temporal.namespace_check import Index


class Workflows:
    """The workflows that match a filter.

    Attributes:
        resource: What the workflows are.
    """

    def __init__(self, client: Client, index: Index, filters: Filter, resource: Resource) -> None:
        self.resource = resource
        self._client = client
        self._index = index
        self._wanted = filters

    async def query(self) -> str:
        """Return Temporal's filter.

        Raises:
            ConfigurationError: The namespace lacks the search attributes that it needs.
        """
        if self._wanted.needs_attributes and not await self._index.is_ready(self._client):
            await _explain(self._client, self._index)
        return self._wanted.query()

    async def page(
        self, query: str, size: int, token: bytes, *, retry: bool
    ) -> Found[WorkflowExecutionInfo]:
        """Return a page of at most this size, after a token.

        Raises:
            ConfigurationError: The server does not take the filter.
            RPCError: It does not answer.
        """
        try:
            return await workflow_list.page(self._client, query, size, token, retry=retry)
        except RPCError as error:
            if token or error.status is not RPCStatusCode.INVALID_ARGUMENT:
                raise
            raise errors.ConfigurationError(
                f"namespace {self._client.namespace!r} does not take this filter of"
                f" {self.resource.subject('')}: {error.message}; `perdure setup --namespace"
                f" {self._client.namespace}` registers the search attributes that filters need"
            ) from error


def turns(client: Client, index: Index, filters: Filter, limit: int | None) -> Listing[TurnEntry]:
    """Return the turns that match a filter.

    Turns that are not over come first, then ended turns, the last ended first.

    Raises:
        ConfigurationError: The namespace lacks the search attributes that the filter needs, or
            Temporal does not let this client list.
        ServerUnreachableError: Temporal does not answer.
    """

    async def read(info: WorkflowExecutionInfo) -> TurnEntry | None:
        attributes = decode_typed_search_attributes(info.search_attributes)
        entry = await entry_of(client, info, attributes)
        return entry if filters.admits(entry, attributes, info.task_queue) else None

    return Listing(Workflows(client, index, filters, TURN), limit, read)


async def _explain(client: Client, index: Index) -> None:
    """Look at the namespace once more, and raise an error if search attributes are still missing.

    It may have been set up in the meantime.
    """
    status = await index.ask(client)
    if status is not None and not status.is_ready:
        raise errors.ConfigurationError(
            f"namespace {client.namespace!r} cannot be searched for turns ({status}); run `perdure"
            f" setup --namespace {client.namespace}` once",
            context={"namespace": client.namespace, "missing": list(status.missing)},
        )
