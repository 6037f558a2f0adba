"""`perdure setup`: prepare a namespace for listing turns.

Existing namespaces and attributes are left unchanged. Servers cache namespaces and search
attributes for up to a minute, so new attributes are used only once the server returns them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    GetSystemInfoRequest,
    RegisterNamespaceRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.errors import PerdureError
from perdure.temporal import namespace_check
from perdure.temporal.connect import connect
from perdure.temporal.search_attributes import TYPES

T = TypeVar("T")
Say = Callable[[str, str], None]
"""Called with a subject and what was found or done."""

_PASSING = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
)
_USED_WITHIN_S = 120.0
_PAUSE_S = 0.5


async def reach(address: str | None, namespace: str | None, *, wait: timedelta) -> Client:
    """Connect to a server that may still be starting.

    Raises:
        ServerUnreachableError: The server does not answer within `wait`.
        ConfigurationError: The address is not valid.
    """
    deadline = time.monotonic() + wait.total_seconds()
    while True:
        try:
            return await connect(
                address, namespace=namespace, timeout_s=max(1.0, deadline - time.monotonic())
            )
        except errors.ServerUnreachableError:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(_PAUSE_S)


async def set_up(client: Client, say: Say, *, new_namespace: timedelta | None = None) -> None:
    """Prepare the client's namespace.

    Check that it exists, and register missing search attributes.

    Args:
        client: A client of a server that answers.
        say: Called with every line about what is found and done.
        new_namespace: The retention of the namespace to create if it is missing; None to create
            none.

    Raises:
        ConfigurationError: The namespace is missing, an attribute has another type, or this client
            lacks a permission.
        ServerUnreachableError: The server stopped answering.
    """
    try:
        server = await client.workflow_service.get_system_info(GetSystemInfoRequest(), retry=True)
        version = f", Temporal {server.server_version}" if server.server_version else ""
        say("server", f"{client.service_client.config.target_host} answers{version}")
        await _namespace(client, say, new_namespace)
        await _attributes(client, say)
    except RPCError as error:
        raise _explained(client, error) from error


async def _namespace(client: Client, say: Say, retention: timedelta | None) -> None:
    name = client.namespace
    try:
        described = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=name), retry=True
        )
    except RPCError as error:
        if error.status in namespace_check.NOT_ALLOWED:
            say("namespace", f"{name} cannot be inspected by this client ({error.message})")
            return
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
    else:
        retained = described.config.workflow_execution_retention_ttl.ToTimedelta()
        say("namespace", f"{name} is there; it keeps ended turns for {_days(retained)}")
        return
    if retention is None:
        raise errors.ConfigurationError(
            f"there is no namespace {name!r}; `perdure setup --namespace {name} --create-namespace`"
            " creates it"
        )
    duration = Duration()
    duration.FromTimedelta(retention)
    request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=duration)
    await client.workflow_service.register_namespace(request, retry=True)
    say("namespace", f"{name} was created; it keeps ended turns for {_days(retention)}")


async def _attributes(client: Client, say: Say) -> None:
    attributes = await _once_known(lambda: namespace_check.look(client))
    if attributes.conflicting:
        raise errors.ConfigurationError(
            f"namespace {client.namespace!r} has search attributes of these names for something"
            f" else ({attributes}); nothing was registered. If they are not in use, `temporal"
            " operator search-attribute remove --name …` removes them; otherwise give Perdure a"
            " namespace of its own"
        )
    if attributes.missing:
        await namespace_check.register(client, attributes.missing)
    for name, kind in TYPES.items():
        say(
            "attribute",
            f"{name} ({kind}) {'was registered' if name in attributes.missing else 'is there'}",
        )
    deadline = time.monotonic() + _USED_WITHIN_S
    while not await _once_known(lambda: namespace_check.is_usable(client)):
        if time.monotonic() > deadline:
            raise errors.ConfigurationError(
                "the attributes are registered, and the server does not use them yet; run `perdure"
                " setup` again later"
            )
        await asyncio.sleep(_PAUSE_S)


async def _once_known(ask: Callable[[], Awaitable[T]]) -> T:
    """Repeat a request until the server knows a newly created namespace."""
    deadline = time.monotonic() + _USED_WITHIN_S
    while True:
        try:
            return await ask()
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND or time.monotonic() > deadline:
                raise
        await asyncio.sleep(_PAUSE_S)


def _explained(client: Client, error: RPCError) -> PerdureError:
    if error.status in _PASSING:
        return errors.ServerUnreachableError(f"Temporal's error: {error.message}")
    if error.status in namespace_check.NOT_ALLOWED:
        by_hand = _by_hand(client.namespace)
        return errors.ConfigurationError(
            f"this client may not prepare namespace {client.namespace!r} ({error.message})."
            f" An operator with permission can do it with\n{by_hand}"
        )
    return errors.ConfigurationError(f"Temporal's error: {error.message}")


def _by_hand(namespace: str) -> str:
    by_kind = {
        kind: [name for name, its in TYPES.items() if its == kind]
        for kind in dict.fromkeys(TYPES.values())
    }
    commands = [
        f"  temporal operator search-attribute create --namespace {namespace} --type {kind}"
        f" {' '.join(f'--name {name}' for name in names)}"
        for kind, names in by_kind.items()
    ]
    cloud = " ".join(f"--search-attribute {name}={kind}" for name, kind in TYPES.items())
    return "\n".join(
        [
            *commands,
            (
                "or, in Temporal Cloud, in its web UI or with\n  tcld namespace search-attributes"
                f" add --namespace {namespace} {cloud}"
            ),
        ]
    )


def _days(duration: timedelta) -> str:
    days = duration / timedelta(days=1)
    return "1 day" if days == 1 else f"{days:g} days"
