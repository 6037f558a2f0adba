"""The act of an erasure, which outlives what was erased."""

from __future__ import annotations

from datetime import timedelta

import pytest
from temporalio.client import WorkflowFailureError

from perdure.temporal.encryption.hiding import LABELS_VARIABLE, VARIABLE
from perdure.temporal.encryption.keys import new_entry
from perdure.temporal.names import ERASURE
from perdure.testing import FakeIssuer
from perdure.worker.deploying.checking import failure_of

from ...support.auditing import audited, brief, lately
from ...support.ciphertexts import keys_in, of_workflow
from ...support.data_subjects import Home, home
from ...support.gateway.identity import access, guarded
from ...support.listing import eventually_listed

__all__ = ["home"]

OFFICER, ANNA = "officer@example.com", "anna@example.com"
SOON = timedelta(milliseconds=1)


async def erasures(home: Home) -> list[str]:
    """The ids of the workflows that keep who has erased, on the task queue of the test."""
    client = (await home.client()).temporal
    query = f"WorkflowType = '{ERASURE}' AND TaskQueue = 'test-{home.id}'"
    return [run.id async for run in client.list_workflows(query)]


@pytest.mark.slow
@pytest.mark.accepts("G101")
async def test_erasure_of_what_is_over_is_told(home: Home) -> None:
    """With who, through what, and the key, as the receipt has it; erasing again is another act."""
    since, client = lately(), await home.client()
    await client.start("payer", "go", id=f"turn-{home.id}", subject=home.subject, by=ANNA)
    await client.turn(f"turn-{home.id}").cancel(by=ANNA)
    other = f"{home.subject}-other"
    await client.start("payer", "go", id=f"other-{home.id}", subject=other)
    async with home.worker().running(client.temporal):
        await client.turn(f"turn-{home.id}").wait(30)
        await eventually_listed(client, [f"turn-{home.id}"], id_prefix=f"turn-{home.id}")
        receipt = await client.erase(home.subject, by=OFFICER)
        await client.erase(other, by=ANNA, grace=SOON)
        again = await client.erase(home.subject)
        [record, *_] = ids = await erasures(home)
        for id in ids:
            assert await client.temporal.get_workflow_handle(id).result() is None
        run = await client.temporal.get_workflow_handle(record).describe()
        replayed = await failure_of(client.temporal, record, run.run_id)
    fresh = await home.client()
    told = [
        entry
        for entry in await audited(fresh, since, {"erase"}, subject=home.subject)
        if entry.kind == "subject"
    ]
    by_prefix = await audited(fresh, since, {"erase"}, id_prefix=other)

    assert [brief(entry) for entry in told] == [
        ("erase", home.subject, OFFICER, "client"),
        ("erase", home.subject, None, "client"),
    ]
    assert (told[0].id, told[0].by) == (receipt.subject, receipt.by)
    assert [entry.detail for entry in told] == [receipt.keys[0].id, "erased before"]
    assert receipt.began_at - SOON * 1000 <= told[0].time <= receipt.erased_at
    assert again.again
    assert [brief(entry) for entry in by_prefix] == [("erase", other, ANNA, "client")]
    assert replayed == ""


@pytest.mark.accepts("G101")
async def test_act_is_under_the_key_of_the_environment(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No subject stands in plain text; an audit without the key has the act, and no name."""
    monkeypatch.setenv(LABELS_VARIABLE, "no")
    since, client = lately(), await home.client()
    await client.start("payer", "go", id=f"turn-{home.id}", subject=home.subject)
    await client.erase(home.subject, by=OFFICER, grace=SOON)
    async with home.worker().running(client.temporal):
        [record] = await erasures(home)
        await client.temporal.get_workflow_handle(record).result()
    messages = await of_workflow(client.temporal, record)
    plain = b"".join(message.SerializeToString() for message in messages)
    [told] = await audited(await home.client(), since, {"erase"}, id_prefix=home.subject)
    monkeypatch.setenv(VARIABLE, new_entry("k2"))
    lacking = await audited(await home.client(), since, {"erase"})
    [unread] = [entry for entry in lacking if entry.id == record]

    assert keys_in(messages) == {"k1"}
    assert ERASURE.encode() in plain
    assert home.subject.encode() not in plain
    assert OFFICER.encode() not in plain
    assert brief(told) == ("erase", home.subject, OFFICER, "client")
    assert (unread.act, unread.by, unread.detail) == ("erase", None, "")
    assert "k1" in unread.problem


@pytest.mark.slow
@pytest.mark.accepts("G103")
async def test_tenant_sees_the_erasures_of_its_own_subjects(home: Home) -> None:
    """Over HTTP, with and without the name of the subject."""
    since, client = lately(), await home.client()
    body = {"agent": "payer", "task": "go", "subject": home.subject, "id": home.id}
    with FakeIssuer() as issuer:
        anna = access(issuer)
        otto = access(issuer, sub="u-2", preferred_username="otto", org="org-2")
        async with guarded(client, issuer) as http:
            for headers in (anna, otto):
                made = await http.post("/v1/turns", headers=headers, json=body)
                assert made.status_code == 202, made.text
            mine = f"@acme/{home.subject}"
            await client.erase(mine, by=OFFICER, grace=SOON)
            await audited(client, since, {"erase"}, subject=mine)

            async def found(headers: dict[str, str], **query: str) -> list[tuple[str, str]]:
                asked = {"since": since.isoformat(), **query}
                told = await http.get("/v1/audit", headers=headers, params=asked)
                entries = told.json()["entries"]
                return [(one["id"], one["by"]) for one in entries if one["kind"] == "subject"]

            own = [await found(anna), await found(anna, subject=home.subject)]
            others = [await found(otto), await found(otto, subject=home.subject)]

    assert own == [[(mine, OFFICER)]] * 2
    assert others == [[], []]


@pytest.mark.accepts("G101")
async def test_workflow_of_another_input_fails(home: Home) -> None:
    """As one that was started with Temporal's own tools; a worker refuses it at once."""
    client = await home.client()
    async with home.worker().running(client.temporal):
        for arguments in ([], [{"subject": 7}], [{"subject": "a"}, {}]):
            with pytest.raises(WorkflowFailureError) as caught:
                await client.temporal.execute_workflow(
                    ERASURE,
                    args=arguments,
                    id=f"{home.id}-{len(arguments)}",
                    task_queue=f"test-{home.id}",
                )
            assert str(caught.value.cause).startswith("INVALID_REQUEST: ")
