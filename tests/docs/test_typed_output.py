"""Run the code blocks of `docs/typed-output.md`."""

from decimal import Decimal

import pytest

from perdure.testing import ByTask, ScriptedModel

from .conftest import Tell


@pytest.mark.slow
async def test_answers_are_instances_as_the_page_says(tell: Tell) -> None:
    """With an agent's type, and with a type for a single request."""
    scripts = {
        "Read it.": ScriptedModel('{"number": "RE-1042", "total": "12.50"}'),
        "What is the total? …": ScriptedModel('{"value": "12.50"}'),
    }
    async with tell("typed-output") as story:
        clerk = await story.defining("clerk")
        client = await story.works(clerk, ByTask(scripts))
        story.given(client=client)
        report = await client.run(clerk, "Read it.")
        total = await story.defining("total")

    assert (report.output, total) == (
        story["Invoice"](number="RE-1042", total=Decimal("12.50")),
        Decimal("12.50"),
    )
