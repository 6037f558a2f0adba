"""Turns of hundreds of steps.

`make -C benchmarks step` (`flatness_500`) shows that the last step is as fast as the first one;
no test measures that.
"""

import pytest

from perdure import Agent, tool
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import Runtime

STEPS, RESULT_BYTES = 500, 5_000


@tool(read_only=True)
def fetch(number: int) -> str:
    """Fetch so much text."""
    return f"{number:0{RESULT_BYTES}}"


@pytest.mark.slow
@pytest.mark.accepts("Y7")
async def test_turn_of_500_steps_with_5_kb_results_stays_under_5_mb(runtime: Runtime) -> None:
    """Each request has the whole transcript, and history has each message once."""
    agent = Agent(name="reader", model="scripted:reader", tools=[fetch], max_iterations="unlimited")
    model = ScriptedModel(
        *[calls(call("fetch", number=number)) for number in range(STEPS)], says("done")
    )

    async with runtime(agent, model=model) as client:
        turn = await client.start(agent, "go")
        report = await turn.result()
        history = await client.history(turn)

    assert (report.output, len(report.steps)) == ("done", STEPS + 1)
    assert [len(request.messages) for request in model.requests] == list(range(1, 2 * STEPS + 2, 2))
    assert sum(event.ByteSize() for event in history.events) < 5_000_000
