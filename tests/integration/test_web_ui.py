"""What Temporal's web UI shows of a turn, asked for as the web UI asks."""

from collections.abc import Iterable
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from perdure import Agent, Budget, Price, errors, tool
from perdure.facts import WaitBegan
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says
from perdure.worker import AgentWorker

from ..conftest import Runtime
from .delegating import delegate, used
from .spending import until

PRICED = {"scripted:*": Price(input="1000", output="1000")}
SHOWN = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED,
}
"""Each of them is a row of the timeline."""


@tool(read_only=True)
def look(where: str) -> str:
    """Look somewhere."""
    return f"seen {where}"


async def card_of(client: Client, turn_id: str) -> str:
    """The current details."""
    found: Any = await client.get_workflow_handle(turn_id).query("__temporal_workflow_metadata")
    return str(found.current_details).replace("\u00a0", "")


async def rows_of(client: Client, events: Iterable[HistoryEvent]) -> list[str]:
    """The summaries of the timeline's rows, in order."""
    shown = [event for event in events if event.event_type in SHOWN]
    return [(await client.data_converter.decode([event.user_metadata.summary]))[0] for event in shown]


@pytest.mark.accepts("O10")
async def test_person_can_read_what_a_turn_is_does_spent_and_waits_for(runtime: Runtime) -> None:
    """Summary, card and rows: agent, task, step, spending against each limit, the last error, the wait, and what each call did."""
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
    finder = Agent(name="finder", model="scripted:finder", tools=[look], delegates=["writer"], on_exhausted="pause", max_iterations=7)
    worker = AgentWorker([finder, Agent(name="writer", model="scripted:writer")], prices=PRICED)
    async with runtime(worker, model=ByTask(script)) as client:
        turn = await client.start("finder", "Find it", id="shown", budget=Budget(usd="20", tool_calls=3))
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
        "**Waits for budget:** the next call may cost 1 tool calls and 0 tool calls are left of 3",
        "| writer-1 | completed | 0.7 | Write it down |",
    ):
        assert words in card, card
    assert rows == [
        "agent finder",
        "step 1: scripted:finder",
        "step 1: where=here",
        "step 2: scripted:finder",
        "before scripted:finder is asked again",
        "step 2, attempt 2: scripted:finder",
        "writer: Write it down",
        "step 3: scripted:finder",
        "step 3: where=there",
        "step 4: scripted:finder",
        "step 4: where=up",
        "step 5: scripted:finder",
    ]
