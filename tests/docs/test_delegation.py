"""Run the code blocks of `docs/delegation.md`."""

import importlib

import pytest
from temporalio.worker import Worker

from perdure.testing import ScriptedModel, says
from perdure.worker import AgentWorker, PerdurePlugin

from ..support.docs.commands import Command
from ..support.docs.trees import tree
from .conftest import Tell


@pytest.mark.slow
async def test_tree_is_drawn_and_a_workflow_has_a_turn_as_the_page_says(tell: Tell) -> None:
    """The tree has states, steps, costs and tasks; the workflow runs in Temporal's sandbox, from a
    file.
    """
    async with tell("delegation") as story:
        editor = await story.defining("editor")
        agents = [editor, story["researcher"], story["writer"]]
        client = await story.works(agents, tree())
        await client.run("editor", "A page on notice periods", id="page-7")
        drawn = await story.up_to("Inspect a tree", "text")
        await story.terminal.run(Command(drawn, "perdure show page-7", f"…\n\n{drawn.text}…"))

        block = await story.up_to("Run a turn in your own workflow")
        (story.terminal.folder / "their_tickets.py").write_text(block.text, encoding="utf-8")
        theirs = importlib.import_module("their_tickets").Ticket
        plugin = PerdurePlugin(
            AgentWorker(agents, providers={"openai": ScriptedModel(says("30 days"))})
        )
        async with Worker(
            client.temporal, task_queue="theirs", workflows=[theirs], plugins=[plugin]
        ):
            answer = await client.temporal.execute_workflow(
                theirs.run, "How long?", id="ticket-1", task_queue="theirs"
            )

    assert answer == "30 days"
