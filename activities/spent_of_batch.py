"""What a batch has spent that was terminated, and so has not counted itself."""

from __future__ import annotations

from temporalio import activity
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.activities.read_child import read_child
from perdure.batch import leases as batch_leases
from perdure.batch.wire import BatchNote, part_id
from perdure.temporal.histories.part_history import PartReader, TurnOfPart
from perdure.temporal.names import MEMO_BATCH
from perdure.temporal.payloads import decoded
from perdure.turn.wire import ChildRun
from perdure.values.budgets import NOTHING, Spending


async def spent_of_batch(info: WorkflowExecutionInfo) -> Spending:
    """Return what the turns of a batch have spent, by the histories of its parts.

    Raises:
        RPCError: The server does not answer.
    """
    client = activity.client()
    if MEMO_BATCH not in info.memo.fields:
        return NOTHING
    [memo] = await decoded(client.data_converter, [info.memo.fields[MEMO_BATCH]])
    note, spent = BatchNote.model_validate(memo), NOTHING
    for number, round_ in enumerate(note.rounds, 1):
        for part in range(1, round_.parts + 1):
            there = part_id(info.execution.workflow_id, number, round_.digest, part)
            spent += await _of_part(client, there)
    return batch_leases.largest(spent, note.spent)


async def _of_part(client: Client, there: str) -> Spending:
    spent = NOTHING
    for turn_id, known in (await _known(client, there)).items():
        spent += await _of_turn(turn_id) if known is None else known
    return spent


async def _known(client: Client, there: str) -> dict[str, Spending | None]:
    """Return what each turn of a part has spent, by its id; None if the part does not know."""
    reader, turns = PartReader(client.data_converter), dict[str, Spending | None]()
    async for event in client.get_workflow_handle(there).fetch_history_events():
        for fact in await reader.read(event):
            if isinstance(fact, TurnOfPart):
                summary = fact.end.summary if fact.end else None
                turns[fact.turn_id] = summary.spent if summary else None
    return turns


async def _of_turn(turn_id: str) -> Spending:
    """Return what a turn has spent whose part did not record it; nothing if there is none."""
    try:
        return (await read_child(ChildRun(turn_id=turn_id, run_id=""))).summary.spent
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return NOTHING
        raise
