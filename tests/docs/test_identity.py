"""Run the code blocks of `docs/identity.md` with the real `perdure serve` and a fake provider."""

from __future__ import annotations

import re

import pytest

from perdure.testing import FakeIssuer

from ..support.docs.commands import commands
from .conftest import Tell

AUDIENCE = "https://agents.example.com"


@pytest.mark.slow
@pytest.mark.accepts("G60", "G85", "P7")
async def test_gateway_takes_tokens_as_the_page_says(tell: Tell) -> None:
    """With the table of the page, on the command line of the page."""
    with FakeIssuer() as issuer:
        async with tell("identity") as story:
            token = issuer.token(
                aud=AUDIENCE, preferred_username="anna", org="org_8f3a", groups=["support"]
            )
            story.terminal.environment |= {"ISSUER": issuer.url, "ACCESS_TOKEN": token}
            table = await story.up_to("Take the tokens of a provider", "toml")
            (story.terminal.folder / "claims.toml").write_text(table.text, encoding="utf-8")
            [serve] = commands(await story.up_to("Take the tokens of a provider", "console"))
            async with story.terminal.stays(serve) as (_, printed):
                [url] = re.findall(r"http://[^;\s]+", printed)
                story.terminal.environment["PERDURE"] = url
                await story.through("MCP clients that look for the login")
