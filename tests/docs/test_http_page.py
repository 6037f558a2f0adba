"""Run the code blocks of `docs/http-page.md` with the real `perdure serve`."""

from __future__ import annotations

import re

import httpx
import pytest

from ..support.docs.commands import commands
from .conftest import Tell


@pytest.mark.slow
@pytest.mark.accepts("H73")
async def test_gateway_says_what_the_page_of_the_docs_says(tell: Tell) -> None:
    """With the address of Temporal's web UI that the operator gave."""
    async with tell("http-page") as story:
        await story.run(await story.up_to("Open it", "console"))
        [command] = commands(await story.up_to("Open it", "console"))
        async with story.terminal.stays(command) as (_, printed):
            [(url, token)] = re.findall(r"page +(\S+)/ui/#token=(\S+)", printed)
            story.terminal.environment |= {"PERDURE": url, "PERDURE_TOKEN": token}
            element = await story.up_to("A chat for your users", "html")
            [source] = re.findall(r'src="(.+?)"', element.text)
            async with httpx.AsyncClient(verify=False, timeout=60) as http:
                script = await http.get(url + source)
            await story.through("Who may use it")

    assert script.status_code == 200
    assert "perdure-chat" in script.text
