"""Count the requests of a client, in a service client that wraps the connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.service import ServiceClient

FORWARD, BACKWARD = "get_workflow_execution_history", "get_workflow_execution_history_reverse"


class CountingService(ServiceClient):
    """Passes every request on and counts it: how Temporal lets a service be wrapped, also for
    workers.

    Attributes:
        calls: Requests by name.
        in_flight: Requests by name that wait for their answer.
        most_in_flight: The most that waited at one moment.
    """

    def __init__(self, inner: ServiceClient) -> None:
        super().__init__(inner.config)
        self._inner = inner
        self.calls: Counter[str] = Counter()
        self.in_flight: Counter[str] = Counter()
        self.most_in_flight: Counter[str] = Counter()

    @property
    def worker_service_client(self) -> Any:
        return self._inner.worker_service_client

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        self._inner.update_rpc_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        self._inner.update_api_key(api_key)

    async def _rpc_call(
        self,
        rpc: str,
        req: Any,
        resp_type: Any,
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,
    ) -> Any:
        self.calls[rpc] += 1
        self.in_flight[rpc] += 1
        self.most_in_flight[rpc] = max(self.most_in_flight[rpc], self.in_flight[rpc])
        try:
            return await self._inner._rpc_call(
                rpc,
                req,
                resp_type,
                service=service,
                retry=retry,
                metadata=metadata,
                timeout=timeout,
            )
        finally:
            self.in_flight[rpc] -= 1


def counting(client: Client) -> tuple[Client, CountingService]:
    """The same client with its requests counted."""
    service = CountingService(client.service_client)
    return Client(
        service, namespace=client.namespace, data_converter=client.data_converter
    ), service
