"""Checks and registers Perdure's search attributes in a namespace.

The operator service lists a namespace's attributes with their types. If access to it is denied, for
example by an authorizer, a count query with an attribute shows whether the namespace has it: that
needs only the permission to list turns. Registering an existing attribute is not an error, even
with another type, and changes nothing; so check first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.api.workflowservice.v1 import CountWorkflowExecutionsRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.temporal.search_attributes import TYPES

NOT_ALLOWED = (
    RPCStatusCode.PERMISSION_DENIED,
    RPCStatusCode.UNAUTHENTICATED,
    RPCStatusCode.UNIMPLEMENTED,
)

_PATIENCE = timedelta(seconds=5)
_ASK_AGAIN = timedelta(minutes=1)
_EXAMPLES = {"Keyword": "'x'", "KeywordList": "'x'", "Double": "0.5", "Int": "1"}
_NUMBERS = {
    kind: IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{kind.replace('List', '_List').upper()}")
    for kind in _EXAMPLES
}


@dataclass(frozen=True)
class Findings:
    """What a namespace lacks.

    Attributes:
        missing: Attributes that it does not have.
        conflicting: Attributes that it has with another type, by name.
    """

    missing: tuple[str, ...] = ()
    conflicting: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether turns may use the attributes."""
        return not self.missing and not self.conflicting

    def __str__(self) -> str:
        if len(self.missing) == len(TYPES):
            return "none of Perdure's is registered"
        wrong = [
            f"{name} is of type {kind} instead of {TYPES[name]}"
            for name, kind in self.conflicting.items()
        ]
        return "; ".join([f"{name} is missing" for name in self.missing] + wrong)


class Index:
    """Whether a namespace has the attributes: checked once, and repeated while it does not."""

    def __init__(self, ask_again: timedelta = _ASK_AGAIN) -> None:
        self._ask_again_s = ask_again.total_seconds()
        self._found: Findings | None = None
        self._asked_at = 0.0

    async def found(self, client: Client) -> Findings | None:
        """Return what is known; None if the server could not be queried."""
        if not self.is_known:
            await self.ask(client)
        return self._found

    @property
    def is_known(self) -> bool:
        """Whether `found` returns at once, without a query."""
        return self._found is not None and (
            self._found.is_ready or time.monotonic() - self._asked_at < self._ask_again_s
        )

    async def ask(self, client: Client) -> Findings | None:
        """Query the server, regardless of what is known."""
        try:
            self._found = await look(client)
            self._asked_at = time.monotonic()
        except RPCError:
            self._found = None
        return self._found

    def forget(self) -> None:
        """Query the server again next time."""
        self._found = None

    async def is_ready(self, client: Client) -> bool:
        """Return whether turns may use the attributes."""
        findings = await self.found(client)
        return findings is not None and findings.is_ready


async def look(client: Client) -> Findings:
    """Return what the client's namespace lacks.

    Raises:
        RPCError: The server does not respond, or there is no such namespace.
    """
    request = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        listed = await client.operator_service.list_search_attributes(request, timeout=_PATIENCE)
    except RPCError as error:
        if error.status not in NOT_ALLOWED:
            raise
        return Findings(
            missing=tuple([name for name in TYPES if not await is_usable(client, [name])])
        )
    there = listed.custom_attributes
    conflicting = {
        name: _name(there[name])
        for name, kind in TYPES.items()
        if name in there and there[name] != _NUMBERS[kind]
    }
    return Findings(
        missing=tuple(name for name in TYPES if name not in there), conflicting=conflicting
    )


async def is_usable(client: Client, names: Iterable[str] = TYPES) -> bool:
    """Return whether the namespace accepts queries for these attributes by their types."""
    query = " AND ".join(f"{name} = {_EXAMPLES[TYPES[name]]}" for name in names)
    request = CountWorkflowExecutionsRequest(namespace=client.namespace, query=query)
    try:
        await client.workflow_service.count_workflow_executions(request, timeout=_PATIENCE)
    except RPCError as error:
        if error.status in (RPCStatusCode.INVALID_ARGUMENT, *NOT_ALLOWED):
            return False
        raise
    return True


async def register(client: Client, names: Iterable[str]) -> None:
    """Register Perdure's attributes. Servers may take a minute to use them.

    Raises:
        RPCError: The client lacks permission, or the namespace has no room for another attribute.
    """
    kinds = {name: _NUMBERS[TYPES[name]] for name in names}
    request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=kinds)
    try:
        await client.operator_service.add_search_attributes(request, retry=True)
    except RPCError as error:
        if error.status != RPCStatusCode.ALREADY_EXISTS:
            raise


def _name(number: IndexedValueType.ValueType) -> str:
    name = IndexedValueType.Name(number).removeprefix("INDEXED_VALUE_TYPE_")
    return name.title().replace("_", "")
