"""Ids of another kind: a handle of a turn, a session, a batch or a schedule does nothing with them."""

import asyncio

import pytest

from perdure import errors
from perdure.testing import says

from ..conftest import Runtime
from .spending import SOON_S, Held, app


@pytest.mark.accepts("E165")
async def test_wait_for_a_batch_refuses_the_id_of_a_running_turn(runtime: Runtime) -> None:
    """At once, and not when the turn is over."""
    model = Held(says("done"))
    async with runtime(app(), model=model) as client:
        turn = await client.start("spender", "go")
        with pytest.raises(errors.BatchNotFoundError, match="AgentTurn, not a batch"):
            await asyncio.wait_for(client.batch(turn.id).wait(), SOON_S)
        is_over = (await turn.status()).ended_at is not None
        model.let_go.set()
        await turn.result()

    assert not is_over
