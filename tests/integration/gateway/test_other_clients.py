"""Frameworks for agents that have the gateway as their model, over OpenAI's API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure import Agent, tool
from perdure.activities.provider import ModelRequest
from perdure.testing import FunctionModel, call, calls, says, slowly
from perdure.testing.scripted import Reply
from perdure.values.messages import UserMessage

from ...conftest import Runtime
from ...support.gateway.responses import by_name, openai_of
from ...support.gateway.served import served


@tool
def look_up(order: int) -> str:
    """Find an order."""
    return f"order {order} was sent"


DESK = Agent(
    name="desk", model="main", tools=[look_up], instructions="Be kind.", takes_instructions=True
)
COUNTED = "One two three."


def answers(request: ModelRequest) -> Reply:
    """A model that looks an order up, counts, or says its last instructions and all questions."""
    asked = [one.text for one in request.messages if isinstance(one, UserMessage)]
    if request.response_schema is not None:
        return says('{"order": 7, "is_lost": true}')
    if asked[-1] == "order" and request.messages[-1].role == "user":
        return calls(call("look_up", order=7), text="I look.")
    if asked[-1] == "count":
        return slowly(COUNTED, pause=timedelta(seconds=0.6))
    return says(f"{request.system.splitlines()[-1]}: {', '.join(asked)}")


@pytest.mark.slow
@pytest.mark.accepts("H179")
@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_openai_agents_runs_an_agent(runtime: Runtime, api: str) -> None:
    """It asks, goes on with what was said, streams, and gets a type."""
    agents = pytest.importorskip("agents", reason="openai-agents is not installed")
    from pydantic import BaseModel

    class Parcel(BaseModel):
        order: int
        is_lost: bool

    agents.set_tracing_disabled(True)
    kind: Any = (
        agents.OpenAIResponsesModel if api == "responses" else agents.OpenAIChatCompletionsModel
    )
    async with (
        runtime(DESK, model=FunctionModel(answers)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        assert client
        model = kind(model="desk", openai_client=ai)
        assistant = agents.Agent(name="assistant", instructions="Be brief.", model=model)
        first = await agents.Runner.run(assistant, "order")
        following = [*first.to_input_list(), {"role": "user", "content": "And?"}]
        second = await agents.Runner.run(assistant, following)
        streamed = agents.Runner.run_streamed(assistant, "count")
        pieces = [
            event.data.delta
            async for event in streamed.stream_events()
            if event.type == "raw_response_event"
            and event.data.type == "response.output_text.delta"
        ]
        typed = await agents.Runner.run(assistant.clone(output_type=Parcel), "Where?")

    assert first.final_output.endswith("Be brief.: order")
    assert second.final_output == "Be brief.: order, And?"
    assert "".join(pieces) == streamed.final_output == COUNTED
    assert len(pieces) > 1
    assert typed.final_output == Parcel(order=7, is_lost=True)


@pytest.mark.slow
@pytest.mark.accepts("H179")
@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_pydantic_ai_runs_an_agent(runtime: Runtime, api: str) -> None:
    """The same, by its own models for OpenAI."""
    pydantic_ai = pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")
    from pydantic import BaseModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Parcel(BaseModel):
        order: int
        is_lost: bool

    kind: Any = OpenAIResponsesModel if api == "responses" else OpenAIChatModel
    async with (
        runtime(DESK, model=FunctionModel(answers)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        assert client
        model = kind("desk", provider=OpenAIProvider(openai_client=ai))
        assistant = pydantic_ai.Agent(model, instructions="Be brief.")
        first = await assistant.run("order")
        second = await assistant.run("And?", message_history=first.all_messages())
        async with assistant.run_stream("count") as streamed:
            pieces = [piece async for piece in streamed.stream_text(delta=True, debounce_by=None)]
        typed = await pydantic_ai.Agent(
            model, output_type=pydantic_ai.NativeOutput(Parcel), instructions="Be brief."
        ).run("Where?")

    assert first.output.endswith("Be brief.: order")
    assert second.output == "Be brief.: order, And?"
    assert "".join(pieces) == COUNTED
    assert len(pieces) > 1
    assert typed.output == Parcel(order=7, is_lost=True)
