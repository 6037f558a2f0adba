"""Instructions that the caller of a turn adds to those of its agent."""

from __future__ import annotations

import pytest

from perdure import Agent, errors, limits
from perdure.activities.provider import ModelRequest
from perdure.testing import FunctionModel, call, calls, says
from perdure.testing.scripted import Reply

from ...conftest import Runtime

MORE = "Answer in French."
OPEN = Agent(
    name="open",
    model="main",
    instructions="Be kind.",
    takes_instructions=True,
    handoffs=["closed"],
)
CLOSED = Agent(name="closed", model="main", instructions="Be brief.")


def echo(request: ModelRequest) -> Reply:
    """A model that says what it was instructed, or hands over first."""
    first = request.messages[0]
    if first.role == "user" and first.text == "hand over" and "Be kind." in request.system:
        return calls(call("hand_over", agent="closed", message="you"))
    return says(request.system)


@pytest.mark.accepts("S9")
async def test_agent_reads_the_callers_instructions_after_its_own_if_it_takes_any(
    runtime: Runtime,
) -> None:
    """In a turn, a fork and a session; not after a handoff, and never otherwise."""
    async with runtime([OPEN, CLOSED], model=FunctionModel(echo)) as client:
        turn = await client.start("open", "go", id="told-1", instructions=MORE)
        plain = await client.run("open", "go")
        with pytest.raises(errors.TurnConflictError):
            await client.start("open", "go", id="told-1", instructions="Be rude.")
        same = await (await turn.fork(say="again")).result()
        other = await (await turn.fork(say="again", instructions="Be long.")).result()
        talk = client.session("told-talk", "open", instructions=MORE)
        said = await (await (await talk.say("go")).turn()).result()
        over = await client.run("open", "hand over", instructions=MORE)
        with pytest.raises(errors.InvalidRequestError, match="takes_instructions=True"):
            await client.run("closed", "go", instructions=MORE)
        with pytest.raises(errors.TooLargeError, match="the instructions are"):
            await client.run("open", "go", instructions="x" * (limits.INSTRUCTIONS_BYTES + 1))
        await talk.close()

    told = (await turn.result()).output
    assert told.startswith("Be kind.\n\n")
    assert told.endswith(f"\n{MORE}")
    assert plain.output == "Be kind."
    assert same.output == said.output == told
    assert other.output.endswith("\nBe long.")
    assert MORE not in other.output
    assert over.output == "Be brief."
