"""The search attributes that a client sets on the turns that it starts, and their data subject.

A namespace without the search attributes refuses a start that sets any. Then turns run without
them, and the client logs a warning once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio.client import Client
from temporalio.common import TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode

from perdure.session.wire import SessionRequest
from perdure.temporal import search_attributes
from perdure.temporal.encryption import data_subjects
from perdure.temporal.namespace_check import Findings, Index
from perdure.turn.wire import TurnRequest

logger = logging.getLogger("perdure")

V = TypeVar("V")


class Marks:
    """The search attributes of turns in a client's namespace."""

    def __init__(self, client: Client) -> None:
        self.index = Index()
        self._client = client
        self._has_warned = False

    async def of(self, request: TurnRequest | SessionRequest) -> TypedSearchAttributes | None:
        """Return the attributes of a new turn or session; None if the namespace has none."""
        findings = await self.index.found(self._client)
        if findings is None:
            return None
        if findings.is_ready:
            return search_attributes.at_start(
                request.agent, request.labels, subject=request.subject
            )
        self._warn(findings)
        return None

    async def applied(
        self,
        request: TurnRequest | SessionRequest,
        start: Callable[[TypedSearchAttributes | None], Awaitable[V]],
    ) -> V:
        """Return the answer of a start with the attributes, or without them if they are refused.

        What is started is encrypted with the key of its data subject.

        Raises:
            RPCError: The server does not start it.
            PerdureError: The data subject has no key, or cannot get one.
        """
        attributes = await self.of(request)
        async with data_subjects.starting(self._client, request.subject):
            try:
                return await start(attributes)
            except RPCError as error:
                if attributes is None or not self.were_refused(error):
                    raise
            return await start(None)

    def were_refused(self, error: RPCError) -> bool:
        """Whether a start failed because of the search attributes.

        They were removed, or registered so recently that not every server knows them.
        """
        if (
            error.status != RPCStatusCode.INVALID_ARGUMENT
            or "search attribute" not in error.message.lower()
        ):
            return False
        self.index.forget()
        return True

    def _warn(self, findings: Findings) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        logger.warning(
            "turns run, but cannot be listed by agent, state, outcome or label: namespace %r lacks"
            " search attributes (%s); run `perdure setup --namespace %s` once",
            self._client.namespace,
            findings,
            self._client.namespace,
        )
