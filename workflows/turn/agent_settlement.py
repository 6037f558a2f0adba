"""Keeps what a person says of a call that no turn waits for."""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import RawValue

from perdure.errors import PerdureError
from perdure.temporal import failures
from perdure.temporal.names import SETTLEMENT
from perdure.temporal.payloads import NOTHING, unpack
from perdure.turn.effect_values import SettledCall


@workflow.defn(name=SETTLEMENT, sandboxed=False, failure_exception_types=[PerdureError])
class AgentSettlement:
    """The workflow whose input is what was said. It has nothing to do."""

    @workflow.run
    async def run(self, start: RawValue = NOTHING) -> None:
        """Check the input.

        Raises:
            ApplicationError: Somebody else has started it, with another input.
        """
        with failures.typed():
            unpack(start, SettledCall)
