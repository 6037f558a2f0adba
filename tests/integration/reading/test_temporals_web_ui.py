"""The data of a turn in Temporal's web UI, requested like the web UI does."""

from datetime import timedelta
from decimal import Decimal

import pytest
from temporalio.api.enums.v1 import EventType

from perdure import Agent, Budget, Price, RequireApproval, errors, tool
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.text import money
from perdure.turn.facts import WaitBegan
from perdure.worker import AgentWorker

from ...conftest import Runtime, eventually
from ...support.approving import pending
from ...support.delegating import delegate, used
from ...support.spending import Held, report_of, until
from ...support.web_ui import card_of, rows_of, waiting_rows

PRICED = {"scripted:*": Price(input="1000", output="1000")}


@tool(read_only=True)
def look(where: str) -> str:
    """Look somewhere."""
    return f"seen {where}"


@pytest.mark.slow
@pytest.mark.accepts("O10")
async def test_person_can_read_what_a_turn_is_does_spent_and_waits_for(runtime: Runtime) -> None:
    """Summary, card and rows: agent, task, step, spending against each limit, the last error, the
    wait, and the outcome of each call.
    """
    script = {
        "Find it": ScriptedModel(
            calls(call("look", where="here"), usage=used(900)),
            fails(errors.LLMUnavailableError("the provider is down")),
            delegate("writer", "Write it down", usage=used(600)),
            calls(call("look", where="there"), usage=used(900)),
            calls(call("look", where="up"), usage=used(900)),
            says("done", usage=used(100)),
        ),
        "Write it down": ScriptedModel(says("written", usage=used(700))),
    }
    finder = Agent(
        name="finder",
        model="scripted:finder",
        tools=[look],
        delegates=["writer"],
        on_exhausted="pause",
        max_iterations=7,
    )
    worker = AgentWorker([finder, Agent(name="writer", model="scripted:writer")], prices=PRICED)
    async with runtime(worker, model=ByTask(script)) as client:
        turn = await client.start(
            "finder", "Find it", id="shown", budget=Budget(usd="20", tool_calls=3)
        )
        await until(turn, WaitBegan)
        card = await card_of(client.temporal, turn.id)
        described = await client.temporal.get_workflow_handle(turn.id).describe()
        await turn.add_budget(Budget(tool_calls=2, usd="20"))
        await turn.result()
        rows = await rows_of(client.temporal, (await client.history(turn)).events)

    assert await described.static_summary() == "finder: Find it"
    for words in (
        "**finder** — waits for budget",
        "Task: Find it",
        "Steps done: 3 of at most 7",
        "| money (USD) | ",
        "| tool calls | 3 | 0 | 3 |",
        "**Waits for budget:** the next call may cost 1 tool call and 0 tool calls are left of 3",
        "| writer-1 | completed | 0.70 | Write it down |",
    ):
        assert words in card, card
    assert rows == [
        "step 1: scripted:finder",
        'step 1: {"where": "here"}',
        "step 2: scripted:finder",
        "before scripted:finder is asked again",
        "step 2, attempt 2: scripted:finder",
        "writer: Write it down",
        "step 3: scripted:finder",
        'step 3: {"where": "there"}',
        "step 4: scripted:finder",
        'step 4: {"where": "up"}',
        "step 5: scripted:finder",
    ]


@pytest.mark.slow
@pytest.mark.accepts("O10")
async def test_card_of_a_turn_that_is_over_says_how_it_ended_and_what_it_spent(
    runtime: Runtime,
) -> None:
    """All steps are complete and nothing is reserved, even if the turn failed or was cancelled in a
    wait.
    """
    model = ByTask(
        {
            "completed": ScriptedModel(
                calls(call("look", where="here"), usage=used(900)), says("done", usage=used(100))
            ),
            "failed": ScriptedModel(
                calls(call("look", where="here"), usage=used(900)),
                fails(errors.LLMAuthError("bad key")),
            ),
            "cancelled": ScriptedModel(calls(call("send", to="Ann"), usage=used(900))),
        }
    )
    budget = Budget(usd="20", time=timedelta(minutes=5))
    clerk = Agent(name="clerk", model="scripted:clerk", tools=[look, send])
    async with runtime(AgentWorker(clerk, prices=PRICED), model=model) as client:
        turns = {task: await client.start("clerk", task, budget=budget) for task in model.scripts}
        await until(turns["cancelled"], WaitBegan)
        await turns["cancelled"].cancel()
        reports = {task: await report_of(turn) for task, turn in turns.items()}
        cards = {task: await card_of(client.temporal, turn.id) for task, turn in turns.items()}

    for task, report in reports.items():
        assert f"**clerk** — ended: {task}\n" in cards[task]
        assert f"\nSteps done: {len(report.steps)} of at most " in cards[task]
        assert (
            f"| money (USD) | {money(report.cost or Decimal(0))[1:]} | 0.00 | 20.00 |"
            in cards[task]
        )
        assert "Waits for" not in cards[task]
        assert "Time is up" not in cards[task]


@tool(requires_approval=True)
def send(to: str, text: str = "") -> str:
    """Send a letter."""
    return f"sent to {to}"


@pytest.mark.slow
async def test_card_shows_each_call_that_waits_with_its_arguments_and_until_when(
    runtime: Runtime,
) -> None:
    """As JSON that Markdown does not change, truncated with a note; a decided call disappears from
    the card while the other one still waits.
    """
    asked = calls(
        call("send", call_id="a", to="Ann", text="1 * 2 costs $3"),
        call("send", call_id="b", to="Bob", text="x" * 500),
    )
    agent = Agent(name="clerk", model="scripted:clerk", tools=[send])
    async with runtime(agent, model=ScriptedModel(asked, says("done"))) as client:
        turn = await client.start("clerk", "go")
        ann, bob = await pending(turn, 2)
        both = await card_of(client.temporal, turn.id)
        await turn.deny(ann)
        other = await card_of(client.temporal, turn.id)
        await turn.approve(bob)
        await turn.result()

    until_when = f"{bob.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    for_ann = (
        rf'- **send** (a) {{"to": "Ann", "text": "1 \* 2 costs \\u00243"}}, until {until_when}'
    )
    for_bob = (
        f'- **send** (b) {{"to": "Bob", "text": "{"x" * 60}"… (500 characters)}}, until'
        f" {until_when}"
    )
    assert waiting_rows(both) == ["**Waits for approval of:**", for_ann, for_bob]
    assert waiting_rows(other) == ["**Waits for approval of:**", for_bob]
    assert "`perdure approvals` with the id of this turn shows what is cut." in both


@pytest.mark.slow
async def test_card_has_the_last_error_until_the_model_answers(runtime: Runtime) -> None:
    """During the retry, and not after the answer."""
    model = Held(
        fails(errors.LLMUnavailableError("the provider is down")),
        calls(call("send", to="Ann")),
        says("done"),
    )
    async with runtime(
        Agent(name="clerk", model="scripted:clerk", tools=[send]), model=model
    ) as client:
        turn = await client.start("clerk", "go")
        await eventually(lambda: model.call_count == 2, "the model is asked again")
        failed = await card_of(client.temporal, turn.id)
        model.let_go.set()
        [ann] = await pending(turn)
        answered = await card_of(client.temporal, turn.id)
        await turn.approve(ann)
        await turn.result()

    assert failed.endswith("\n\nLast error: LLM_UNAVAILABLE: the provider is down")
    assert "Last error" not in answered


@pytest.mark.slow
async def test_timers_say_what_they_are_for(runtime: Runtime) -> None:
    """The deadline of a turn, and the expiry of an approval, are readable rows of the timeline."""
    agent = Agent(
        name="clerk",
        model="scripted:clerk",
        tools=[look],
        policy=lambda _: RequireApproval(expires=timedelta(seconds=1)),
    )
    model = ScriptedModel(calls(call("look", where="here")), says("done"))
    async with runtime(agent, model=model) as client:
        turn = await client.start("clerk", "go", budget=Budget(time=timedelta(minutes=5)))
        await turn.result()
        events = [
            event
            for event in (await client.history(turn)).events
            if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED
        ]
        rows = await rows_of(client.temporal, events)

    assert rows == [
        "the deadline of the turn",
        "the approval of look expires",
        "the deadline of the turn",
    ]


@pytest.mark.slow
async def test_task_cannot_make_a_link_of_the_summary(runtime: Runtime) -> None:
    """The web UI renders the summary of a turn as Markdown, and a model writes a delegate's
    task.
    """
    task = "[Approve here](http://evil.invalid/a) *now*"
    script = {
        "go": ScriptedModel(delegate("writer", task), says("done")),
        task: ScriptedModel(says("written")),
    }
    agents = [
        Agent(name="finder", model="scripted:finder", delegates=["writer"]),
        Agent(name="writer", model="scripted:writer"),
    ]
    async with runtime(AgentWorker(agents), model=ByTask(script)) as client:
        turn = await client.start("finder", "go")
        await turn.result()
        rows = await rows_of(client.temporal, (await client.history(turn)).events)

    assert r"writer: \[Approve here\](http://evil.invalid/a) \*now\*" in rows
