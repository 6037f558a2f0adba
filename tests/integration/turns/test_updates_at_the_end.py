"""Updates that arrive when their turn ends: the caller gets an error that says so, and how the turn
ended.
"""

import asyncio
from collections import Counter

import pytest

from perdure import Budget, Outcome, errors
from perdure.clients import AgentClient, Turn
from perdure.clients.reading.recorded import state_of
from perdure.testing import ScriptedModel, says

from ...conftest import Runtime
from ...support.spending import queue, report_of, spender

MORE = Budget(model_calls=1)


async def refused(turn: Turn) -> errors.InvalidRequestError:
    """The error of adding to the budget of a turn that ends."""
    with pytest.raises(errors.InvalidRequestError, match="is over") as caught:
        await turn.add_budget(MORE)
    return caught.value


@pytest.mark.accepts("Y19")
async def test_update_that_waits_when_its_turn_is_terminated_is_told_so(
    perdure_server: str,
) -> None:
    """No worker accepted it, so the server drops it with the turn."""
    async with queue(perdure_server) as work:
        turn = await work.client.start("spender", "go")
        asked = asyncio.create_task(refused(turn))
        await asyncio.sleep(0.5)
        await work.client.temporal.get_workflow_handle(turn.id).terminate()
        error = await asked

    assert error.context["outcome"] == Outcome.TERMINATED


@pytest.mark.accepts("Y19")
async def test_update_after_the_end_is_told_the_outcome(runtime: Runtime) -> None:
    """The error names the turn and how it ended."""
    async with runtime(
        spender(budget=Budget(model_calls=3)), model=ScriptedModel(says("done"))
    ) as client:
        turn = await client.start("spender", "go")
        await report_of(turn)
        error = await refused(turn)

    assert error.message == (
        f"turn {turn.id!r} is over (completed); 'add_budget' comes too late: fork the turn, or"
        " resume it if it has no answer"
    )


@pytest.mark.slow
@pytest.mark.accepts("Y19")
async def test_updates_that_race_with_the_end_of_their_turn_are_taken_in_or_told_that_it_is_over(
    runtime: Runtime,
) -> None:
    """Some turns end before the update, some after it, some at the same moment; history has the
    accepted updates, and nothing else.
    """
    answers = ScriptedModel(*[says("done") for _ in range(80)])
    told: Counter[str] = Counter()
    async with runtime(spender(budget=Budget(model_calls=3)), model=answers) as client:
        for first in range(0, 80, 8):
            told.update(
                await asyncio.gather(*(race(client, number) for number in range(first, first + 8)))
            )

    assert set(told) == {"taken in", "over"}


async def race(client: AgentClient, number: int) -> str:
    """Add to the budget of a turn at about the moment at which it ends, and compare the result with
    its history.
    """
    turn = await client.start("spender", f"go {number}")
    if number % 4 == 3:
        await report_of(turn)
    await asyncio.sleep(number % 20 * 0.02)
    try:
        left = await turn.add_budget(MORE)
    except errors.InvalidRequestError as error:
        answer = "over" if error.context.get("outcome") == Outcome.COMPLETED else str(error)
    else:
        assert left.model_calls in (3, 4)
        answer = "taken in"
    report = await report_of(turn)
    state = await state_of(client.temporal, turn.id, await turn.first_run())
    assert (report.outcome, report.model_calls) == (Outcome.COMPLETED, 1)
    assert state.accounts.ledger.budget == Budget(model_calls=4 if answer == "taken in" else 3)
    return answer
