"""The server and its namespace: whether it answers, and is set up as turns need it."""

from __future__ import annotations

from datetime import timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.temporal import namespace_check
from perdure.text import counted
from perdure.values.moments import period_in_words
from perdure.worker.setup_checks import Finding

_SHORTEST_RETENTION = timedelta(days=1)
"""What `perdure dev` has. A turn that goes on in a new run reads the run before for so long."""


async def answering(client: Client) -> Finding:
    """Return that the server answers, with its version."""
    info = await client.workflow_service.get_system_info(GetSystemInfoRequest(), retry=True)
    version = f", Temporal {info.server_version}" if info.server_version else ""
    return Finding("Temporal", "ok", f"{address_of(client)} answers{version}")


def address_of(client: Client) -> str:
    """Return the address that a client is connected to."""
    return client.service_client.config.target_host


async def attributes(client: Client) -> Finding:
    """Look for Perdure's search attributes in the client's namespace."""
    subject = f"namespace {client.namespace}"
    try:
        lacks = await namespace_check.look(client)
    except RPCError as error:
        return _unreadable(client, error)
    if lacks.is_ready:
        return Finding(subject, "ok", "it has Perdure's search attributes")
    found = f"turns cannot be found by agent or state: {lacks}"
    if lacks.conflicting:
        return Finding(
            subject,
            "failed",
            found,
            "give Perdure a namespace of its own, or remove the attributes if nothing uses them"
            " (`temporal operator search-attribute remove`), and run `perdure setup`",
        )
    return Finding(subject, "warning", found, "`perdure setup` registers search attributes")


async def retention(client: Client) -> Finding:
    """Look at how long the client's namespace keeps ended turns; a failure if it is not there."""
    request = DescribeNamespaceRequest(namespace=client.namespace)
    try:
        described = await client.workflow_service.describe_namespace(request, retry=True)
    except RPCError as error:
        if error.status in namespace_check.NOT_ALLOWED:
            found = f"this client may not see it: {error.message}"
            return Finding(f"retention of {client.namespace}", "skipped", found)
        return _unreadable(client, error)
    kept = described.config.workflow_execution_retention_ttl.ToTimedelta()
    subject, found = f"retention of {client.namespace}", f"ended turns are kept for {_days(kept)}"
    if kept >= _SHORTEST_RETENTION:
        return Finding(subject, "ok", found)
    return Finding(
        subject,
        "warning",
        f"{found}: a long turn without a worker for that time loses its earlier runs, and ids are"
        " soon free to be used again",
        f"`temporal operator namespace update --namespace {client.namespace} --retention 7d`",
    )


def _unreadable(client: Client, error: RPCError) -> Finding:
    is_missing = error.status == RPCStatusCode.NOT_FOUND
    remedy = "`perdure setup --create-namespace` creates it" if is_missing else ""
    return Finding(f"namespace {client.namespace}", "failed", error.message, remedy)


def _days(kept: timedelta) -> str:
    return counted(kept.days, "day") if kept >= timedelta(days=1) else period_in_words(kept)
