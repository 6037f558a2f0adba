"""A client of Temporal that sends an update once, so that its caller learns why it was refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio.client import Client
from temporalio.service import ServiceClient

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from temporalio.service import ServiceResponse

_UPDATES = ("update_workflow_execution", "execute_multi_operation")


def unretried(client: Client) -> Client:
    """Return a client on the same connection, whose updates are not tried again.

    Temporal's client tries a refused update again after pauses of seconds, and does not say why it
    was refused. All other requests are as before.
    """
    config = client.config(active_config=True)
    config["service_client"] = _Unretried(client.service_client)
    config["plugins"] = []  # they have taken part in this configuration already
    return Client(**config)


class _Unretried(ServiceClient):
    def __init__(self, inner: ServiceClient) -> None:
        super().__init__(inner.config)
        self._inner = inner

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
        req: Message,
        resp_type: type[ServiceResponse],
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,
    ) -> ServiceResponse:
        return await self._inner._rpc_call(  # noqa: SLF001 - what the SDK has subclasses implement
            rpc,
            req,
            resp_type,
            service=service,
            retry=retry and rpc not in _UPDATES,
            metadata=metadata,
            timeout=timeout,
        )
