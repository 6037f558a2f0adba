"""Run the code blocks of `docs/versions.md`."""

import pytest

from ..support.agent_versions import fails_as
from ..support.docs.commands import commands
from ..support.docs.until import until
from .conftest import Tell


@pytest.mark.slow
@pytest.mark.accepts("V48")
async def test_two_versions_are_rolled_out_as_the_page_says(tell: Tell) -> None:
    """The columns of the comparison, the version of the turn, and how a reason is worded."""
    async with tell("versions") as story:
        app = await story.defining("app")
        client = await story.works(app, fails_as("nobody"))
        story.given(client=client)
        await story.defining("status")
        table = await story.up_to("Compare them", "console")
        listed = client.turns("support", version="v2")
        assert await until(lambda: anext(listed, None), "the turn is listed") is not None
        [command] = commands(table)
        shown = await story.terminal._to_the_end(command)
        reason = await story.up_to("When a version is stopped", "text")

    assert story.printed == "Be brief and kind. v2\n"
    assert shown.splitlines()[0].split() == table.text.splitlines()[1].split()
    assert "6 of 50 of its turns have failed, and 9 of 448 of version v1" in reason.text
