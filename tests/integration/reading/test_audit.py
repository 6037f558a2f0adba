"""Who has done what, read from histories: of turns, sessions, batches, schedules and events."""

from __future__ import annotations

import secrets
from dataclasses import replace

import pytest
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from perdure import Agent, Budget, tool
from perdure.clients import AgentClient, AuditEntry, Turn
from perdure.temporal import search_attributes
from perdure.temporal.acts import sources
from perdure.temporal.encryption.hiding import VARIABLE
from perdure.temporal.encryption.keys import new_entry
from perdure.testing import ByTask, FunctionModel, ScriptedModel, call, calls, says
from perdure.toolboxes import asking, waiting
from perdure.turn.facts import Decided
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.approving import pending
from ...support.auditing import audited, brief, lately
from ...support.delegating import delegate, editor, researcher
from ...support.listing import eventually_listed
from ...support.long_turns import begin, filling, reader, until_run
from ...support.resets import reset, task_ends
from ...support.scheduling import DAILY, existing
from ...support.spending import until

ANNA, BO = "anna@example.com", "Bo Berg"


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


@tool(later=True)
def build() -> str:
    """Build."""
    return "it is being built"


def clerk(**fields: object) -> Agent:
    """An agent that asks before it sends."""
    return Agent(name="clerk", model="scripted:clerk", tools=[send], **fields)  # type: ignore[arg-type]


def sends(count: int = 1) -> ScriptedModel:
    """A model that sends a letter in each of some turns."""
    return ScriptedModel(*[calls(call("send", to="Ann")), says("done")] * count)


def new_id() -> str:
    """An id that no other test has."""
    return f"audit-{secrets.token_hex(4)}"


async def decided(turn: Turn, by: str) -> None:
    """Approve the call of a turn."""
    [waiting_call] = await pending(turn)
    await turn.approve(waiting_call, by=by)


@pytest.mark.accepts("G40")
async def test_each_act_on_a_turn_says_who_when_and_through_what(runtime: Runtime) -> None:
    """A start, a message, an addition, a decision of each kind, a cancel and a resume."""
    since, first, other = lately(), new_id(), new_id()
    model = ScriptedModel(
        calls(call("send", to="Ann"), call("send", to="Cy"), call("ask", question="Why?")),
        calls(call("send", to="Dan")),
        says("done"),
    )
    async with runtime(clerk(toolboxes=[asking()]), model=model) as client:
        turn = await client.start(
            "clerk", "go", id=first, by=ANNA, budget=Budget(tool_calls=9), max_iterations=5
        )
        ann, cy, question = await pending(turn, 3)
        await turn.steer("be quick", id="m-1", by=BO)
        await turn.add_budget(Budget(tool_calls=2), iterations=1, by=ANNA)
        await turn.approve(ann, by=ANNA, reason="known")
        with sources.through("cli"):
            await turn.deny(cy, "has moved", by=BO)
        await turn.answer(question, "a secret", by=BO)
        await until(turn, Decided, 3)
        await pending(turn)
        with sources.through("cli"):
            await turn.cancel("enough", by=ANNA)
        await turn.wait(60)
        fork = await turn.fork(at_step=0, say="again", by=BO, id=other)
        await fork.cancel()
        await fork.wait(60)  # a cancel during a workflow task is in no history until its end
        found = await audited(client, since, {"fork"}, ids=(first, other), id_prefix="audit-")
    entries = [entry for entry in found if entry.id in (first, other)]
    told = [entry for entry in entries if entry.id == first]

    assert [(entry.act, entry.by, entry.via, entry.detail) for entry in told] == [
        ("start", ANNA, "client", "agent clerk"),
        ("steer", BO, "client", "message m-1"),
        ("add_budget", ANNA, "client", "tool_calls 2, iterations 1"),
        ("approve", ANNA, "client", "send call_1_1, known"),
        ("deny", BO, "cli", "send call_1_2, has moved"),
        ("answer", BO, "client", "ask call_1_3"),
        ("cancel", ANNA, "cli", "enough"),
    ]
    assert [brief(entry) for entry in entries if entry.id == other] == [
        ("fork", other, BO, "client"),
        ("cancel", other, None, "client"),
    ]
    assert {entry.kind for entry in entries} == {"turn"}
    assert all(entry.time >= since and not entry.problem for entry in entries)
    assert "a secret" not in repr(entries)


@pytest.mark.accepts("G40")
async def test_acts_on_sessions_batches_events_and_jobs_are_told(runtime: Runtime) -> None:
    """The first message of a session has begun it; what a session or a batch starts says so."""
    since, name = lately(), new_id()
    model = ByTask(
        {
            "first": sends(),
            "second": ScriptedModel(says("done")),
            "of a batch": sends(),
            "builds": ScriptedModel(calls(call("build")), says("done")),
        }
    )
    agent = Agent(name="clerk", model="scripted:clerk", tools=[send, build], toolboxes=[waiting()])
    async with runtime(agent, model=model) as client:
        session = client.session(f"{name}-s", "clerk", budget=Budget(tool_calls=5))
        said = await session.say("first", id="m-1", by=ANNA)
        await pending(await said.turn())
        await session.say("second", id="m-2", by=BO)
        await session.add_budget(Budget(tool_calls=1), by=ANNA)
        await session.interrupt("wait", by=BO)
        await session.wait(60)
        await session.resume(by=ANNA)
        await session.wait(60)
        await session.close("over", by=BO)
        batch = await client.start_batch(f"{name}-b", "clerk", ["of a batch"], by=ANNA)
        await pending(await existing(client, f"{batch.id}/1"))
        await batch.cancel("too dear", by=BO)
        await batch.wait(60)
        await client.emit("built", key=f"{name}-e", by=BO, id="e-1")
        entries = await audited(client, since, {"cancel", "close", "emit"}, id_prefix=name)
    on = {
        kind: [(e.act, e.id, e.by, e.via, e.detail) for e in entries if e.kind == kind]
        for kind in ("session", "batch", "event", "turn")
    }

    assert on["session"] == [
        ("start", f"{name}-s", ANNA, "client", "agent clerk"),
        ("say", f"{name}-s", ANNA, "client", "message m-1"),
        ("say", f"{name}-s", BO, "client", "message m-2"),
        ("add_budget", f"{name}-s", ANNA, "client", "tool_calls 1"),
        ("interrupt", f"{name}-s", BO, "client", "wait"),
        ("resume", f"{name}-s", ANNA, "client", ""),
        ("close", f"{name}-s", BO, "client", "over"),
    ]
    assert on["batch"] == [
        ("start", f"{name}-b", ANNA, "client", "agent clerk, 1 task"),
        ("cancel", f"{name}-b", BO, "client", "too dear"),
    ]
    assert on["event"] == [("emit", f"{name}-e", BO, "client", "built, event e-1")]
    assert [e[:1] + e[2:] for e in on["turn"]] == [
        ("start", None, "session", f"session {name}-s, agent clerk"),
        ("start", None, "session", f"session {name}-s, agent clerk"),
        ("start", None, "batch", f"batch {name}-b, agent clerk"),
    ]
    [of_batch] = [e for e in entries if e.via == "batch"]
    assert of_batch.on_behalf_of == ANNA


@pytest.mark.accepts("G41")
async def test_delegate_says_which_turn_has_started_it_and_for_whom(runtime: Runtime) -> None:
    """It has no name of its own; the root of the tree has one."""
    since, root = lately(), new_id()
    models = {
        "go": ScriptedModel(delegate("researcher", "look"), says("done")),
        "look": ScriptedModel(says("seen")),
    }
    agents = [editor(delegates=["researcher"]), researcher()]
    async with runtime(agents, model=ByTask(models)) as client:
        turn = await client.start("editor", "go", id=root, by=ANNA)
        await turn.result()
        ids = (root, f"{root}/researcher-1")
        entries = await audited(client, since, ids=ids, id_prefix=root)

    assert [(entry.act, entry.by, entry.via, entry.on_behalf_of) for entry in entries] == [
        ("start", ANNA, "client", None),
        ("start", None, "turn", ANNA),
    ]
    assert entries[1].detail == f"turn {root}, agent researcher"


@pytest.mark.accepts("G42")
async def test_acts_before_a_reset_are_told_once(runtime: Runtime) -> None:
    """The run after it has them again, copied or delivered anew; the reset itself is told."""
    since, turn_id = lately(), new_id()
    model = ScriptedModel(
        calls(call("send", to="Ann")), calls(call("send", to="Ann")), says("done")
    )
    async with runtime(clerk(), model=model) as client:
        turn = await client.start("clerk", "go", id=turn_id, by=ANNA)
        await pending(turn)
        await turn.steer("be quick", id="m-1", by=BO)
        history = await client.history(turn)
        again = await reset(client, turn, task_ends(history)[0])
        await decided(again, by=ANNA)
        await again.result()
        entries = await audited(client, since, {"approve", "reset"}, id_prefix=turn_id)

    assert [(entry.act, entry.by) for entry in entries] == [
        ("start", ANNA),
        ("steer", BO),
        ("reset", None),
        ("approve", ANNA),
    ]


@pytest.mark.accepts("G49")
async def test_schedule_says_who_has_created_and_changed_it(runtime: Runtime) -> None:
    """Also without a name; a turn that it starts says which schedule that was."""
    since, name = lately(), new_id()
    async with runtime(clerk(), model=ScriptedModel(says("done"))) as client:
        schedule = await client.create_schedule(name, "clerk", "go", **DAILY, by=ANNA)
        try:
            with sources.through("cli"):
                await schedule.pause("ill", by=BO)
            await schedule.resume()
            await schedule.change(task="go on", by=ANNA)
            turn_id = await schedule.run_now(by=BO)
            await client.turn(turn_id).result()
            await eventually_listed(client, [turn_id], schedule=name)
            entries = await audited(client, since, {"created", "run", "start"}, id_prefix=name)
        finally:
            await schedule.delete(by=ANNA)

    acts_on = [(e.act, e.by, e.via, e.detail) for e in entries if e.kind == "schedule"]
    assert acts_on == [
        ("created", ANNA, "client", ""),
        ("paused", BO, "cli", "ill"),
        ("resumed", None, "client", ""),
        ("changed", ANNA, "client", ""),
        ("run", BO, "client", turn_id),
    ]
    assert [(e.act, e.by, e.via, e.detail) for e in entries if e.kind == "turn"] == [
        ("start", None, "schedule", f"schedule {name}, agent clerk")
    ]


@pytest.mark.accepts("G46")
async def test_names_are_encrypted_and_an_audit_without_the_key_says_so(
    perdure_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time, act and id stay; the rest of the audit goes on."""
    since, secret_id, plain_id = lately(), new_id(), new_id()
    queue = f"test-{secrets.token_hex(6)}"
    plain = await AgentClient.connect(perdure_server, task_queue=queue)
    monkeypatch.setenv(VARIABLE, new_entry("k1"))
    client = await AgentClient.connect(perdure_server, task_queue=queue)
    app = AgentWorker(clerk(), task_queue=queue, providers={"scripted": sends(2)})
    async with app.running(client.temporal):
        turn = await client.start("clerk", "go", id=secret_id, by=ANNA)
        await decided(turn, by=ANNA)
        await turn.result()
        other = await client.start("clerk", "go", id=f"{secret_id}-2", by=ANNA)
        await pending(other)
        await other.cancel("for anna", by=ANNA)
        await other.wait(60)
        open_turn = await plain.start("clerk", "go", id=plain_id, by=BO)
        await open_turn.cancel(by=BO)
        await client.turn(plain_id).wait(60)  # the worker has written with the key
        ids = (secret_id, other.id, plain_id)
        read = await audited(client, since, {"approve", "cancel"}, ids=ids, id_prefix="audit-")
        blind = await audited(plain, since, {"decide", "cancel"}, ids=ids, id_prefix="audit-")
        history = await client.temporal.get_workflow_handle(other.id).fetch_history()

    def of(entries: list[AuditEntry], prefix: str) -> list[tuple[str, str, str | None]]:
        return [(e.act, e.id, e.by) for e in entries if e.id.startswith(prefix)]

    assert of(read, secret_id) == [
        ("start", secret_id, ANNA),
        ("approve", secret_id, ANNA),
        ("start", other.id, ANNA),
        ("cancel", other.id, ANNA),
    ]
    assert of(blind, secret_id) == [
        ("start", secret_id, None),
        ("decide", secret_id, None),
        ("start", other.id, None),
        ("cancel", other.id, None),
    ]
    problems = {e.problem for e in blind if e.id.startswith(secret_id)}
    assert all(problem.startswith("DECRYPTION: ") for problem in problems)
    assert "k1" in "".join(problems)
    assert of(blind, plain_id) == [("start", plain_id, BO), ("cancel", plain_id, BO)]
    assert all(ANNA not in str(event) for event in history.events)


@pytest.mark.accepts("G47")
async def test_acts_of_earlier_releases_have_no_invented_name(runtime: Runtime) -> None:
    """A start and an update without the metadata, as Temporal's own tools send them as well."""
    since, turn_id = lately(), new_id()
    async with runtime(clerk(), model=sends()) as client:
        handle = await client.temporal.start_workflow(
            "AgentTurn", {"agent": "clerk", "task": "go"}, id=turn_id, task_queue=client.task_queue
        )
        turn = client.turn(turn_id)
        await pending(turn)
        await handle.execute_update("steer", {"text": "be quick"}, id="m-1")
        await handle.cancel()
        await turn.wait(60)
        entries = await audited(client, since, {"cancel"}, id_prefix=turn_id)

    assert [(entry.act, entry.by, entry.via) for entry in entries] == [
        ("start", None, None),
        ("steer", None, None),
        ("cancel", None, None),
    ]


@pytest.mark.accepts("G51")
async def test_workflow_that_cannot_be_read_is_one_line(runtime: Runtime) -> None:
    """Of the type of a turn, with an input that is none; the others are told."""
    since, name = lately(), new_id()
    async with runtime(clerk(), model=FunctionModel(lambda _: says("done"))) as client:
        for number, given in enumerate((b"\xff", 7, {"agent": 5})):
            await client.temporal.start_workflow(
                "AgentTurn", given, id=f"{name}-{number}", task_queue="nobody"
            )
        await (await client.start("clerk", "go", id=f"{name}-9", by=ANNA)).result()
        ids = [f"{name}-{number}" for number in (0, 1, 2, 9)]
        entries = await audited(client, since, ids=ids, id_prefix=name)
        for number in range(3):
            await client.temporal.get_workflow_handle(f"{name}-{number}").terminate(reason="no use")
        ended = await audited(client, since, {"terminate"}, id_prefix=name)

    told = [(entry.act, entry.id[-1], entry.by, bool(entry.problem)) for entry in entries]
    assert told == [
        ("start", "0", None, True),
        ("start", "1", None, True),
        ("start", "2", None, True),
        ("start", "9", ANNA, False),
    ]
    assert "no use; as " in next(entry.detail for entry in ended if entry.act == "terminate")


@pytest.mark.slow
@pytest.mark.accepts("G42")
async def test_acts_are_told_once_over_the_runs_of_a_long_turn(runtime: Runtime) -> None:
    """A message that is sent again in the next run is not another one; the turn begins once."""
    since, turn_id = lately(), new_id()
    agent = reader(parallel_tools=True, max_iterations=9)
    model = ScriptedModel(*filling(2), calls(call("send", to="Ann")), says("done"))
    async with runtime(replace(agent, tools=[*agent.tools, send]), model=model) as client:
        turn = await begin(client, turn_id=turn_id)
        await turn.steer("be quick", id="m-1", by=BO)
        await until_run(client, turn, 2)
        [waiting_call] = await pending(turn)
        await turn.steer("be quick", id="m-1", by=BO)
        await turn.approve(waiting_call, by=ANNA)
        await turn.result()
        entries = await audited(client, since, {"approve"}, id_prefix=turn_id)

    assert [(entry.act, entry.by) for entry in entries] == [
        ("start", None),
        ("steer", BO),
        ("approve", ANNA),
    ]


@pytest.mark.accepts("G50")
async def test_audit_of_a_data_subject_has_nothing_of_others(runtime: Runtime) -> None:
    """By the entry among the labels; a label of a user is none."""
    since, name = lately(), new_id()
    entry = search_attributes.data_subject("p 1=2")
    marked = TypedSearchAttributes([SearchAttributePair(search_attributes.LABELS, [entry])])
    async with runtime(clerk(), model=FunctionModel(lambda _: says("done"))) as client:
        await client.temporal.start_workflow(
            "AgentTurn",
            {"agent": "clerk", "task": "go"},
            id=f"{name}-1",
            task_queue=client.task_queue,
            search_attributes=marked,
        )
        await (await client.start("clerk", "go", id=f"{name}-2", labels={"subject": "p"})).result()
        await client.turn(f"{name}-1").result()
        await eventually_listed(client, [f"{name}-1", f"{name}-2"], id_prefix=name)
        entries = await audited(client, since, {"start"}, subject="p 1=2")
        none = await audited(client, since, subject="p-2")

    assert [entry.id for entry in entries] == [f"{name}-1"]
    assert none == []
