"""Connections to Temporal, for workers and clients alike."""

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
from temporalio.service import GrpcCompression

from perdure import errors
from perdure.temporal import data_converter, secrets
from perdure.temporal.core_exit import stop_core_at_exit
from perdure.temporal.encryption import data_subjects
from perdure.temporal.encryption.hiding import labels_are_plain
from perdure.temporal.names import LOCAL
from perdure.text import is_loopback

TIMEOUT_S = 10.0
CORE_LOGGER = "temporalio.core"
"""The logger of Temporal's core, the Rust part of its SDK, unless the program sets a `Runtime`."""
_API_KEY = "TEMPORAL_API_KEY"


@functools.cache
def log_core() -> None:
    """Route the logs of Temporal's core to Python's logging, once per process.

    By default they are printed to standard output, in colours. This sets the process's default
    `Runtime`; a `Runtime` that the program has set is kept. At exit it is stopped.
    """
    stop_core_at_exit()
    forwarding = LogForwardingConfig(
        logger=logging.getLogger(CORE_LOGGER), append_target_to_name=False
    )
    runtime = Runtime(
        telemetry=TelemetryConfig(
            logging=LoggingConfig(filter=LoggingConfig.default.filter, forwarding=forwarding)
        )
    )
    with contextlib.suppress(RuntimeError):  # there is a runtime already
        Runtime.set_default(runtime)


async def connect_local(address: str, *, converter: DataConverter | None = None) -> Client:
    """Connect to an embedded server, without TLS and ignoring Temporal's environment.

    Raises:
        ServerUnreachableError: It does not respond.
        ConfigurationError: The data converter cannot be loaded or used.
    """
    log_core()
    labels_are_plain()  # refuses a value that is none, before there is a turn
    chosen = data_converter.chosen(converter)
    try:
        connecting = Client.connect(
            address,
            data_converter=chosen,
            header_codec_behavior=data_converter.headers_of(chosen),
            grpc_compression=compression_for(address),
        )
        return data_subjects.attach(await asyncio.wait_for(connecting, TIMEOUT_S))
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
    identity: str | None = None,
) -> Client:
    """Connect to `address`, or as configured by Temporal's environment, or to localhost.

    The environment is `TEMPORAL_ADDRESS`, `TEMPORAL_PROFILE`, and so on.

    Raises:
        ServerUnreachableError: There is no response within `timeout_s` seconds.
        ConfigurationError: The profile cannot be read, the address or the API key is not valid, or
            the data converter cannot be loaded.
    """
    settings, chosen = _settings(), data_converter.chosen(converter)
    labels_are_plain()  # refuses a value that is none, before there is a turn
    target = address or settings.get("target_host") or LOCAL
    settings["target_host"] = target
    if namespace:
        settings["namespace"] = namespace
    log_core()
    try:
        if "://" in target:
            raise ValueError("host and port only, without a scheme")
        connecting = Client.connect(
            **settings,
            data_converter=chosen,
            header_codec_behavior=data_converter.headers_of(chosen),
            identity=identity,
            grpc_compression=compression_for(target),
        )
        return data_subjects.attach(await asyncio.wait_for(connecting, timeout_s))
    except ValueError as error:
        raise errors.ConfigurationError(
            f"{target!r} is not an address of a Temporal server, such as localhost:7233: {error}"
        ) from error
    except (RuntimeError, TimeoutError) as error:
        raise errors.ServerUnreachableError(
            f"no Temporal server answers at {target}; start one with `perdure dev`, or set"
            " TEMPORAL_ADDRESS",
            context={"address": target},
        ) from error


def disconnect(client: Client) -> None:
    """Close the connection of a client, which connects again if it is used.

    Temporal's library closes a connection when nothing refers to it.
    """
    client.service_client._bridge_client = None  # type: ignore[attr-defined]  # noqa: SLF001


def compression_for(address: str) -> GrpcCompression:
    """Return no compression for a server on this machine, and gzip, the SDK's default, otherwise.

    On loopback, compressing takes longer than sending.
    """
    host = address.rpartition(":")[0].strip("[]")
    return GrpcCompression.NONE if is_loopback(host) else GrpcCompression.GZIP


def _settings() -> ClientConnectConfig:
    """Return the connection settings from Temporal's environment and file.

    Temporal's library quotes what it cannot read, which may be a key, so its message is cut.

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
    except Exception as error:  # noqa: BLE001 - from Temporal's library; only its first line does not quote the file
        where = str(error).partition("\n")[0]
    raise errors.ConfigurationError(f"Temporal's configuration cannot be read: {where}")


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
