"""The page in Chromium shows which version of an agent a turn has, and why it fell back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from perdure import Rollout, StopRule
from perdure.agents.versions import Tally

from ...conftest import Runtime
from ...support.agent_versions import counted, fails_as, new_id, run_turns, support
from ...support.gateway.pages import has, page_of, show

if TYPE_CHECKING:
    from playwright.async_api import Browser

RULE = StopRule(over=1, failures=1)


@pytest.mark.slow
@pytest.mark.accepts("V45", "V50")
async def test_version_of_a_turn_is_in_the_list_and_in_its_facts(
    runtime: Runtime, chromium: Browser
) -> None:
    """The list is filtered by it, with a chip that ends the filter, and compares the versions."""
    name = new_id("desk")
    agents = [support(version, name=name) for version in ("v1", "v2")]
    rollouts = {name: Rollout({"v2": 1.0}, stop=RULE)}
    async with page_of(runtime, chromium, fails_as("v2"), *agents, rollouts=rollouts) as (
        client,
        _,
        watched,
    ):
        await run_turns(client, name, "v2", 1)
        await run_turns(client, name, "v1", 1)
        await counted(client, name, "v2", Tally(1, 1))
        await counted(client, name, "v1", Tally(1, 0))
        turn = await client.start(name, "go")
        await turn.wait()
        page = watched.page
        await show(page, "turns", turn.id)
        await has(page, "version v2 is stopped: 1 of 1 of its turns have failed")
        facts = await page.locator("main dl").first.inner_text()
        await counted(client, name, "v1", Tally(2, 0))
        await page.evaluate(f"location.hash = '#/turns?agent={name}&version=v1'")
        rows = page.locator("main .second", has_text=name)
        async with asyncio.timeout(60):
            while await rows.count() != 2:  # noqa: ASYNC110 - the list is loaded
                await asyncio.sleep(0.1)
        shown = await rows.all_inner_texts()
        tables_of_one = await page.locator("table.versions").count()
        await page.get_by_role("button", name="Without version v1").click()
        async with asyncio.timeout(60):
            while await rows.count() != 3:  # noqa: ASYNC110 - the list is loaded
                await asyncio.sleep(0.1)
        table = page.locator("table.versions tr", has_text=name)
        numbers = [line.split() for line in await table.all_inner_texts()]

    assert tables_of_one == 0
    # of each version its turns, those that have not ended, failed and were stopped; then the steps
    assert [line[:6] for line in numbers] == [
        [name, "v1", "2", "0", "0", "0"],
        [name, "v2", "1", "0", "1", "0"],
    ]
    assert [line[6] for line in numbers] == ["1.0", "0.0"]
    assert "Version\nv1" in facts
    assert all(f"{name} v1" in row for row in shown)
