"""Where data subjects meet the audit, tenants, ids that exist already, and `perdure doctor`."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from perdure import Agent, errors, tool
from perdure.clients import AuditEntry
from perdure.testing import ByTask, FakeIssuer, ScriptedModel, call, calls, says
from perdure.worker import AgentWorker
from perdure.worker.doctor.open_workflows import read
from perdure.worker.doctor.stuck import findings

from ...support.approving import pending
from ...support.auditing import audited, lately
from ...support.banking import Bank, payer, pays, refunder
from ...support.ciphertexts import keys_in, of_workflow
from ...support.data_subjects import Home, home
from ...support.gateway.identity import access, guarded
from ...support.jobs import Service
from ...support.listing import eventually_listed

__all__ = ["home"]

ANNA, OFFICER = "anna@example.com", "officer@example.com"
SOON = timedelta(milliseconds=1)


@tool
def transfer(to: str) -> str:
    """Pay somebody, and lose the answer."""
    raise httpx.ReadTimeout("no answer in 5 s")


def acts(entries: list[AuditEntry], id: str) -> list[tuple[str, str | None, str]]:
    """What was done to something: the act, by whom, and the detail."""
    return [(entry.act, entry.by, entry.detail) for entry in entries if entry.id == id]


@pytest.mark.accepts("G91", "G102")
async def test_audit_says_who_has_erased_and_goes_on(home: Home) -> None:
    """What was done before cannot be read, and says why; others are told as ever."""
    since, client = lately(), await home.client()
    ids = early, mine, theirs = [f"{home.id}-{name}" for name in ("early", "mine", "theirs")]
    async with home.worker().running(client.temporal):
        for id, subject in ((early, home.subject), (mine, home.subject), (theirs, None)):
            await pending(await client.start("payer", "go", id=id, subject=subject, by=ANNA))
        await client.turn(early).cancel("she has asked for it", by=ANNA)
        await client.turn(early).wait(30)
        await eventually_listed(client, ids, id_prefix=home.id)
        await client.erase(home.subject, by=OFFICER)
        await client.turn(theirs).cancel("enough", by=ANNA)
        await client.turn(theirs).wait(30)
    fresh = await home.client()
    entries = await audited(fresh, since, ids=ids, id_prefix=home.id)
    of_subject = await audited(fresh, since, {"erase"}, subject=home.subject)
    problems = [entry.problem for entry in entries if entry.problem]

    assert acts(entries, theirs) == [("start", ANNA, "agent payer"), ("cancel", ANNA, "enough")]
    assert acts(entries, mine) == [
        ("start", None, ""),
        ("cancel", OFFICER, "its data subject is erased"),
    ]
    assert acts(entries, early) == [("start", None, ""), ("cancel", None, "")]
    assert [problem.partition(":")[0] for problem in problems] == ["ERASED"] * 3
    assert all("its data subject was erased" in problem for problem in problems)
    assert [entry.id for entry in of_subject] == [early, mine, early, home.subject, mine]


@pytest.mark.accepts("G92")
async def test_audit_of_a_subject_has_its_batches_and_settled_calls(home: Home) -> None:
    """They have no labels; another subject whose name has other cases of letters is another one."""
    since, agent = lately(), Agent(name="payer", model="scripted:payer", tools=[transfer])
    model = ByTask(
        {
            "lose": ScriptedModel(calls(call("transfer", to="anna")), says("perhaps")),
            "of a batch": ScriptedModel(*[says("done")] * 3),
        }
    )
    app = AgentWorker(agent, task_queue=f"test-{home.id}", providers={"scripted": model})
    client = await home.client()
    async with app.running(client.temporal):
        turn = await client.start("payer", "lose", id=f"{home.id}-turn", subject=home.subject)
        await turn.result()
        await turn.settle("call_1_1", "done", by=ANNA)
        batches = {"mine": home.subject, "other": home.subject.upper(), "nobodys": None}
        for name, subject in batches.items():
            id, task = f"{home.id}-{name}", ["of a batch"]
            batch = await client.start_batch(id, "payer", task, subject=subject, by=ANNA)
            await batch.wait(60)
        listed = [turn.id, *(f"{home.id}-{name}/1" for name in batches)]
        await eventually_listed(client, listed, id_prefix=home.id)
        entries = await audited(client, since, {"settle"}, subject=home.subject)

    assert {(entry.act, entry.kind, entry.id, entry.by) for entry in entries} == {
        ("start", "turn", turn.id, None),
        ("settle", "turn", turn.id, ANNA),
        ("start", "batch", f"{home.id}-mine", ANNA),
        ("start", "turn", f"{home.id}-mine/1", None),
    }


@pytest.mark.accepts("G39", "G40")
async def test_undo_and_result_of_a_job_are_of_the_subject(home: Home) -> None:
    """Under its key, and told in its audit with who has acted, until it is erased."""
    since, bank, service = lately(), Bank(), Service()
    tools = [payer(bank, undo=refunder(bank)), service.tool()]
    agent = Agent(name="payer", model="scripted:payer", tools=tools)
    model = ScriptedModel(pays(), calls(call("deploy", target="shop")), says("done"))
    app = AgentWorker(agent, task_queue=f"test-{home.id}", providers={"scripted": model})
    client = await home.client()
    async with app.running(client.temporal):
        turn = await client.start("payer", "go", id=f"{home.id}-turn", subject=home.subject)
        await client.finish_call(await service.token(), "deployed", by=ANNA)
        await turn.result()
        undo = await turn.undo("call_1_1", by=ANNA)
        await undo.result()
        await eventually_listed(client, [turn.id, undo.id], id_prefix=home.id)
        entries = await audited(client, since, ids=(turn.id, undo.id), subject=home.subject)
        keys = keys_in(await of_workflow(client.temporal, undo.id))
        await client.erase(home.subject)
    [key] = home.store.of_subject(home.subject)

    assert [(entry.act, entry.id, entry.by) for entry in entries] == [
        ("start", turn.id, None),
        ("finish", turn.id, ANNA),
        ("undo", undo.id, ANNA),
    ]
    assert keys == {key.id}


@pytest.mark.accepts("G93")
async def test_id_of_another_subject_is_a_conflict(home: Home) -> None:
    """Otherwise what is sent for one subject would outlive its erasure under the key of another."""
    client, other = await home.client(), f"other-{home.id}"
    turn, crowd, talk = (f"{name}-{home.id}" for name in ("turn", "crowd", "talk"))

    async def all_of(subject: str | None) -> list[type[Exception] | None]:
        session = client.session(talk, "payer", subject=subject)
        attempts = (
            client.start("payer", "go", id=turn, subject=subject),
            client.start_batch(crowd, "payer", ["go"], subject=subject),
            session.say("go"),
        )
        results = await asyncio.gather(*attempts, return_exceptions=True)
        return [type(one) if isinstance(one, Exception) else None for one in results]

    async with home.worker().running(client.temporal):
        first, again = await all_of(home.subject), await all_of(home.subject)
        others, nobodys = await all_of(other), await all_of(None)
        with pytest.raises(errors.TurnConflictError, match="exists with another data subject"):
            await client.start("payer", "go", id=turn, subject=other)
        with pytest.raises(errors.TurnConflictError, match=f"is not of the subject '{other}'"):
            await client.session(talk, "payer", subject=other).say("go")
        messages = len((await client.session(talk).status()).queue)
        await client.erase(home.subject)

    assert first == again == [None, None, None]
    conflicts = [errors.TurnConflictError, errors.BatchConflictError]
    assert others == [*conflicts, errors.TurnConflictError]
    assert nobodys == [*conflicts, None]  # a session is continued by its id alone
    assert messages == 2


@pytest.mark.accepts("G94")
async def test_tenant_reaches_no_subject_of_another_one(home: Home) -> None:
    """Callers of an identity provider, whose names are recorded; the audit asks for a subject as
    lists do, and a complete name of another tenant is a name within the own one.
    """
    since, body = lately(), {"agent": "payer", "task": "go", "subject": home.subject}
    client = await home.client()
    with FakeIssuer() as issuer:
        anna = access(issuer)
        otto = access(issuer, sub="u-2", preferred_username="otto", org="org-2")
        viewer = access(issuer, groups="readers")
        async with guarded(client, issuer) as http, home.worker().running(client.temporal):
            made = await http.post("/v1/turns", headers=anna, json={**body, "id": home.id})
            assert made.status_code == 202, made.text
            turn = client.turn(made.json()["id"])
            await pending(turn)
            cancelled = await http.post(f"/v1/turns/{home.id}/cancel", headers=anna, json={})
            await turn.wait(60)
            as_viewer = [
                (await http.post(path, headers=viewer, json=given)).status_code
                for path, given in (
                    ("/v1/turns", body),
                    (f"/v1/turns/{home.id}/cancel", {}),
                    (f"/v1/turns/{home.id}/approve", {"call_id": "c", "token": "0" * 12}),
                )
            ]
            await eventually_listed(client, [turn.id], id_prefix=turn.id)

            async def found(headers: dict[str, str], subject: str) -> set[tuple[str, str | None]]:
                asked = {"subject": subject}
                audit = {**asked, "since": since.isoformat()}
                told = await http.get("/v1/audit", headers=headers, params=audit)
                listed = await http.get("/v1/turns", headers=headers, params=asked)
                entries = [*told.json()["entries"], *listed.json()["turns"]]
                return {(entry["id"], entry.get("by")) for entry in entries}

            complete = f"@acme/{home.subject}"
            own = [await found(anna, name) for name in (home.subject, complete)]
            seen = [await found(viewer, home.subject)]
            others = [await found(otto, name) for name in (home.subject, complete)]

    assert cancelled.status_code == 202
    assert [*own, *seen] == [{(turn.id, "anna"), (turn.id, None)}] * 3
    assert others == [set(), set()]
    assert as_viewer == [403] * 3


@pytest.mark.accepts("G95")
async def test_audit_without_the_store_is_an_error(home: Home) -> None:
    """A line without its names would stay so in the file, although the next audit can read it."""
    since, client = lately(), await home.client()
    turn = await client.start("payer", "go", id=f"turn-{home.id}", subject=home.subject, by=ANNA)
    await eventually_listed(client, [turn.id], id_prefix=turn.id)
    home.away(is_away=True)
    fresh = await home.client()
    with pytest.raises(errors.KeyStoreError):
        await audited(fresh, since, id_prefix=turn.id)
    home.away(is_away=False)
    entries = await audited(fresh, since, {"start"}, id_prefix=turn.id)
    await client.erase(home.subject, grace=SOON)

    assert acts(entries, turn.id) == [("start", ANNA, "agent payer")]


@pytest.mark.accepts("G96")
async def test_doctor_says_of_an_erased_workflow_to_erase_it_again(home: Home) -> None:
    """No key brings it back, so it is not told to look for one."""
    client = await home.client()
    turn = await client.start("payer", "go", id=f"late-{home.id}", subject=home.subject)
    await eventually_listed(client, [turn.id], id_prefix=turn.id)
    home.store.destroy(home.subject, datetime.now(UTC))
    fresh = await home.client()
    workflows = [one async for one in read(fresh.temporal, 1000) if turn.id in one.name]
    [found] = findings(workflows, datetime.now(UTC), timedelta(days=1))
    await fresh.erase(home.subject, grace=SOON)
    left = [one async for one in read(fresh.temporal, 1000) if turn.id in one.name]

    assert "`perdure erase`" in found.remedy
    assert "its data subject was erased" in found.words
    assert left == []
