"""Run the code blocks of `docs/protocols.md`."""

from dataclasses import replace

import jsonschema  # type: ignore[import-untyped]
import pytest

from perdure import Registry
from perdure.testing import ScriptedModel
from perdure.worker import AgentWorker

from ..support.docs.stories import read
from .conftest import Tell


@pytest.mark.slow
async def test_words_and_json_of_the_page_are_what_is_sent_and_understood(tell: Tell) -> None:
    """The prompt describes the form of a call; the replies on the page run the tool and answer, in
    both protocols.
    """
    registry = Registry()
    async with tell("protocols") as story:
        clerk = await story.defining("clerk")
        action = await story.up_to("What does the model see with react_text?", "text")
        final = await story.up_to("What does the model see with react_text?", "text")
        replies = await story.up_to("How does the json protocol work?", "json")
        registry.add(clerk)
        registry.add(replace(clerk, name="by-schema", protocol="json"))
        model = ScriptedModel(action.text, final.text, *replies.text.splitlines())
        client = await story.works(AgentWorker(registry), model)
        reports = [await client.run(name, "How long is it?") for name in ("clerk", "by-schema")]

    assert [(report.output, report.steps[0].results[0].content) for report in reports] == [
        ("30 days", "30 days")
    ] * 2
    form = [line.split(":")[0] for line in action.text.splitlines()]
    assert [
        line.split(":")[0]
        for line in model.requests[0].system.splitlines()
        if line.startswith(("Thought:", "Action"))
    ][:3] == form
    schema = model.requests[2].response_schema
    assert schema is not None
    for value in read(replies):
        jsonschema.validate(value, schema)
