"""One way to reach Temporal, for workers and callers alike."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os

from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig

from perdure import errors
from perdure.temporal import data_converter, secrets

TIMEOUT_S = 10.0
CORE_LOGGER = "temporalio.core"
"""Has the records of Temporal's core, the part of its SDK in Rust, where the program has not made a `Runtime` of its own."""
LOCAL = "127.0.0.1:7233"
_API_KEY = "TEMPORAL_API_KEY"


@functools.cache
def log_core() -> None:
    """Have Temporal's core log through Python's logging, once a process.

    By itself it prints to standard output, in colours.

    It is a matter of the process's default `Runtime`. One that the program has set stays as it is.
    """
    forwarding = LogForwardingConfig(
        logger=logging.getLogger(CORE_LOGGER), append_target_to_name=False
    )
    runtime = Runtime(
        telemetry=TelemetryConfig(
            logging=LoggingConfig(filter=LoggingConfig.default.filter, forwarding=forwarding)
        )
    )
    with contextlib.suppress(RuntimeError):  # there is one
        Runtime.set_default(runtime)


async def connect_local(address: str, *, converter: DataConverter | None = None) -> Client:
    """A client for an embedded server, which has no TLS and no other namespace, whatever Temporal's environment says.

    Raises:
        ServerUnreachableError: It does not answer.
        ConfigurationError: The data converter cannot be loaded, or cannot be used.
    """
    log_core()
    chosen = data_converter.chosen(converter)
    try:
        return await asyncio.wait_for(Client.connect(address, data_converter=chosen), TIMEOUT_S)
    except (RuntimeError, TimeoutError) as error:
        raise errors.ServerUnreachableError(
            f"the embedded Temporal server does not answer at {address}"
        ) from error


async def connect(
    address: str | None = None,
    *,
    namespace: str | None = None,
    converter: DataConverter | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Client:
    """A client for `address`, for the profile in Temporal's environment (`TEMPORAL_ADDRESS`, `TEMPORAL_PROFILE`, …), or for localhost.

    Raises:
        ServerUnreachableError: Nothing answers there within `timeout_s` seconds.
        ConfigurationError: The profile cannot be read, the address is none, the API key could not
            be one, or the data converter cannot be loaded.
    """
    settings, chosen = _settings(), data_converter.chosen(converter)
    target = address or settings.get("target_host") or LOCAL
    settings["target_host"] = target
    if namespace:
        settings["namespace"] = namespace
    log_core()
    try:
        if "://" in target:
            raise ValueError("host and port only, without a scheme")
        return await asyncio.wait_for(Client.connect(**settings, data_converter=chosen), timeout_s)
    except ValueError as error:
        raise errors.ConfigurationError(
            f"{target!r} is not an address of a Temporal server, such as localhost:7233: {error}"
        ) from error
    except (RuntimeError, TimeoutError) as error:
        raise errors.ServerUnreachableError(
            f"no Temporal server answers at {target}; start one with `perdure dev`, or say where it"
            " is with TEMPORAL_ADDRESS",
            context={"address": target},
        ) from error


def _settings() -> ClientConnectConfig:
    """What Temporal's environment and file say.

    Its library quotes what it cannot read, which may be a key, so that is not repeated.

    Raises:
        ConfigurationError: A variable or the file cannot be read.
    """
    if os.environ.get(_API_KEY):
        secrets.read(_API_KEY)
    unreadable = [
        name
        for name, value in os.environ.items()
        if name.startswith("TEMPORAL_") and not _is_unicode(value)
    ]
    if unreadable:
        raise errors.ConfigurationError(
            f"the environment variable {unreadable[0]} is not UTF-8; set it again",
            context={"variable": unreadable[0]},
        )
    try:
        return ClientConfig.load_client_connect_config()
    except Exception as error:  # noqa: BLE001 - of Temporal's library; the first line says where, those below quote the file
        where = str(error).partition("\n")[0]
    raise errors.ConfigurationError(f"Temporal's configuration cannot be read: {where}")


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
