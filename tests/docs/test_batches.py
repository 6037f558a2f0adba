"""Run the code blocks of `docs/batches.md`."""

import pytest

from perdure import Agent, Usage
from perdure.activities.provider import ModelRequest
from perdure.errors import LLMRefusedError
from perdure.testing import FunctionModel, fails, says
from perdure.testing.scripted import Reply
from perdure.values.messages import UserMessage

from .conftest import Tell

CLASSIFIER = Agent(name="classifier", model="main")


@pytest.mark.slow
async def test_batches_run_and_are_retried_as_the_page_says(tell: Tell) -> None:
    """In Python, with a task that fails at first, and on the command line."""
    refused = {"rude"}

    def reply(request: ModelRequest) -> Reply:
        [task] = [one.text for one in request.messages if isinstance(one, UserMessage)]
        if task in refused:
            return fails(LLMRefusedError("no"))
        return says(f"seen: {task}", usage=Usage(input_tokens=1_000, output_tokens=100))

    async with tell("batches") as story:
        client = await story.works(CLASSIFIER, FunctionModel(reply))
        printed = await story.prints((await story.defining("nightly"))(client, ["a", "rude"]))
        batch = client.batch("nightly-2026-11-23")
        failures = await story.prints((await story.defining("failures"))(batch, None))
        refused.clear()
        await (await story.defining("once_more"))(client)
        status = await batch.wait()
        mails = await story.up_to("The command line", "json")
        (story.terminal.folder / "mails.jsonl").write_text(mails.text, encoding="utf-8")

    assert "1 done seen: a 0.00045" in printed
    assert printed.splitlines()[-1] == "completed 1 1"
    assert failures == "2 nightly-2026-11-23/2 LLM_REFUSED\n"
    assert (status.done, status.failed, status.round) == (2, 0, 2)
