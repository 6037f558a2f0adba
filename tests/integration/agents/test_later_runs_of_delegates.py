"""Delegates that go on in new runs, and turns of several runs that are reset."""

import asyncio
from datetime import timedelta
from decimal import Decimal

import pytest

from perdure import Outcome, errors
from perdure.clients import Turn
from perdure.testing import ByTask, ScriptedModel, says
from perdure.turn.facts import ModelAnswered

from ...conftest import RecordingClient, Runtime
from ...support.delegating import delegate, editor, researcher
from ...support.long_turns import begin, bulky, filling, looks, reader, runs_of, until_run
from ...support.resets import reset, task_ends
from ...support.spending import app, look, until, usage

DELEGATE = "researcher-1"


@pytest.mark.slow
@pytest.mark.accepts("Y37")
@pytest.mark.parametrize("is_terminated", [False, True], ids=["ends", "terminated"])
async def test_parent_gets_what_all_runs_of_a_delegate_have_spent(
    runtime: Runtime, is_terminated: bool
) -> None:
    """Its answer as well, unless it was terminated."""
    last = says("found", usage=usage(300), delay=timedelta(minutes=is_terminated))
    models = ByTask(
        {
            "go": ScriptedModel(
                delegate("researcher", "Find.", usage(300)), says("done", usage=usage(300))
            ),
            "Find.": ScriptedModel(*bulky(8, usage(300)), last),
        }
    )
    agents = [
        editor(delegates=["researcher"]),
        researcher(tools=[look], max_iterations="unlimited"),
    ]
    async with runtime(app(*agents), model=models) as client:
        turn = await client.start("editor", "go")
        if is_terminated:
            below = await asyncio.wait_for(child_of(client, turn.id), 60)
            await until_run(client, below, 2)
            await until(below, ModelAnswered, 8)
            await client.temporal.get_workflow_handle(below.id).terminate(reason="enough")
        report = await turn.result()
        runs = await runs_of(client, client.turn(f"{turn.id}/{DELEGATE}"))

    [child] = report.children
    assert len(runs) == 2
    assert report.output == "done"
    if is_terminated:
        assert child.outcome is Outcome.TERMINATED
        assert child.steps >= 7
        assert child.cost is not None
        assert child.cost >= Decimal("0.3") * 8
    else:
        assert (child.outcome, child.steps) == (Outcome.COMPLETED, 9)
        assert child.cost == Decimal("0.3") * 9
        assert report.steps[0].results[0].content == "found"


async def child_of(client: RecordingClient, turn_id: str) -> Turn:
    """The turn of the delegate, once it was started."""
    while True:
        try:
            await client.turn(f"{turn_id}/{DELEGATE}").first_run()
            return client.turn(f"{turn_id}/{DELEGATE}")
        except errors.TurnNotFoundError:
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.accepts("Y37")
async def test_parent_goes_on_in_a_new_run_between_its_delegates(runtime: Runtime) -> None:
    """Their ids, results and bills stay."""
    models = ByTask(
        {
            "go": ScriptedModel(
                delegate("researcher", "One."),
                *filling(2),
                delegate("researcher", "Two."),
                says("done"),
            ),
            "One.": ScriptedModel(says("first")),
            "Two.": ScriptedModel(says("second")),
        }
    )
    agents = [
        editor(
            delegates=["researcher"],
            tools=[look],
            parallel_tools=True,
            max_iterations="unlimited",
        ),
        researcher(),
    ]
    async with runtime(app(*agents), model=models) as client:
        turn = await begin(client, "editor")
        report = await turn.result()
        runs = await runs_of(client, turn)

    assert len(runs) == 2
    assert [child.turn_id for child in report.children] == [
        f"{turn.id}/researcher-1",
        f"{turn.id}/researcher-2",
    ]
    assert [step.results[0].content for step in (report.steps[0], report.steps[3])] == [
        "first",
        "second",
    ]


@pytest.mark.slow
@pytest.mark.accepts("Y38")
@pytest.mark.parametrize("place", [0, -1], ids=["before the takeover", "at the end"])
async def test_second_run_that_is_reset_goes_on_with_the_state_of_the_first(
    runtime: Runtime, place: int
) -> None:
    """It takes it over again, or still has it; the report is whole."""
    model = ScriptedModel(*filling(2), *looks(2), says("done"), *looks(2), says("done"))
    async with runtime(reader(parallel_tools=True, on_loop="ignore"), model=model) as client:
        turn = await begin(client)
        report = await turn.result()
        second = (await runs_of(client, turn))[1]
        ends = task_ends(await client.history_of(turn.id, second))
        latest = client._turn(turn.id, (second,))
        await reset(client, latest, ends[place])
        again = client.turn(turn.id)
        new = await again.result()
        runs = await runs_of(client, turn)

    assert runs[0] == await turn.first_run()
    assert second not in runs
    assert (new.steps, new.messages, new.messages_from) == (report.steps, report.messages, 1)
