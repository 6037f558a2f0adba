"""Options of requests: the agent's and the turn's, in every request of the turn."""

from typing import Any

import pytest

from perdure import Budget, RequestOptions, errors
from perdure.testing import ScriptedModel, call, calls, fails, says

from ...conftest import Runtime
from ...support.spending import app, ended, spender, usage

OF_THE_AGENT = RequestOptions(
    temperature=0,
    max_output_tokens=50,
    stop_sequences=("STOP",),
    extra={"seed": 1, "user": "agent"},
)


@pytest.mark.slow
@pytest.mark.accepts("L8")
async def test_options_reach_the_request_of_every_step(runtime: Runtime) -> None:
    """Each option of the turn overrides the agent's, `extra` of both is merged, and retries have
    the same options.
    """
    busy = errors.LLMRateLimitError(context={"status": 429, "retry_after_s": 0.01})
    model = ScriptedModel(
        calls(call("look")), fails(busy), calls(call("look", number=2)), says("done")
    )
    of_the_turn = RequestOptions(
        temperature=0.7, stop_sequences=(), tool_choice="look", extra={"user": "turn", "top_p": 0.5}
    )
    async with runtime(app(options=OF_THE_AGENT), model=model) as client:
        await client.run("spender", "go", options=of_the_turn)

    both = RequestOptions(
        temperature=0.7,
        max_output_tokens=50,
        stop_sequences=(),
        tool_choice="look",
        extra={"seed": 1, "user": "turn", "top_p": 0.5},
    )
    assert [request.options for request in model.requests] == [both] * 4


@pytest.mark.table(1)
@pytest.mark.accepts("L8")
@pytest.mark.parametrize(
    ("agent", "turn", "sent"),
    [
        (OF_THE_AGENT, None, OF_THE_AGENT),
        (RequestOptions(), OF_THE_AGENT, OF_THE_AGENT),
        (OF_THE_AGENT, RequestOptions(), OF_THE_AGENT),
        (RequestOptions(), None, RequestOptions()),
    ],
    ids=["agent", "turn", "nothing said", "none"],
)
async def test_option_that_nobody_names_is_left_to_the_provider(
    runtime: Runtime, agent: RequestOptions, turn: RequestOptions | None, sent: RequestOptions
) -> None:
    """Options of a turn that are not set leave the agent's in effect."""
    model = ScriptedModel("done")
    async with runtime(app(options=agent), model=model) as client:
        await client.run("spender", "go", options=turn)

    assert model.requests[0].options == sent


@pytest.mark.accepts("L8", "B9")
async def test_last_answer_has_the_options_but_no_tool_choice(runtime: Runtime) -> None:
    """There are no tools to choose from; its length is limited by the options, too."""
    model = ScriptedModel(calls(call("look"), usage=usage(900)), says("what I have"))
    options = OF_THE_AGENT.model_copy(update={"tool_choice": "required"})
    async with runtime(app(spender(on_exhausted="finish", options=options)), model=model) as client:
        await client.run("spender", "go", budget=Budget(model_calls=2))

    assert [request.options for request in model.requests] == [options, OF_THE_AGENT]


NO_OPTIONS: list[Any] = [
    {"temperature": "hot"},
    {"temperature": -1},
    {"max_output_tokens": 0},
    {"stop_sequences": [""]},
    {"extra": 1},
    [],
    5,
]


@pytest.mark.slow
@pytest.mark.accepts("U10")
async def test_options_that_cannot_be_end_the_turn_typed(runtime: Runtime) -> None:
    """From Temporal's own client, which validates nothing."""
    async with runtime(app(), model=ScriptedModel()) as client:
        ends = []
        for number, options in enumerate(NO_OPTIONS):
            given = {"agent": "spender", "task": "go", "options": options}
            turn_id = f"{client.task_queue}-{number}"
            await client.temporal.start_workflow(
                "AgentTurn", given, id=turn_id, task_queue=client.task_queue
            )
            ends.append(await ended(client.turn(turn_id)))

    assert [type(end) for end in ends] == [errors.InvalidRequestError] * len(NO_OPTIONS)
    assert all("options" in str(end) for end in ends)
