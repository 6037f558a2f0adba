"""Turns are found by agent, state, outcome, label and parent; and namespaces without the search
attributes for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.operatorservice.v1 import RemoveSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import SearchAttributePair
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.service import RPCError, RPCStatusCode, ServiceClient

from perdure import (
    Agent,
    Budget,
    Outcome,
    Price,
    ProposedCall,
    Registry,
    RequireApproval,
    ToolContext,
    TurnInfo,
    Usage,
    errors,
    tool,
)
from perdure.clients import AgentClient, TurnEntry
from perdure.clients.cli.drawing.turns import entry_table
from perdure.clients.cli.running import setup_namespace
from perdure.temporal import namespace_check, search_attributes
from perdure.temporal.connect import connect_local
from perdure.temporal.namespace_check import Index
from perdure.testing import ScriptedModel, call, calls, fails, local_runtime, says
from perdure.turn.facts import ChildScheduled
from perdure.values.reports import StopReason
from perdure.values.states import State
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Runtime, check_history, eventually
from ...support.listing import bare_server, entry_of, eventually_listed, listed
from ...support.spending import ended, queue, until

TROUBLE = [
    *[
        "it's",
        'say "hi"',
        "back\\slash",
        "end\\",
        "new\nline",
        "tab\t",
        "nul\0",
        "%41",
        "a=b",
        "♡heart",
        "`tick`",
        "' OR ''='",
        "*",
        "-- ;",
        "",
    ],
    *["é ü 漢字 😀", "x" * 300, "x" * 299 + "y", "😀" * 100, " lead", "Case", "case", "\x1b[31m"],
]
"""Values that a store or a query might reject."""


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def agent() -> Agent:
    """An agent with a unique name."""
    return Agent(name=f"adder-{secrets.token_hex(4)}", model="scripted:adder", tools=[add])


@pytest.mark.accepts("O11")
@pytest.mark.slow
async def test_turns_are_found_by_the_beginning_of_their_ids(runtime: Runtime) -> None:
    """Delegates included; other cases of letters, quotes and wildcards are taken as they are."""
    one = secrets.token_hex(4)
    ids = [f"@{one}/1", f"@{one.upper()}x/2", f"@{one}x/3", f"@{one}/it's", f"@{one}/%/1"]
    delegates = Agent(name="lead", model="scripted:x", delegates=["desk"])
    app = Registry([delegates, Agent(name="desk", model="scripted:x")])
    model = {
        "desk": ScriptedModel(*[says("Yes.")] * 6),
        "lead": ScriptedModel(
            calls(call("delegate_to_agent", agent="desk", task="Help.")), says("Done.")
        ),
    }
    async with runtime(app, model=model) as client:
        for turn_id in ids:
            await client.run("desk", "Help.", id=turn_id)
        await client.run("lead", "Help.", id=f"@{one}/lead")
        child = f"@{one}/lead/desk-1"
        mine = {f"@{one}/1", f"@{one}/it's", f"@{one}/%/1", f"@{one}/lead", child}
        await eventually_listed(client, mine, id_prefix=f"@{one}/")
        found = {
            prefix: await listed(client, id_prefix=prefix)
            for prefix in (f"@{one}/%", f"@{one}/it'", f"@{one}/_", f"@{one}' OR '1' = '1")
        }

    assert list(found.values()) == [[f"@{one}/%/1"], [f"@{one}/it's"], [], []]


async def upserts(client: RecordingClient, turn_id: str) -> int:
    """The number of times that a turn wrote search attributes, besides the SDK for a patch."""
    history = await client.history(client.turn(turn_id))
    written = [
        event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES
    ]
    return sum("TemporalChangeVersion" not in fields for fields in written)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "perdure" and record.levelno == logging.WARNING
    ]


@pytest.mark.slow
async def test_entry_says_all_of_an_ended_turn(runtime: Runtime, agent: Agent) -> None:
    """Agent, task, outcome, steps, labels and times, from the list only; and the turn wrote search
    attributes once.
    """
    async with runtime(
        agent, model=ScriptedModel(calls(call("add", a=2, b=3)), says("five"))
    ) as client:
        report = await client.run(agent, "2 + 3?", id=f"{agent.name}/sum", labels={"region": "eu"})
        await eventually_listed(client, [report.turn_id], agent=agent, state="ended")
        entry = await entry_of(client, report.turn_id, agent=agent)
        run_id = await client.turn(report.turn_id).first_run()

        assert entry == TurnEntry(
            id=report.turn_id,
            run_id=run_id,
            agent=agent.name,
            last_agent=agent.name,
            task="2 + 3?",
            state=State.ENDED,
            outcome=Outcome.COMPLETED,
            steps=2,
            spent=report.cost,
            labels={"region": "eu"},
            started_at=entry.started_at,
            ended_at=entry.ended_at,
        )
        assert entry.ended_at is not None
        assert (
            timedelta()
            < entry.ended_at - entry.started_at
            <= report.duration + timedelta(seconds=1)
        )
        assert await upserts(client, report.turn_id) == 1


@pytest.mark.slow
@pytest.mark.accepts("P27")
async def test_turns_of_one_task_queue_are_listed_alone(perdure_server: str, agent: Agent) -> None:
    """For any name of the queue; by default, those of all queues. No worker is needed."""
    connected = await connect_local(perdure_server)
    names = [f"{agent.name} {odd}" for odd in ("plain", "it's", "back\\slash", "' OR ''='")]
    started = {
        name: await AgentClient.from_temporal(connected, task_queue=name).start(agent, "hello")
        for name in names
    }
    client = AgentClient.from_temporal(connected)

    await eventually_listed(client, [turn.id for turn in started.values()], agent=agent)
    found = {name: await listed(client, task_queue=name) for name in names}
    for turn in started.values():
        await connected.get_workflow_handle(turn.id).terminate()

    assert found == {name: [turn.id] for name, turn in started.items()}


async def test_labels_are_on_the_turn_and_in_tool_context_and_filter_the_list(
    runtime: Runtime,
) -> None:
    """A turn is found by one of its labels and by all of them, and not by another label."""
    seen: list[dict[str, str]] = []

    @tool
    def look(ctx: ToolContext[Any]) -> str:
        """Look at the labels."""
        seen.append(dict(ctx.labels))
        return "seen"

    labels = {"customer": 'Müller "& Söhne"', "test": secrets.token_hex(4)}
    async with runtime(
        Agent(name="looker", model="x", tools=[look]),
        model=ScriptedModel(calls(call("look")), says("done"), says("other")),
    ) as client:
        report = await client.run("looker", "Look.", labels=labels)
        other = await client.run("looker", "Look.", labels={**labels, "customer": "another"})
        await eventually_listed(
            client, [report.turn_id, other.turn_id], labels={"test": labels["test"]}
        )

        assert seen == [labels]
        assert await listed(client, labels=labels) == [report.turn_id]
        assert await listed(client, labels={**labels, "missing": "x"}) == []
        assert (await entry_of(client, report.turn_id, labels=labels)).labels == labels


@pytest.mark.slow
async def test_turns_are_found_by_how_they_ended(runtime: Runtime, agent: Agent) -> None:
    """Each outcome finds its own turn, even where Temporal has one status for several."""
    limited = replace(agent, name=f"{agent.name}-limited", max_iterations=1)
    model = ScriptedModel(
        says("five"),
        says("fi", stop=StopReason.MAX_TOKENS),
        fails(errors.LLMAuthError("no such key")),
        calls(call("add", a=1, b=1)),
    )
    async with runtime([agent, limited], model=model) as client:
        ids = {}
        for outcome, name in (
            ("completed", agent.name),
            ("truncated", agent.name),
            ("failed", agent.name),
            ("max_iterations", limited.name),
        ):
            turn = await client.start(name, outcome, labels={"agent": agent.name})
            ids[outcome] = turn.id
            with contextlib.suppress(errors.PerdureError):
                await turn.result()
        await eventually_listed(
            client, ids.values(), labels={"agent": agent.name}, state=State.ENDED
        )

        assert {
            outcome: await listed(client, labels={"agent": agent.name}, outcome=outcome)
            for outcome in ids
        } == {outcome: [turn_id] for outcome, turn_id in ids.items()}


@pytest.mark.slow
async def test_turn_that_could_not_say_its_end_is_found_by_it(
    runtime: Runtime, agent: Agent
) -> None:
    """Terminated, timed out by the server, or cancelled before its agent was known: the last
    recorded state of such a turn was `running`.
    """
    async with runtime(agent, model=ScriptedModel()) as client:
        nobody = AgentClient.from_temporal(client.temporal, task_queue=f"nobody-{agent.name}")
        terminated = await nobody.start(agent, "to be terminated")
        running = await nobody.start(agent, "waits for a worker")
        timed_out = await client.temporal.start_workflow(
            "AgentTurn",
            {"agent": agent.name, "task": "too late"},
            id=f"{agent.name}/late",
            task_queue=f"nobody-{agent.name}",
            execution_timeout=timedelta(milliseconds=200),
            search_attributes=search_attributes.at_start(agent.name, {}),
        )
        unknown = await client.start(
            f"{agent.name}-unknown", "of an agent that nobody has", labels={"agent": agent.name}
        )
        await client.temporal.get_workflow_handle(terminated.id).terminate()
        with pytest.raises(errors.UnknownAgentError):
            await unknown.result()
        await eventually_listed(client, [terminated.id], agent=agent, outcome=Outcome.TERMINATED)
        await eventually_listed(client, [timed_out.id], agent=agent, outcome="timed_out")
        await eventually_listed(
            client, [unknown.id], labels={"agent": agent.name}, outcome="failed"
        )

        assert await listed(client, agent=agent, state="running") == [running.id]
        assert await listed(client, agent=agent, state="ended") == sorted(
            [terminated.id, timed_out.id]
        )
        assert (
            await listed(client, agent=agent, state="waiting")
            == await listed(client, agent=agent, state="paused")
            == []
        )
        assert (await entry_of(client, terminated.id, agent=agent)).steps is None


@pytest.mark.slow
async def test_cancelled_turn_is_found_as_cancelled(runtime: Runtime, agent: Agent) -> None:
    """It records that itself, with the number of its steps."""
    async with runtime(
        agent,
        model=ScriptedModel(
            calls(call("add", a=2, b=3)), says("five", delay=timedelta(seconds=30))
        ),
    ) as client:
        turn = await client.start(agent, "2 + 3?")
        async for event in turn.events():
            if str(getattr(event.fact, "key", "")) == "step-2":
                await turn.cancel("changed my mind")
                break
        with pytest.raises(errors.TurnCancelledError):
            await turn.result()
        await eventually_listed(client, [turn.id], agent=agent, outcome="cancelled")

        assert (await entry_of(client, turn.id, agent=agent)).steps == 1


@pytest.mark.accepts("O15")
async def test_turn_that_ends_before_its_agent_is_known_says_all_of_its_end(
    perdure_server: str, agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """Cancelled before there was a worker, cancelled while a factory blocks, with its delegate, or
    of an unknown agent.
    """
    caplog.set_level(logging.INFO, "perdure.turns")
    free, asked = threading.Event(), threading.Event()

    def slow(info: TurnInfo) -> Agent:
        asked.set()
        free.wait(40)
        return Agent(name="slow", model="scripted:x")

    boss = replace(agent, delegates=["slow"])
    model = ScriptedModel(calls(call("delegate_to_agent", agent="slow", task="x")))
    labels = {"of": agent.name}
    async with queue(perdure_server) as work:
        early = await work.client.start(agent.name, "nobody works", labels=labels)
        await early.cancel()
        async with work.worker(AgentWorker(Registry([boss, slow])), model):
            await ended(early)
            unknown = await work.client.start(f"{agent.name}-unknown", "go", labels=labels)
            await ended(unknown)
            parent = await work.client.start(agent.name, "delegate", labels=labels)
            await until(parent, ChildScheduled)
            await asyncio.to_thread(asked.wait, 20)
            await parent.cancel()
            await ended(parent)
            free.set()
        child = f"{parent.id}/slow-1"
        cancelled, failed = [early.id, parent.id, child], [unknown.id]
        await eventually_listed(
            work.client, cancelled, labels=labels, outcome="cancelled", state="ended"
        )
        await eventually_listed(work.client, failed, labels=labels, outcome="failed")
        shown = {
            entry.id: (entry.outcome, entry.steps)
            async for entry in work.client.turns(labels=labels)
        }
        states = [
            (
                await work.client.temporal.get_workflow_handle(turn_id).describe()
            ).typed_search_attributes.get(search_attributes.STATE)
            for turn_id in (*cancelled, *failed)
        ]

    assert states == ["ended"] * 4
    assert [shown[turn_id] for turn_id in (early.id, child, unknown.id)] == [
        ("cancelled", 0),
        ("cancelled", 0),
        ("failed", 0),
    ]
    said = [record.perdure for record in caplog.records if record.name == "perdure.turns"]  # type: ignore[attr-defined]
    for turn_id in (*cancelled, *failed):
        events = [
            record["event"]
            for record in said
            if record["task"] == turn_id and record["event"].startswith("turn_")
        ]
        assert events == ["turn_started", "turn_failed", "turn_completed"], turn_id


async def test_state_that_a_turn_says_is_the_one_it_is_found_by(
    perdure_server: str, agent: Agent
) -> None:
    """Waiting and paused turns are found as such, and not as running."""
    client = await connect_local(perdure_server)
    for state in ("running", "waiting", "paused"):
        marks = search_attributes.at_start(agent.name, {}).updated(
            SearchAttributePair(search_attributes.STATE, state)
        )
        await client.start_workflow(
            "AgentTurn", id=f"{agent.name}/{state}", task_queue="nobody", search_attributes=marks
        )
    agents = AgentClient.from_temporal(client)
    await eventually_listed(
        agents, [f"{agent.name}/{state}" for state in ("running", "waiting", "paused")], agent=agent
    )

    for state in ("running", "waiting", "paused"):
        assert await listed(agents, agent=agent, state=state) == [f"{agent.name}/{state}"]
        assert (await entry_of(agents, f"{agent.name}/{state}", agent=agent)).state == state


@pytest.mark.slow
@pytest.mark.parametrize(
    "attributes", [search_attributes.TYPES, {}], ids=["with search attributes", "without"]
)
@pytest.mark.table(1)
async def test_turn_that_waits_for_budget_is_listed_as_paused(
    agent: Agent, attributes: Mapping[str, str]
) -> None:
    """It continues when more is added, and then the list has its spending; without search
    attributes, both come from the memo.
    """
    app = AgentWorker(
        replace(agent, on_exhausted="pause"),
        prices={"scripted:*": Price(input="1000", output="1000")},
    )
    model = ScriptedModel(
        calls(call("add", a=2, b=3), usage=Usage(input_tokens=900, output_tokens=100)),
        says("five", usage=Usage(input_tokens=90, output_tokens=10)),
    )
    async with (
        bare_server(search_attributes=attributes) as address,
        local_runtime(app, model=model, address=address) as client,
    ):
        turn = await client.start(agent, "2 + 3?", budget=Budget(usd="2.5"))
        paused = await entry_of(client, turn.id, in_state=State.PAUSED)
        found = await listed(client, state="paused") if attributes else [turn.id]
        await turn.add_budget(Budget(usd="5"))
        report = await turn.result()
        ended = await entry_of(client, turn.id, in_state=State.ENDED)
        await check_history(client.temporal, turn.id, await turn.first_run())
        spent = await client.temporal.count_workflows("PerdureSpent = 1.1") if attributes else None

    assert (paused.outcome, paused.steps, paused.spent) == (None, None, None)
    assert found == [turn.id]
    assert ended.spent == report.cost == Decimal("1.1")
    assert spent is None or spent.count == 1


@pytest.mark.slow
async def test_turn_that_waits_for_a_person_is_listed_as_waiting(
    runtime: Runtime, agent: Agent
) -> None:
    """When the approval expires, it runs again and is listed so, although its memo has the expired
    call.
    """

    def policy(_: ProposedCall) -> RequireApproval:
        return RequireApproval(expires=timedelta(seconds=3))

    model = ScriptedModel(calls(call("add", a=2, b=3)), says("four", delay=timedelta(seconds=30)))
    async with runtime(replace(agent, policy=policy), model=model) as client:
        turn = await client.start(agent, "2 + 3?")
        await eventually_listed(client, [turn.id], agent=agent, state="waiting")
        running = await listed(client, agent=agent, state="running")
        await eventually_listed(client, [turn.id], agent=agent, state="running")
        await turn.cancel()
        with pytest.raises(errors.TurnCancelledError):
            await turn.result()

    assert running == []
    assert "nobody approved it" in str(model.requests[1].messages)


@pytest.mark.slow
async def test_labels_ids_and_parents_may_hold_anything(perdure_server: str) -> None:
    """Each value finds its own turn and no other, with any quotes, case, length or control
    characters.
    """
    client = await connect_local(perdure_server)
    agents, test = AgentClient.from_temporal(client, task_queue="nobody"), secrets.token_hex(4)
    for number, text in enumerate(TROUBLE):
        await agents.start(
            "adder", "x", id=f"{test}/{number}", labels={"test": test, text: text, "same": text}
        )
        marks = search_attributes.at_start("adder", {"child": test}, parent=f"{test}{text}")
        await client.start_workflow(
            "AgentTurn", id=f"{test}/child/{number}", task_queue="nobody", search_attributes=marks
        )
    await eventually_listed(
        agents, [f"{test}/{number}" for number in range(len(TROUBLE))], labels={"test": test}
    )
    await eventually_listed(
        agents, [f"{test}/child/{number}" for number in range(len(TROUBLE))], labels={"child": test}
    )

    for number, text in enumerate(TROUBLE):
        assert await listed(agents, labels={"test": test, text: text}) == [f"{test}/{number}"], text
        assert await listed(agents, labels={"test": test, "same": text}) == [f"{test}/{number}"], (
            text
        )
        assert await listed(agents, parent=f"{test}{text}") == [f"{test}/child/{number}"], text
    assert await listed(agents, agent=f"x' OR {search_attributes.LABELS.name} = 'test={test}") == []


async def test_turn_from_temporals_own_command_line_is_found_too(
    runtime: Runtime, agent: Agent
) -> None:
    """It was started without search attributes, so it sets them itself, once at its start."""
    async with runtime(agent, model=ScriptedModel("five")) as client:
        turn_id = f"{agent.name}/cli"
        request = {"agent": agent.name, "task": "2 + 3?", "labels": {"test": agent.name}}
        await client.temporal.start_workflow(
            "AgentTurn", request, id=turn_id, task_queue=client.task_queue
        )
        await client.turn(turn_id).result()
        await eventually_listed(
            client, [turn_id], agent=agent, labels={"test": agent.name}, outcome="completed"
        )

        assert await upserts(client, turn_id) == 2


@pytest.mark.table(1)
@pytest.mark.parametrize("way", ["client", "command line"])
async def test_labels_that_no_list_can_hold_do_not_harm_the_turn(
    runtime: Runtime, agent: Agent, way: str
) -> None:
    """Four kilobytes of labels are too much for a search attribute; the first of them can be
    searched.
    """
    labels = {
        "first": agent.name,
        **{f"other-{number}": "\0'\"" + "😀" * 20 for number in range(40)},
    }
    async with runtime(agent, model=ScriptedModel("five")) as client:
        if way == "client":
            turn = await client.start(agent, "2 + 3?", labels=labels)
        else:
            request = {"agent": agent.name, "task": "2 + 3?", "labels": labels}
            handle = await client.temporal.start_workflow(
                "AgentTurn", request, id=f"{agent.name}/x", task_queue=client.task_queue
            )
            turn = client.turn(handle.id)
        report = await turn.result()
        await eventually_listed(client, [turn.id], labels={"first": agent.name})

        assert report.output == "five"


@pytest.mark.slow
async def test_list_begins_with_what_runs_and_ends_at_its_limit(
    runtime: Runtime, agent: Agent
) -> None:
    """Then come the most recently ended ones. Further pages are read if requested."""
    async with runtime(agent, model=ScriptedModel("one", "two")) as client:
        first = await client.run(agent, "1")
        second = await client.run(agent, "2")
        nobody = AgentClient.from_temporal(client.temporal, task_queue=f"nobody-{agent.name}")
        running = await nobody.start(agent, "3")
        await eventually_listed(client, [first.turn_id, second.turn_id], agent=agent, state="ended")
        await eventually_listed(client, [running.id], agent=agent, state="running")
        ids = [running.id, second.turn_id, first.turn_id]

        assert [entry.id async for entry in client.turns(agent)] == ids
        assert [entry.id async for entry in client.turns(agent, limit=2)] == ids[:2]
        assert [entry.id async for entry in client.turns(agent.name, limit=500)] == ids


@pytest.mark.parametrize(
    "wanted", [{"state": "sleeping"}, {"outcome": "perfect"}, {"limit": 0}], ids=str
)
async def test_filter_that_cannot_be_is_refused_at_once(
    perdure_server: str, wanted: dict[str, Any]
) -> None:
    """A typo is not an empty list."""
    client = AgentClient.from_temporal(await connect_local(perdure_server))

    with pytest.raises(errors.InvalidRequestError):
        client.turns(**wanted)


@pytest.mark.slow
async def test_namespace_without_search_attributes_runs_turns_and_says_so_once(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """Turns run and are listed, but filters need `perdure setup`; after it the same client finds
    turns that start from then on.
    """
    async with (
        bare_server() as address,
        local_runtime(agent, model=ScriptedModel("one", "two", "three"), address=address) as client,
    ):
        before = [await client.run(agent, task) for task in ("1", "2")]
        await eventually_listed(client, [report.turn_id for report in before])
        said = warnings_in(caplog)
        with pytest.raises(
            errors.ConfigurationError,
            match=r"none of Perdure's is registered.*perdure setup --namespace default",
        ) as refused:
            await listed(client, agent=agent)
        await setup_namespace.set_up(client.temporal, lambda *_: None)
        after = await AgentClient.from_temporal(client.temporal, task_queue=client._task_queue).run(
            agent, "3"
        )
        await eventually_listed(client, [after.turn_id], agent=agent)
        for report in (*before, after):
            await check_history(
                client.temporal, report.turn_id, await client.turn(report.turn_id).first_run()
            )

        assert len(said) == 1
        assert "perdure setup --namespace default" in said[0]
        assert refused.value.context["missing"] == list(search_attributes.TYPES)
        assert [entry.steps async for entry in client.turns()] == [1, 1, 1]


@pytest.mark.slow
async def test_attribute_of_another_type_counts_as_missing(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """The turn runs, and `perdure setup` names the attribute, changes nothing and says what can be
    done.
    """
    taken = {**search_attributes.TYPES, "PerdureSteps": "Text"}
    async with (
        bare_server(search_attributes=taken) as address,
        local_runtime(agent, model=ScriptedModel("five"), address=address) as client,
    ):
        report = await client.run(agent, "2 + 3?")
        with pytest.raises(
            errors.ConfigurationError,
            match=r"PerdureSteps is of type Text instead of Int.*nothing was registered",
        ):
            await setup_namespace.set_up(client.temporal, lambda *_: None)

        assert report.output == "five"
        assert "PerdureSteps is of type Text instead of Int" in warnings_in(caplog)[0]


@pytest.mark.slow
async def test_attributes_that_are_removed_do_not_keep_turns_from_starting(agent: Agent) -> None:
    """A client that has seen them before starts turns without them when the server refuses."""
    async with bare_server(search_attributes=search_attributes.TYPES) as address:
        client = AgentClient.from_temporal(await connect_local(address), task_queue="nobody")
        await client.start(agent, "1", id="before")
        request = RemoveSearchAttributesRequest(
            namespace="default",
            search_attributes=[search_attributes.LABELS.name, search_attributes.AGENT.name],
        )
        await client.temporal.operator_service.remove_search_attributes(request)
        await client.start(agent, "2", id="after", labels={"region": "eu"})

        await eventually_listed(client, ["after", "before"])


@pytest.mark.slow
async def test_index_is_asked_again_only_while_something_is_missing() -> None:
    """One request per client, as long as all attributes are there."""
    async with bare_server() as address:
        counting = CountingService((await connect_local(address)).service_client)
        client = Client(counting)
        patient, eager = Index(timedelta(hours=1)), Index(timedelta())
        missing = [await index.is_ready(client) for index in (patient, patient, eager, eager)]
        asked = counting.asked
        await namespace_check.register(client, search_attributes.TYPES)
        there = [await index.is_ready(client) for index in (patient, eager, eager, eager)]

        assert (missing, asked) == ([False] * 4, 3)
        assert (there, counting.asked) == ([False, True, True, True], 4)


@pytest.mark.slow
async def test_operator_service_need_not_be_allowed(perdure_server: str, agent: Agent) -> None:
    """Behind an authorizer, a count shows whether the attributes exist, and those that cannot be
    registered are printed as commands for an administrator.
    """
    allowed = await connect_local(perdure_server)
    client = AgentClient.from_temporal(
        Client(ForbiddenService(allowed.service_client)), task_queue="nobody"
    )
    turn = await client.start(agent, "2 + 3?")
    await eventually_listed(client, [turn.id], agent=agent)
    said: list[str] = []
    await setup_namespace.set_up(client.temporal, lambda _, found: said.append(found))
    async with bare_server() as address:
        lacking = Client(ForbiddenService((await connect_local(address)).service_client))
        found = await namespace_check.look(lacking)
        with pytest.raises(errors.ConfigurationError) as refused:
            await setup_namespace.set_up(lacking, lambda *_: None)

    assert said[-7:] == [
        f"{name} ({kind}) is there" for name, kind in search_attributes.TYPES.items()
    ]
    assert found.missing == tuple(search_attributes.TYPES)
    assert (
        "temporal operator search-attribute create --namespace default --type Double --name"
        " PerdureSpent" in refused.value.message
    )
    assert (
        "tcld namespace search-attributes add --namespace default --search-attribute"
        " PerdureAgent=Keyword" in refused.value.message
    )


async def test_memo_of_a_codec_that_the_client_lacks_does_not_break_the_list(
    perdure_server: str, agent: Agent
) -> None:
    """The data of search attributes is shown, and the task is not."""
    plain = await connect_local(perdure_server)
    coded = Client(
        plain.service_client,
        data_converter=replace(DataConverter.default, payload_codec=Reversing()),
    )
    turn = await AgentClient.from_temporal(coded, task_queue="nobody").start(agent, "a secret")
    await eventually_listed(AgentClient.from_temporal(plain), [turn.id], agent=agent)
    seen = await entry_of(AgentClient.from_temporal(plain), turn.id, agent=agent)

    assert (seen.agent, seen.task) == (agent.name, "")
    assert (
        await entry_of(AgentClient.from_temporal(coded), turn.id, agent=agent)
    ).task == "a secret"


async def test_namespace_that_is_not_there_is_said(perdure_server: str) -> None:
    """Instead of an empty list or an internal error."""
    elsewhere = await Client.connect(perdure_server, namespace="nowhere")

    with pytest.raises(errors.ConfigurationError, match="nowhere"):
        await listed(AgentClient.from_temporal(elsewhere))


class CountingService(ServiceClient):
    """A connection that counts the requests for search attributes."""

    def __init__(self, real: ServiceClient) -> None:
        super().__init__(real.config)
        self._real = real
        self.asked = 0

    @property
    def worker_service_client(self) -> Any:
        return self._real.worker_service_client

    def update_rpc_metadata(self, metadata: Any) -> None:
        self._real.update_rpc_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        self._real.update_api_key(api_key)

    async def _rpc_call(self, rpc: str, *args: Any, service: str, **options: Any) -> Any:
        self.asked += rpc == "list_search_attributes"
        return await self._real._rpc_call(rpc, *args, service=service, **options)


class ForbiddenService(CountingService):
    """A connection to a server whose authorizer denies the operator service."""

    async def _rpc_call(self, rpc: str, *args: Any, service: str, **options: Any) -> Any:
        if service == "operator":
            raise RPCError("Request unauthorized.", RPCStatusCode.PERMISSION_DENIED, b"")
        return await super()._rpc_call(rpc, *args, service=service, **options)


class Reversing(PayloadCodec):
    """A codec that reverses payloads."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload(metadata={"encoding": b"reversed"}, data=payload.SerializeToString()[::-1])
            for payload in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload.FromString(payload.data[::-1]) for payload in payloads]


class PagingService(CountingService):
    """A connection to a server with pages of two turns, of which the second and later ones wait."""

    def __init__(self, real: ServiceClient) -> None:
        super().__init__(real)
        self.pages = 0
        self.may_go_on = asyncio.Event()

    async def _rpc_call(self, rpc: str, *args: Any, service: str, **options: Any) -> Any:
        if rpc == "list_workflow_executions":
            options["req"].page_size = 2
            self.pages += 1
            if self.pages > 1:
                await self.may_go_on.wait()
        return await super()._rpc_call(rpc, *args, service=service, **options)


@contextlib.asynccontextmanager
async def paged(address: str, agent: Agent) -> AsyncIterator[tuple[PagingService, list[str]]]:
    """A connection to a server with five turns of the agent, and their ids."""
    client = AgentClient.from_temporal(await Client.connect(address), task_queue="nobody")
    ids = [f"{agent.name}-{number}" for number in range(5)]
    for turn_id in ids:
        await client.start(agent, "2 + 3?", id=turn_id)
    await eventually_listed(client, ids, agent=agent)
    yield PagingService(client.temporal.service_client), ids


@pytest.mark.accepts("E122")
async def test_first_page_is_there_while_the_next_one_is_fetched(
    perdure_server: str, agent: Agent
) -> None:
    """The next page is requested before it is needed; with a limit, no page too many."""
    async with paged(perdure_server, agent) as (service, ids):
        client = AgentClient.from_temporal(Client(service))
        entries = client.turns(agent)
        first = [(await anext(entries)).id]
        await eventually(lambda: service.pages == 2, "the next page is requested")
        first.append((await anext(entries)).id)
        service.may_go_on.set()
        rest = [entry.id async for entry in entries]
        asked = service.pages
        some = [entry.id async for entry in client.turns(agent, limit=2)]

    assert (len(first), sorted(first + rest), asked) == (2, ids, 3)
    assert (some, service.pages) == (first, 4)


@pytest.mark.accepts("P47")
@pytest.mark.parametrize("as_json", [False, True], ids=["table", "JSON"])
async def test_command_prints_turns_while_it_reads_more(
    perdure_server: str, agent: Agent, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each turn of the first page, then one for each of the others."""
    async with paged(perdure_server, agent) as (service, ids):
        client = AgentClient.from_temporal(Client(service))
        printed: list[str] = []

        def has_lines(number: int) -> bool:
            printed.append(capsys.readouterr().out)
            return sum(turn_id in "".join(printed) for turn_id in ids) == number

        showing = asyncio.create_task(
            entry_table(client, client.turns(agent, limit=10)).show(10, as_json=as_json, none="")
        )
        await eventually(lambda: has_lines(2), "the first page is printed")
        is_over = showing.done()
        service.may_go_on.set()
        await showing

    assert not is_over
    assert has_lines(5)
    assert "".join(printed).count("AGENT") == (not as_json)
