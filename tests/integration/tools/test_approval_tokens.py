"""An approval is bound to what was shown: this run, this call, these arguments."""

import pytest

from perdure import Outcome, errors
from perdure.testing import ByTask, ScriptedModel, call, calls, says

from ...conftest import Runtime
from ...support.approving import agent, pending, sent


def letters(*names: str) -> ByTask:
    """A model that sends a letter to the person in the task."""
    return ByTask(
        {
            name: ScriptedModel(calls(call("send", call_id="c", to=name)), says("done"))
            for name in names
        }
    )


@pytest.mark.accepts("A9")
async def test_call_of_a_turn_that_was_started_again_is_approved_by_its_token_alone(
    runtime: Runtime,
) -> None:
    """With its id alone, an earlier run's call could be meant; a denial needs no token."""
    sent.clear()
    async with runtime(agent(), model=letters("Ann", "Bob", "Cid")) as client:
        [ann] = await pending(await client.start("clerk", "Ann", id="letter"))
        [bob] = await pending(await client.start("clerk", "Bob", id="letter", if_exists="restart"))
        with pytest.raises(
            errors.ApprovalConflictError,
            match="was started again or reset, so 'c' alone does not identify",
        ):
            await client.turn("letter").approve("c")
        with pytest.raises(
            errors.ApprovalConflictError,
            match="its arguments differ, or the turn was started again",
        ):
            await client.turn("letter").approve("c", token=ann.token)
        assert sent == []
        await client.turn("letter").approve("c", token=bob.token)
        await client.turn("letter").result()
        turn = await client.start("clerk", "Cid", id="letter", if_exists="restart")
        await pending(turn)
        await client.turn("letter").deny("c")
        await turn.result()

    assert sent == ["Bob"]


@pytest.mark.accepts("A9")
async def test_token_of_another_run_is_refused_for_the_same_arguments(runtime: Runtime) -> None:
    """The same call of the next run is a different call."""
    sent.clear()
    async with runtime(
        agent(),
        model=ByTask({"Ann": ScriptedModel(*[calls(call("send", call_id="c", to="Ann"))] * 2)}),
    ) as client:
        first = await client.start("clerk", "Ann", id="again")
        [before] = await pending(first)
        second = await client.start("clerk", "Ann", id="again", if_exists="restart")
        [after] = await pending(second)
        with pytest.raises(errors.ApprovalConflictError):
            await client.turn("again").approve("c", token=before.token)
        await second.cancel()
        with pytest.raises(errors.TurnCancelledError):
            await second.result()

    assert (before.digest, before.token == after.token, sent) == (after.digest, False, [])


@pytest.mark.accepts("A9")
async def test_token_of_another_call_is_refused_with_a_call(runtime: Runtime) -> None:
    """To approve as well as to deny it; its own token is accepted."""
    sent.clear()
    model = ScriptedModel(calls(call("send", to="Ann"), call("send", to="Bob")), says("done"))
    async with runtime(agent(), model=model) as client:
        turn = await client.start("clerk", "go")
        ann, bob = await pending(turn, 2)
        for deciding in (turn.approve(ann, token=bob.token), turn.deny(ann, token=bob.token)):
            with pytest.raises(errors.ApprovalConflictError, match="is not that of the call"):
                await deciding
        assert await turn.pending_approvals() == (ann, bob)
        await turn.approve(ann, token=ann.token)
        await turn.deny(bob, token=bob.token)
        await turn.result()

    assert sent == ["Ann"]


@pytest.mark.accepts("A9")
async def test_id_of_a_call_does_where_the_turn_had_one_run(runtime: Runtime) -> None:
    """There an id always has the same arguments; the token is accepted, too."""
    sent.clear()
    async with runtime(agent(), model=letters("Ann", "Bob")) as client:
        one = await client.start("clerk", "Ann", id="it's \\ one")
        await pending(one)
        await client.turn(one.id).approve("c")
        two = await client.start("clerk", "Bob")
        [bob] = await pending(two)
        await client.turn(two.id).approve("c", token=bob.token)
        outcomes = [(await turn.result()).outcome for turn in (one, two)]

    assert (outcomes, sent) == ([Outcome.COMPLETED] * 2, ["Ann", "Bob"])
