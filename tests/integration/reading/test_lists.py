"""Lists of turns, sessions, batches and schedules: one shape."""

import asyncio
import secrets
from itertools import chain
from typing import Any

import pytest

from perdure import errors
from perdure.clients import AgentClient, BatchEntry, Entry, Listing
from perdure.testing import ScriptedModel, fails, says

from ...conftest import Runtime
from ...support.counting import counting
from ...support.encrypting import converter
from ...support.spending import SOON_S, app, spender

RESOURCES = ("turns", "sessions", "batches", "schedules")


def lists(client: AgentClient, prefix: str, **more: Any) -> dict[str, Listing[Any]]:
    return {
        "turns": client.turns("spender", id_prefix=f"{prefix}-turn", **more),
        "sessions": client.sessions("spender", id_prefix=f"{prefix}-session", **more),
        "batches": client.batches("spender", id_prefix=f"{prefix}-batch", **more),
        "schedules": client.schedules(id_prefix=f"{prefix}-schedule", **more),
    }


CORES = {
    "turns": {("spender", "ended")},
    "sessions": {("spender", "closed")},
    "batches": {("spender", "completed")},
    "schedules": {("spender", "active")},
}
"""What the entries say of three of each that are over, besides their ids."""


def core_of(entry: Entry) -> tuple[str, str | None]:
    """What an entry of any kind says."""
    return entry.agent, entry.state


async def cores_of(client: AgentClient, prefix: str) -> dict[str, set[tuple[str, str | None]]]:
    """What all entries say."""
    return {
        one: {core_of(entry) async for entry in listing}
        for one, listing in lists(client, prefix).items()
    }


async def ids_of(client: AgentClient, prefix: str) -> dict[str, set[str]]:
    """The ids of all entries."""
    return {
        one: {entry.id async for entry in listing} for one, listing in lists(client, prefix).items()
    }


async def ids_in_pages(listing: Listing[Any]) -> list[list[str]]:
    """The ids of the entries of each page of two."""
    pages, after = [], None
    while True:
        page = await listing.page(after, size=2)
        pages.append([entry.id for entry in page.entries])
        after = page.next
        if after is None:
            return pages


@pytest.mark.slow
@pytest.mark.accepts("E161")
async def test_four_lists_are_iterated_limited_and_read_by_page(runtime: Runtime) -> None:
    """The entries have the same ids in each way, and a cursor of another list is refused."""
    name = secrets.token_hex(4)
    expected = {one: {f"{name}-{one[:-1]}-{number}" for number in range(3)} for one in RESOURCES}
    expected["batches"] = {f"{name}-batch-{number}" for number in range(3)}
    async with runtime(app(), model=ScriptedModel(*[says("done")] * 9)) as client:
        for number in range(3):
            await client.run("spender", "go", id=f"{name}-turn-{number}")
            session = client.session(f"{name}-session-{number}", "spender")
            await (await session.say("go")).result()
            await session.close()
            batch = await client.start_batch(f"{name}-batch-{number}", "spender", ["go"])
            await batch.wait()
            await client.create_schedule(
                f"{name}-schedule-{number}", "spender", "go", cron="0 3 1 1 *", timezone="UTC"
            )
        async with asyncio.timeout(SOON_S):
            while (  # noqa: ASYNC110 - the lists lag behind
                await ids_of(client, name) != expected or await cores_of(client, name) != CORES
            ):
                await asyncio.sleep(0.1)
        limited = {
            one: len([entry async for entry in listing])
            for one, listing in lists(client, name, limit=2).items()
        }
        pages = {one: await ids_in_pages(found) for one, found in lists(client, name).items()}
        first = {one: await found.page(size=1) for one, found in lists(client, name).items()}
        [entry] = [one async for one in client.batches(id_prefix=f"{name}-batch-0")]
        for one, listing in lists(client, f"{name}x").items():
            with pytest.raises(errors.InvalidRequestError, match="is not a cursor"):
                await listing.page(first[one].next)
        for number in range(3):
            await client.schedule(f"{name}-schedule-{number}").delete()

    assert limited == dict.fromkeys(RESOURCES, 2)
    assert {one: set(chain(*found)) for one, found in pages.items()} == expected
    assert all(len(page) <= 2 for found in pages.values() for page in found)
    assert (entry.agent, entry.state, entry.total, entry.done) == ("spender", "completed", 1, 1)


@pytest.mark.slow
@pytest.mark.accepts("E161")
async def test_batches_are_listed_once_by_agent_and_without_their_key(runtime: Runtime) -> None:
    """A batch of two rounds, one of another agent, and one that this process cannot decode."""
    name = secrets.token_hex(4)
    model = ScriptedModel(fails(errors.LLMAuthError("wrong key")), says("one"), says("two"))
    agents = app(spender(), spender(name="saver"))
    locked = runtime(app(), model=ScriptedModel(says("three")), data_converter=converter)
    async with runtime(agents, model=model) as client, locked as hidden:
        twice = await client.start_batch(f"{name}-twice", "spender", ["go"])
        await twice.wait()
        await (await twice.retry()).wait()
        other = await client.start_batch(f"{name}-other", "saver", ["go"])
        await other.wait()
        secret = await hidden.start_batch(f"{name}-secret", "spender", ["go"])
        await secret.wait()

        async def listed(**filters: Any) -> list[BatchEntry]:
            return [one async for one in client.batches(id_prefix=name, **filters)]

        async with asyncio.timeout(SOON_S):
            while len([one for one in await listed() if one.ended_at]) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        entries = {entry.id: entry for entry in await listed()}
        by_agent = {agent: await listed(agent=agent) for agent in ("spender", "saver")}
        pages = await ids_in_pages(client.batches(id_prefix=name))
        page = await client.batches("spender", id_prefix=name).page(size=1)
        with pytest.raises(errors.InvalidRequestError, match="is not a cursor"):
            await client.batches("saver", id_prefix=name).page(page.next)

    retried, undecoded = entries[twice.id], entries[secret.id]
    assert {agent: [one.id for one in found] for agent, found in by_agent.items()} == {
        "spender": [twice.id],
        "saver": [other.id],
    }
    assert (retried.round, retried.state, retried.done) == (2, "completed", 1)
    assert undecoded.error is not None
    assert (undecoded.error.code, undecoded.state, undecoded.agent, undecoded.total) == (
        "PAYLOAD_DECODE",
        None,
        "",
        0,
    )
    assert undecoded.ended_at is not None
    assert sorted(chain(*pages)) == sorted(entries)


@pytest.mark.accepts("E161")
async def test_short_list_that_the_server_cannot_filter_is_read_in_large_pages(
    runtime: Runtime,
) -> None:
    """Temporal's list of schedules takes no filter: a page for each of them would be many."""
    name = secrets.token_hex(4)
    async with runtime(app(), model=ScriptedModel()) as client:
        for number in range(5):
            await client.create_schedule(
                f"{name}-{number}", "spender", "go", cron="0 3 1 1 *", timezone="UTC"
            )
        async with asyncio.timeout(SOON_S):
            while len([one async for one in client.schedule_ids(name)]) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        temporal, service = counting(client.temporal)
        other = AgentClient.from_temporal(temporal)
        found = [one async for one in other.schedules(id_prefix=f"{name}-no", limit=1)]
        for number in range(5):
            await client.schedule(f"{name}-{number}").delete()

    assert found == []
    assert service.calls["list_schedules"] < 5
