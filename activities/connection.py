"""One way to reach Temporal, for workers and callers alike."""

from __future__ import annotations

import asyncio

from temporalio.client import Client
from temporalio.envconfig import ClientConfig

from perdure import errors

TIMEOUT_S = 10.0
LOCAL = "127.0.0.1:7233"


async def connect_local(address: str) -> Client:
    """A client for an embedded server, which has no TLS and no other namespace, whatever Temporal's environment says.

    Raises:
        ServerUnreachableError: It does not answer.
    """
    try:
        return await asyncio.wait_for(Client.connect(address), TIMEOUT_S)
    except (RuntimeError, TimeoutError) as error:
        raise errors.ServerUnreachableError(f"the embedded Temporal server does not answer at {address}") from error


async def connect(address: str | None = None, *, namespace: str | None = None, timeout_s: float = TIMEOUT_S) -> Client:
    """A client for `address`, for the profile in Temporal's environment (`TEMPORAL_ADDRESS`, `TEMPORAL_PROFILE`, …), or for localhost.

    Raises:
        ServerUnreachableError: Nothing answers there within `timeout_s` seconds.
        ConfigurationError: The profile cannot be read, or the address is none.
    """
    try:
        settings = ClientConfig.load_client_connect_config()
    except Exception as error:
        raise errors.ConfigurationError(f"Temporal's configuration cannot be read: {error}") from error
    target = address or settings.get("target_host") or LOCAL
    settings["target_host"] = target
    if namespace:
        settings["namespace"] = namespace
    try:
        if "://" in target:
            raise ValueError("host and port only, without a scheme")
        return await asyncio.wait_for(Client.connect(**settings), timeout_s)
    except ValueError as error:
        raise errors.ConfigurationError(f"{target!r} is not an address of a Temporal server, such as localhost:7233: {error}") from error
    except (RuntimeError, TimeoutError) as error:
        raise errors.ServerUnreachableError(
            f"no Temporal server answers at {target}; start one with `perdure dev`, or say where it is with TEMPORAL_ADDRESS",
            context={"address": target},
        ) from error
