"""Run the code blocks of `README.md`."""

from dataclasses import replace

import pytest

from perdure import Registry
from perdure.testing import ScriptedModel, call, calls, says

from ..support.docs.pages import README, ROOT
from ..support.docs.trees import tree
from .conftest import Tell


@pytest.mark.slow
async def test_readme_does_what_it_says(tell: Tell) -> None:
    """Agents delegate, one answers and closes a ticket while a backend follows it, and commands
    start, show and cancel turns.
    """
    scripts = tree()
    reads, closes = (
        calls(call("read_ticket", number="4711")),
        calls(call("close_ticket", number="4711")),
    )
    scripts.scripts["Answer ticket 4711."] = ScriptedModel(
        reads, closes, says("30 days"), says("again")
    )
    async with tell("README.md") as story:
        # test_slow_commands.py compares the output of `make demo`
        await story.up_to("Perdure", "text")
        app, editor = await story.defining("app"), await story.defining("editor")
        agents = Registry([*app.registry.agents(), story["researcher"], story["writer"], editor])
        client = await story.works(replace(app, agents=agents), scripts)
        await client.run("editor", "A page on notice periods", id="page-1")
        answer = await story.defining("answer")
        printed = await story.prints(answer("4711"))
        report = await client.turn("ticket-4711").result()

    assert (report.output, report.steps[0].results[0].content) == (
        "30 days",
        "How long is the notice period?",
    )
    assert (
        "closed 'How long is the notice period?', once, under "
        in report.steps[1].results[0].content
    )
    assert "TurnEnded" in printed.splitlines()[-1]


def test_example_is_the_readmes_agent() -> None:
    """`examples/support.py` and the README show the same program."""
    example = (ROOT / "examples/support.py").read_text(encoding="utf-8")

    assert example.split('"""\n\n', 1)[1] == README.files()["support.py"].split("\n", 1)[1]
