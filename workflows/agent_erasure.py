"""Keeps who has erased a data subject."""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import RawValue

from perdure.errors import PerdureError
from perdure.temporal import failures
from perdure.temporal.acts.erasures import Erasure
from perdure.temporal.names import ERASURE
from perdure.temporal.payloads import NOTHING, unpack


@workflow.defn(name=ERASURE, sandboxed=False, failure_exception_types=[PerdureError])
class AgentErasure:
    """The workflow whose input is the act. It has nothing to do."""

    @workflow.run
    async def run(self, start: RawValue = NOTHING) -> None:
        """Check the input.

        Raises:
            ApplicationError: Somebody else has started it, with another input.
        """
        with failures.typed():
            unpack(start, Erasure)
