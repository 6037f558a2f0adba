"""An approval is bound to what was shown: this run, this call, these arguments."""

import asyncio
import secrets

import pytest

from perdure import Outcome, errors, tool
from perdure.testing import ByTask, ScriptedModel, call, calls, says

from ...conftest import Runtime
from ...support.approving import agent, pending, send, sent
from ...support.spending import SOON_S, ended


def letters(*names: str) -> ByTask:
    """A model that sends a letter to the person in the task."""
    return ByTask(
        {
            name: ScriptedModel(calls(call("send", call_id="c", to=name)), says("done"))
            for name in names
        }
    )


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.accepts("Y123")
@pytest.mark.parametrize("way", ["fork", "resume"])
async def test_decision_is_not_taken_over_by_what_goes_on_from_before_its_call(
    runtime: Runtime, way: str
) -> None:
    """The same call, with the same id and arguments, waits again, and the token of the first one
    decides nothing. The turn was terminated in the call after it, so its step is made again.
    """
    sent.clear()
    held, let_go = asyncio.Event(), asyncio.Event()

    @tool
    async def hold() -> str:
        """Wait."""
        held.set()
        await let_go.wait()
        return "held"

    step = calls(call("send", call_id="a", to="Ann"), call("hold", call_id="b"))
    model = ScriptedModel(step, step, says("done"))
    async with runtime(agent(tools=[send, hold]), model=model) as client:
        turn = await client.start("clerk", "go")
        [ann] = await pending(turn)
        await turn.approve(ann)
        await asyncio.wait_for(held.wait(), SOON_S)
        await client.temporal.get_workflow_handle(turn.id).terminate()
        await ended(turn)
        let_go.set()
        again = await (turn.fork(0) if way == "fork" else turn.resume())
        [waiting] = await pending(again)
        with pytest.raises(errors.ApprovalConflictError):
            await again.approve("a", token=ann.token)
        assert await again.pending_approvals() == (waiting,)
        await again.deny(waiting, "it is sent")
        await again.result()

    assert sent == ["Ann"]


@pytest.mark.accepts("Y123")
async def test_decision_about_an_interrupted_turn_is_not_one_about_the_next(
    runtime: Runtime,
) -> None:
    """Nor does an approval that comes too late: the call of the turn that was interrupted does not
    run, and the equal call of the next turn waits for a decision of its own.
    """
    sent.clear()
    asks = calls(call("send", call_id="c", to="Ann"))
    model = ScriptedModel(asks, asks, says("done"))
    async with runtime(agent(), model=model) as client:
        session = client.session(f"decided-{secrets.token_hex(4)}", "clerk")
        first = await (await session.say("Write to Ann.")).turn()
        [ann] = await pending(first)
        second = await (await session.say("And now?", if_busy="interrupt")).turn()
        [again] = await pending(second)
        with pytest.raises((errors.TurnOverError, errors.ApprovalConflictError)):
            await first.approve(ann)
        with pytest.raises(errors.ApprovalConflictError):
            await second.approve("c", token=ann.token)
        assert sent == []
        await second.approve(again)
        await second.result()
        await session.close()

    assert sent == ["Ann"]
