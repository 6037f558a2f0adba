"""A call that waits for approval: what Temporal shows of it, and the handling of late decisions."""

from datetime import timedelta

import pytest

from perdure import Agent, ProposedCall, RequireApproval, errors, tool
from perdure.clients import Turn
from perdure.temporal.names import MEMO_WAIT
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.facts import WaitBegan
from perdure.values.approvals import PendingApproval

from ...conftest import RecordingClient, Runtime
from ...support.spending import until
from ...support.web_ui import card_of, waiting_rows

SENT: list[str] = []


@tool
def send(to: str) -> str:
    """Send a letter."""
    SENT.append(to)
    return f"sent to {to}"


def policy(proposed: ProposedCall) -> RequireApproval:
    """Require approval of every call; for Ann it must come within a second."""
    return RequireApproval(expires=timedelta(seconds=1) if "Ann" in proposed.arguments else None)


AGENT = Agent(name="clerk", model="scripted:clerk", tools=[send], policy=policy)


async def asked(turn: Turn) -> tuple[PendingApproval, ...]:
    """The calls that the turn started to wait for, including those that have expired since."""
    fact = (await until(turn, WaitBegan)).fact
    assert isinstance(fact, WaitBegan)
    return fact.pending


async def first_timer(client: RecordingClient, turn: Turn) -> None:
    """Return when the turn's first timer has fired."""
    async for event in client.temporal.get_workflow_handle(turn.id).fetch_history_events(
        wait_new_event=True
    ):
        if event.HasField("timer_fired_event_attributes"):
            return


@pytest.mark.slow
@pytest.mark.accepts("A3")
async def test_decision_after_its_expiry_is_not_taken(runtime: Runtime) -> None:
    """The turn still waits for other calls; an expired one cannot be approved, is no longer shown,
    and does not run.
    """
    SENT.clear()
    model = ScriptedModel(
        calls(*(call("send", call_id=to.lower(), to=to) for to in ("Ann", "Bob", "Cid"))),
        says("done"),
    )
    async with runtime(AGENT, model=model) as client:
        turn = await client.start("clerk", "go")
        ann, bob, cid = await asked(turn)
        await first_timer(client, turn)
        left = [one.call_id for one in await turn.pending_approvals()]
        with pytest.raises(errors.ApprovalConflictError, match="expired at"):
            await turn.approve(ann)
        await turn.deny(bob)
        rows = waiting_rows(await card_of(client.temporal, turn.id))
        await turn.approve(cid)
        report = await turn.result()

    assert left == ["bob", "cid"]
    assert rows == [
        "**Waits for approval of:**",
        f'- **send** (cid) {{"to": "Cid"}}, until {cid.expires_at:%Y-%m-%d %H:%M:%S} UTC',
    ]
    contents = [result.content for result in report.steps[0].results]
    assert contents == [
        "This call was not run: nobody approved it within 0:00:01.",
        "This call was not run: it was denied.",
        "sent to Cid",
    ]
    assert SENT == ["Cid"]


@pytest.mark.slow
async def test_memo_has_the_arguments_of_what_waits_while_it_does(runtime: Runtime) -> None:
    """Readers of Temporal alone see the request, and nothing of it after the decision."""
    async with runtime(
        AGENT, model=ScriptedModel(calls(call("send", call_id="a", to="Bob")), says("done"))
    ) as client:
        turn = await client.start("clerk", "go")
        [bob] = await asked(turn)
        handle = client.temporal.get_workflow_handle(turn.id)
        waiting = await (await handle.describe()).memo_value(MEMO_WAIT)
        await turn.approve(bob)
        await turn.result()
        after = await (await handle.describe()).memo()

    told = {
        "call_id": "a",
        "tool": "send",
        "arguments": '{"to": "Bob"}',
        "digest": bob.digest,
        "expires_at": waiting["pending"][0]["expires_at"],
    }
    assert waiting == {
        "kind": "approval",
        "reason": "somebody has to approve or deny send (a)",
        "pending": [told],
    }
    assert MEMO_WAIT not in after
