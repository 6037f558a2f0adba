"""Run the code blocks of `docs/typescript.md` as one program, with a real gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import Agent, UserMessage, tool
from perdure.testing import FunctionModel, ModelRequest, Reply, call, calls, says

from ..support.docs.pages import page
from ..support.gateway.served import served
from ..support.gateway.typescript import printed, program_of
from .conftest import Tell

SHOWS = """
console.log(
  JSON.stringify({
    shown, outcome, output, error, kinds, cursor,
    paid: paid.output, said, greeting, names, results, problem,
  }),
);
"""


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


def desk(request: ModelRequest) -> Reply:
    """A refund, and an answer after its result."""
    last = request.messages[-1]
    if isinstance(last, UserMessage) and "Refund" in last.text:
        return calls(call("refund", euros=40))
    return says("I look for it.")


@pytest.mark.slow
@pytest.mark.accepts("H236")
async def test_client_in_typescript_does_what_the_page_says(tell: Tell, tmp_path: Path) -> None:
    """The blocks are compiled with strict types, and run."""
    async with tell("typescript") as story:
        agent = Agent(name="desk", model="main", tools=[refund])
        client = await story.works(agent, FunctionModel(desk))
        headings = [one.heading for one in page("typescript").blocks if one.language == "ts"]
        blocks = [(await story.up_to(heading, "ts")).text for heading in headings]
        async with served(client, name="root") as http:
            given = f"const address = '{http.base_url}', token = 'root';\n"
            text = "".join([given, *blocks, SHOWS])
            seen = await printed(program_of(text, tmp_path / "project"))
        events = [event.cursor async for event in client.turn("ticket-4711").events()]

    assert (seen["outcome"], seen["output"], seen["error"]) == ("completed", "I look for it.", None)
    assert seen["shown"] == seen["output"] == seen["paid"] == seen["greeting"]
    assert seen["kinds"][-1] == "turn_ended"
    assert "with 0 calls" in seen["kinds"]
    assert seen["cursor"] == events[-1]
    assert [one["role"] for one in seen["said"]] == ["user", "assistant"]
    assert len(seen["names"]) == len(set(seen["names"])) > 2
    assert [one["id"] for one in seen["results"]] == ["a"]
    assert seen["problem"].startswith("TURN_NOT_FOUND: ")
