"""Data subjects on a real server: what inherits their keys, erasures while things run, and a store
of keys that is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError

from perdure import errors
from perdure.clients import gateway
from perdure.clients.reading.recorded import runs_of
from perdure.temporal.encryption import key_stores
from perdure.temporal.encryption.data_subjects import starting
from perdure.temporal.encryption.hiding import LABELS_VARIABLE
from perdure.testing import ByTask, ScriptedModel, says
from perdure.worker import AgentWorker
from perdure.worker.decrypting import check_keys
from perdure.worker.deploying.checking import failure_of, replayed

from ...support.approving import begun, pending
from ...support.ciphertexts import keys_in, of_workflow
from ...support.data_subjects import Home, home
from ...support.listing import eventually_listed
from ...support.long_turns import begin, filling, reader
from ...support.resets import reset_to, task_ends

__all__ = ["home"]

TOKEN = "t" * 40


async def failed_tasks(client: Client, workflow_id: str) -> list[str]:
    """The messages of the workflow tasks that failed."""
    history = await client.get_workflow_handle(workflow_id).fetch_history()
    return [
        event.workflow_task_failed_event_attributes.failure.message
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    ]


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that asks the server."""
    async with asyncio.timeout(40):
        while not await condition():  # type: ignore[misc]  # noqa: ASYNC110
            await asyncio.sleep(0.1)


@pytest.mark.accepts("G39")
async def test_what_comes_from_a_turn_has_the_key_of_its_subject(home: Home) -> None:
    """In each payload: forks, resumed turns and turns of a session and its fork; a worker that
    begins in between has read nothing before.
    """
    client = await home.client()
    async with home.worker().running(client.temporal):
        turn = await client.start("payer", "go", id=f"first-{home.id}", subject=home.subject)
        [one] = await pending(turn)
    other = await home.client()
    async with home.worker().running(other.temporal):
        turn = other.turn(turn.id)
        await turn.steer("more")
        await turn.approve(one, reason="because", by="anna")
        await turn.result()
        fork = await turn.fork(0, id=f"fork-{home.id}")
        await pending(fork)
        await fork.cancel("enough", by="anna")
        with pytest.raises(errors.TurnCancelledError, match="enough"):
            await fork.result()
        resumed = await fork.resume(id=f"resumed-{home.id}")
        await pending(resumed)
        session = other.session(f"talk-{home.id}", "payer", subject=home.subject)
        sent = await session.say("hello")
        [two] = await pending(await begun(other, sent.turn_id))
        await other.turn(sent.turn_id).approve(two)
        await sent.result()
        forked = await session.fork(id=f"talk2-{home.id}")
        again = await forked.say("hello again")
        await pending(await begun(other, again.turn_id))
        ids = [turn.id, fork.id, resumed.id, session.id, sent.turn_id, forked.id, again.turn_id]
        found = {id: keys_in(await of_workflow(other.temporal, id)) for id in ids}
        await other.erase(home.subject)
    [key] = home.store.of_subject(home.subject)

    assert found == {id: {key.id} for id in ids}


@pytest.mark.accepts("G33", "G32")
async def test_turns_of_others_go_on_while_a_subject_is_erased(home: Home) -> None:
    """What is open of it is cancelled, and no workflow task fails; it is gone over HTTP, lists have
    a line, and replays go on.
    """
    client = await home.client()
    async with home.worker().running(client.temporal):
        mine = await client.start("payer", "go", id=f"mine-{home.id}", subject=home.subject)
        theirs = await client.start("payer", "go", id=f"theirs-{home.id}", subject="other")
        nobodys = await client.start("payer", "go", id=f"nobodys-{home.id}")
        opened = {turn: (await pending(turn))[0] for turn in (mine, theirs, nobodys)}
        receipt = await client.erase(home.subject)
        for turn in (theirs, nobodys):
            await turn.approve(opened[turn])
            assert (await turn.result()).output == "done"
        fresh = await home.client()
        for reading in (fresh.turn(mine.id).status(), fresh.turn(mine.id).result()):
            with pytest.raises(errors.ErasedError):
                await reading
        await eventually_listed(fresh, [mine.id], subject=home.subject)
        listed = [entry async for entry in fresh.turns(subject=home.subject)]
        transport = httpx.ASGITransport(gateway.app(fresh, gateway.one_token(TOKEN)))
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            status = await http.get(f"/v1/turns/{mine.id}", headers=headers)
            page = await http.get(f"/v1/turns?subject={home.subject}", headers=headers)
        run = await fresh.temporal.get_workflow_handle(mine.id).describe()
        failure = await failure_of(fresh.temporal, mine.id, run.run_id)
        checked: dict[str, str] = {}
        async with asyncio.timeout(60):
            while not checked.keys() >= {theirs.id, nobodys.id}:  # Temporal's list lags
                runs = replayed(fresh.temporal, 100, None)  # others may run
                checked = {run.id: run.failure async for run in runs}
        tasks = [await failed_tasks(fresh.temporal, turn.id) for turn in opened]

    assert [(work.id, work.how) for work in receipt.ended] == [(mine.id, "cancelled")]
    assert [(entry.id, entry.error and entry.error.code) for entry in listed] == [
        (mine.id, "ERASED")
    ]
    assert (status.status_code, status.json()["code"]) == (410, "ERASED")
    assert [turn["id"] for turn in page.json()["turns"]] == [mine.id]
    assert failure == ""
    assert mine.id not in checked
    assert (checked[theirs.id], checked[nobodys.id]) == ("", "")
    assert tasks == [[], [], []]


@pytest.mark.accepts("G32")
async def test_what_no_worker_ends_is_terminated(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where labels are kept out of search attributes, and parts of batches, which have no
    memo. The subject then returns with another key.
    """
    monkeypatch.setenv(LABELS_VARIABLE, "no")
    client = await home.client()
    turn = await client.start("payer", "go", id=f"turn-{home.id}", subject=home.subject)
    await client.start_batch(f"crowd-{home.id}", "payer", ["go"], subject=home.subject)
    with pytest.raises(errors.InvalidRequestError, match="cannot be filtered"):
        await anext(aiter(client.turns(subject=home.subject)))
    receipt = await client.erase(home.subject, grace=timedelta(milliseconds=1))
    handle = client.temporal.get_workflow_handle(turn.id)
    status = (await handle.describe()).status
    again = await client.start("payer", "go", id=f"again-{home.id}", subject=home.subject)
    second = await client.erase(home.subject, grace=timedelta(milliseconds=1))

    assert status is not None
    assert status.name == "TERMINATED"
    assert {(work.type, work.how) for work in receipt.ended} == {
        ("AgentTurn", "terminated"),
        ("AgentBatch", "terminated"),
        ("AgentBatchPart", "terminated"),
    }
    assert [work.id for work in second.ended] == [again.id]
    assert (second.again, len(second.keys)) == (False, 2)


@pytest.mark.accepts("G19", "G32")
async def test_subject_that_cannot_be_is_refused_before_anything_is_started(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown one cannot be erased; without a store, none is started."""
    client = await home.client()
    with pytest.raises(errors.InvalidRequestError, match=r"no data subject 'nobody' in the file"):
        await client.erase("nobody")
    monkeypatch.delenv(key_stores.VARIABLE)
    lacking = await home.client()
    for refused in (
        lacking.start("payer", "go", id=f"turn-{home.id}", subject="anna"),
        lacking.session(f"talk-{home.id}", "payer", subject="anna").say("hello"),
        lacking.start_batch(f"crowd-{home.id}", "payer", ["go"], subject="anna"),
        lacking.create_schedule(
            f"plan-{home.id}", "payer", "go", cron="0 4 * * *", timezone="UTC", subject="anna"
        ),
        lacking.erase("anna"),
    ):
        with pytest.raises(errors.ConfigurationError, match="set PERDURE_SUBJECT_KEYS and"):
            await refused
    with pytest.raises(errors.TurnNotFoundError):
        await client.turn(f"turn-{home.id}").status()
    with pytest.raises(errors.BatchNotFoundError):
        await client.batch(f"crowd-{home.id}").status()
    with pytest.raises(errors.ScheduleNotFoundError):
        await client.schedule(f"plan-{home.id}").status()


@pytest.mark.slow
@pytest.mark.accepts("G16")
async def test_worker_goes_on_with_its_keys_while_the_store_is_away(home: Home) -> None:
    """It does not start without the store; a turn whose key it has ends, and one whose key it lacks
    waits with a clear error, and ends when the store is back.
    """
    client = await home.client()
    known = await client.start("payer", "go", id=f"known-{home.id}", subject=home.subject)
    async with home.worker().running(client.temporal):
        [one] = await pending(known)
        unknown = await (await home.client()).start(
            "payer",
            "go",
            id=f"unknown-{home.id}",
            subject=f"other-{home.id}",
            delay=timedelta(hours=1),
        )
        home.away(is_away=True)
        starter = await home.client()
        with pytest.raises(errors.KeyStoreError, match=r"subjects\.sqlite does not answer"):
            await check_keys(starter.temporal, f"test-{home.id}")
        with pytest.raises(errors.KeyStoreError):
            await starter.start("payer", "go", id=f"new-{home.id}", subject=home.subject)
        with pytest.raises(errors.KeyStoreError):
            await starter.turn(known.id).status()
        await known.approve(one)
        assert (await known.result()).output == "done"
        late = await starter.start("payer", "go", id=f"free-{home.id}")
        await pending(late)
        await late.cancel()
    worker = await home.client()
    async with home.worker().running(worker.temporal):
        await worker.temporal.get_workflow_handle(unknown.id).signal("nudge")
        await until(lambda: failed_tasks(worker.temporal, unknown.id))
        [message, *_] = await failed_tasks(worker.temporal, unknown.id)
        home.away(is_away=False)
        await worker.temporal.get_workflow_handle(unknown.id).cancel()
        with pytest.raises(errors.TurnCancelledError):
            await asyncio.wait_for(worker.turn(unknown.id).result(), 60)

    assert "the keys of data subjects cannot be read" in message


@pytest.mark.accepts("G16")
async def test_turn_that_begins_after_the_erasure_ends_at_once(home: Home) -> None:
    """As a request to start it may be under way in the moment in which the key is destroyed."""
    client = await home.client()
    turn = await client.start("payer", "go", id=f"late-{home.id}", subject=home.subject)
    home.store.destroy(home.subject, datetime.now(UTC))
    late = await home.client()
    async with home.worker(ByTask({})).running(late.temporal):
        handle = late.temporal.get_workflow_handle(turn.id)
        with pytest.raises(WorkflowFailureError):
            await asyncio.wait_for(handle.result(), 60)
        with pytest.raises(errors.ErasedError):
            await late.turn(turn.id).result()
        status = (await handle.describe()).status
    tasks = await failed_tasks(late.temporal, turn.id)

    assert status is not None
    assert (status.name, tasks) == ("FAILED", [])


@pytest.mark.accepts("G39")
async def test_turn_that_is_reset_keeps_its_key(home: Home) -> None:
    """Its new run reads the input of the first run."""
    client = await home.client()
    async with home.worker().running(client.temporal):
        turn = await client.start("payer", "go", id=f"reset-{home.id}", subject=home.subject)
        await pending(turn)
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
        first = await turn.first_run()
        await reset_to(client.temporal, turn.id, first, task_ends(history)[0])
        turn = client.turn(turn.id)
        await turn.approve((await pending(turn))[0])
        report = await turn.result()
        found = keys_in(await of_workflow(client.temporal, turn.id))
    [key] = home.store.of_subject(home.subject)

    assert (report.output, found) == ("done", {key.id})


@pytest.mark.slow
@pytest.mark.accepts("G39")
async def test_later_runs_of_a_turn_have_its_key(home: Home) -> None:
    """Each run of a long turn, and what it carries to the next one."""
    client = await home.client()
    app = AgentWorker(
        reader(parallel_tools=True),
        task_queue=f"test-{home.id}",
        providers={"scripted": ScriptedModel(*filling(4), says("done"))},
    )
    async with app.running(client.temporal):
        async with starting(client.temporal, home.subject):
            turn = await begin(client, turn_id=f"long-{home.id}")  # type: ignore[arg-type]
        report = await asyncio.wait_for(turn.result(), 120)
        runs = await runs_of(client.temporal, turn.id)
        found = [keys_in(await of_workflow(client.temporal, turn.id, run)) for run in runs]
    [key] = home.store.of_subject(home.subject)

    assert report.output == "done"
    assert len(found) > 1
    assert found == [{key.id}] * len(found)


@pytest.mark.accepts("G28")
async def test_subject_over_http_is_one_of_the_tenant(home: Home) -> None:
    """Two tenants may have a subject of one name; the erasure of one is not that of the other."""
    client = await home.client()
    callers = {"a" * 40: gateway.Caller("anna", "acme"), "b" * 40: gateway.Caller("bob", "bolt")}
    app = gateway.app(client, lambda request: callers.get(request.headers["authorization"][7:]))
    body = {"agent": "payer", "task": "go", "subject": home.subject}
    found = {}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://localhost"
    ) as http:
        for token in callers:
            headers = {"authorization": f"Bearer {token}"}
            begun_ = await http.post("/v1/turns", headers=headers, json=body)
            assert begun_.status_code == 202, begun_.text
            listed = await http.get(f"/v1/turns?subject={home.subject}", headers=headers)
            found[token] = (begun_.json()["id"], [turn["id"] for turn in listed.json()["turns"]])
    await client.erase(f"@acme/{home.subject}", grace=timedelta(milliseconds=1))
    with pytest.raises(errors.ErasedError):
        await client.turn(found["a" * 40][0]).status()
    status = await client.turn(found["b" * 40][0]).status()
    await client.erase(f"@bolt/{home.subject}", grace=timedelta(milliseconds=1))

    assert status.agent == "payer"
    assert all(id.startswith("@") for id, _ in found.values())
