"""Run the code blocks of `docs/listing-turns.md`."""

import pytest

from perdure import Agent
from perdure.errors import LLMAuthError
from perdure.testing import ScriptedModel, fails

from ..support.docs.until import until
from .conftest import Tell

SUPPORT = Agent(name="support", model="main")


@pytest.mark.slow
@pytest.mark.accepts("P22")
async def test_turns_are_found_as_the_page_says(tell: Tell) -> None:
    """A failed turn by its labels, and a page of a list."""
    async with tell("listing-turns") as story:
        client = await story.works(SUPPORT, ScriptedModel(fails(LLMAuthError("no key"))))
        await client.start(
            "support", "Answer without a key.", id="no-key", labels={"customer": "Jo"}
        )
        failed_for = await story.defining("failed_for")
        failed = await until(lambda: failed_for(client, "Jo"), "the turn that failed is listed")
        page = await (await story.defining("one_page"))(client, None)

    assert failed == ["no-key: Answer without a key."]
    assert page == ([], None)
