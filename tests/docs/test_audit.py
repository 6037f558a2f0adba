"""Run the code blocks of `docs/audit.md`."""

import pytest

from perdure import Agent
from perdure.testing import ScriptedModel, says

from ..support.docs.until import until
from .conftest import Tell

SUPPORT = Agent(name="support", model="main")


@pytest.mark.slow
@pytest.mark.accepts("G43")
async def test_audit_is_written_and_checked_as_the_page_says(tell: Tell) -> None:
    """In a file that goes on, and in Python."""
    async with tell("audit") as story:
        client = await story.works(SUPPORT, ScriptedModel(says("done")))
        turn = await client.start("support", "go", id="audit-of-the-page", by="anna")
        await turn.result()
        of_today = await story.defining("of_today")

        async def told() -> list[str]:
            return [line for line in await of_today(client) if "audit-of-the-page" in line]

        lines = await until(told, "the turn is listed")

    assert lines == ["start audit-of-the-page by anna"]
