"""Turns with the text protocols, ReAct and JSON."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perdure import (
    Agent,
    Budget,
    Message,
    Outcome,
    Registry,
    Text,
    Thinking,
    ToolCall,
    ToolMessage,
    UserMessage,
    errors,
    tool,
)
from perdure.activities.provider import ModelRequest
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.turn.reservations import LAST_WORDS
from perdure.values.messages import AssistantMessage

from ...conftest import Run, Runtime

EXAMPLE = Path(__file__).parents[3] / "examples/react.py"


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True)
def look_up(words: str) -> str:
    """Look something up."""
    if words == "nothing":
        raise ValueError("no such page")
    return f"found {words}"


ASKED = UserMessage.of("What is 7 + 8?")
ADD = 'Thought: I have to add them.\nAction: add\nAction Input: {"a": 7, "b": 8}'
TWO_PAGES = 'Action: look_up\nAction Input: {"words":\n "two\\npages"}'


def speaker(name: str = "speaker", **fields: Any) -> Agent[Any]:
    """An agent whose model has no native tool calls."""
    return Agent(
        **{
            "name": name,
            "model": "scripted:m",
            "instructions": "Be brief.",
            "tools": [add, look_up],
            "protocol": "react_text",
            **fields,
        }
    )


def text(words: str) -> AssistantMessage:
    return AssistantMessage(parts=(Text(text=words),))


def words(message: Message) -> str:
    """The text of a message; in a text protocol, a message has nothing else."""
    assert not isinstance(message, ToolMessage)
    return message.text


def last(request: ModelRequest) -> Message:
    """The last message to the model."""
    return request.messages[-1]


async def run_each(
    runtime: Runtime, agents: dict[str, Agent[Any]], models: dict[str, ScriptedModel], **start: Any
) -> dict[str, Any]:
    """One turn of each agent, concurrently: the reports or errors."""
    async with runtime(Registry(agents.values()), model=models) as client:
        ends = await asyncio.gather(
            *(client.run(name, "What is 7 + 8?", **start) for name in models),
            return_exceptions=True,
        )
    return dict(zip(models, ends, strict=True))


@pytest.mark.accepts("R1", "R6", "O7")
async def test_action_runs_its_tool_and_the_observation_comes_back(run: Run) -> None:
    """The whole loop in text; the step has the thought, and the transcript has the same messages as
    in every protocol.
    """
    model = ScriptedModel(ADD, "Thought: I know it.\nFinal Answer: 15")

    report = await run(model, "What is 7 + 8?", tools=[add, look_up], protocol="react_text")

    asked = ToolCall(id="call_1_1", name="add", arguments='{"a": 7, "b": 8}')
    called = AssistantMessage(parts=(Thinking(text="I have to add them."), asked))
    answered = AssistantMessage(parts=(Thinking(text="I know it."), Text(text="15")))
    first, second = model.requests
    assert (report.output, report.model_calls, report.tool_calls) == ("15", 2, 1)
    assert report.messages == (ASKED, called, ToolMessage.of(asked, "15"), answered)
    assert [(step.number, step.message) for step in report.steps] == [(1, called), (2, answered)]
    assert second.messages == (ASKED, text(ADD), UserMessage.of("Observation: 15"))
    assert (first.tools, first.options.stop_sequences) == ((), ("\nObservation:",))
    assert first.system == second.system
    assert all(
        line in first.system
        for line in ("Add.", "add: Add two numbers.", "look_up: Look something up.")
    )


@pytest.mark.slow
@pytest.mark.accepts("R2")
async def test_unknown_action_and_failing_tool_are_observed(run: Run) -> None:
    """Each is sent as an Observation, and the loop continues."""
    model = ScriptedModel(
        "Action: divide\nAction Input: 7, 8",
        "Action: look_up\nAction Input: nothing",
        ADD,
        "Final Answer: 15",
    )

    report = await run(model, tools=[add, look_up], protocol="react_text")

    told = [last(request) for request in model.requests[1:]]
    assert (
        report.output,
        [result.is_error for step in report.steps for result in step.results],
    ) == ("15", [True, True, False])
    assert told == [
        UserMessage.of(
            "Observation: There is no tool named 'divide'. The tools are: add, look_up."
        ),
        UserMessage.of("Observation: look_up failed: ValueError: no such page"),
        UserMessage.of("Observation: 15"),
    ]


@pytest.mark.slow
@pytest.mark.accepts("R3")
async def test_text_with_neither_marker_is_corrected_or_the_answer(runtime: Runtime) -> None:
    """Depending on `unmarked`; a correction is a new request, at most twice in a row, and then the
    turn ends with a typed error.
    """
    agents = {name: speaker(name) for name in ("corrected", "stubborn", "late")} | {
        "taken": speaker("taken", unmarked="answer")
    }
    agents |= {
        "object": speaker("object", protocol="json"),
        "spoken": speaker("spoken", protocol="json", unmarked="answer"),
    }
    models = {
        "corrected": ScriptedModel("It is 15.", "Final Answer: 15"),
        "stubborn": ScriptedModel("It is 15.", "It is 15!", "15!"),
        "late": ScriptedModel("Hm.", "Hm, hm.", ADD, "Hm.", "Thought: Hm.", "Final Answer: 15"),
        "taken": ScriptedModel("It is 15."),
        "object": ScriptedModel("It is 15.", '{"answer": "15"}'),
        "spoken": ScriptedModel("It is 15."),
    }

    ends = await run_each(runtime, agents, models)

    error = ends.pop("stubborn")
    assert {name: (end.output, end.model_calls) for name, end in ends.items()} == {
        "corrected": ("15", 2),
        "late": ("15", 6),
        "taken": ("It is 15.", 1),
        "object": ("15", 2),
        "spoken": ("It is 15.", 1),
    }
    assert isinstance(error, errors.OutputInvalidError)
    assert error.report is not None
    assert (error.report.model_calls, error.report.last_text) == (3, "15!")
    second = models["corrected"].requests[1]
    assert second.messages[:2] == (ASKED, text("It is 15."))
    assert "neither an Action nor a Final Answer" in words(second.messages[2])
    for model in models.values():
        model.assert_finished()
        assert all(
            before.messages != after.messages
            for before, after in zip(model.requests, model.requests[1:], strict=False)
        )


@pytest.mark.slow
@pytest.mark.accepts("R4", "R5")
async def test_action_runs_as_it_was_meant_and_what_is_invented_is_dropped(
    runtime: Runtime,
) -> None:
    """Whatever text the model adds around it; the next request has no invented results, and the
    answer is complete.
    """
    invented = "\nObservation: 99\nThought: I know it.\nFinal Answer: 99"
    written = {
        "eager": ADD + invented,
        "hasty": f"{ADD}\nFinal Answer: 99",
        "fenced": (
            'Thought: I have to add them.\nAction: add\nAction Input:\n```json\n{\n  "a": 7,\n '
            ' "b": 8\n}\n```' + invented
        ),
        "bold": (
            '**Thought:** I have to add them.\n**Action:** `Add`\n**Action Input:**\n\n{"a": 7,\n'
            ' "b": 8}' + invented
        ),
    }
    models = {
        name: ScriptedModel(words, 'Final Answer: 15.\nNot "Final Answer: 99".')
        for name, words in written.items()
    }
    models["pages"] = ScriptedModel(TWO_PAGES, "Final Answer: two")

    ends = await run_each(runtime, {name: speaker(name) for name in models}, models)

    pages = ends.pop("pages")
    assert pages.steps[0].results[0].content == "found two\npages"
    for name, report in ends.items():
        sent = models[name].requests[1]
        assert (report.output, report.model_calls) == ('15.\nNot "Final Answer: 99".', 2)
        assert [result.content for result in report.steps[0].results] == ["15"]
        assert "99" not in str(sent.messages)
        assert (words(sent.messages[1])[:45], last(sent)) == (
            ADD[:45],
            UserMessage.of("Observation: 15"),
        )


@pytest.mark.slow
@pytest.mark.accepts("R8")
async def test_schema_drives_the_same_loop(runtime: Runtime) -> None:
    """Every request forces a call or an answer; the transcript is that of the other protocols."""
    model = ScriptedModel(
        '{"name": "add", "arguments": {"a": 7, "b": 8}}',
        '{"name": "divide", "arguments": {}}',
        '{"name": "a',
        '{"answer": "15"}',
    )
    async with runtime(speaker(protocol="json"), model=model) as client:
        report = await client.run("speaker", "What is 7 + 8?")

    branches: Any = [
        request.response_schema["anyOf"] for request in model.requests if request.response_schema
    ]
    asked = ToolCall(id="call_1_1", name="add", arguments='{"a": 7, "b": 8}')
    assert (report.output, report.model_calls, report.tool_calls) == ("15", 4, 2)
    assert report.messages[:3] == (
        ASKED,
        AssistantMessage(parts=(asked,)),
        ToolMessage.of(asked, "15"),
    )
    assert [list(branch["properties"]) for branch in branches[0]] == [
        ["name", "arguments"],
        ["name", "arguments"],
        ["answer"],
    ]
    assert branches == [branches[0]] * 4
    assert [request.tools for request in model.requests] == [()] * 4
    assert model.requests[1].messages[1:] == (
        text('{"name": "add", "arguments": {"a": 7, "b": 8}}'),
        UserMessage.of("Result of add:\n15"),
    )
    assert last(model.requests[2]) == UserMessage.of(
        "Result of divide:\nThere is no tool named 'divide'. The tools are: add, look_up."
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "action", "answer"),
    [("react_text", ADD, "Final Answer: 15"), ("json", '{"name": "add"}', '{"answer": "15"}')],
)
async def test_last_answer_is_asked_for_without_tools(
    run: Run, protocol: str, action: str, answer: str
) -> None:
    """When the budget is spent, the prompt asks only for an answer, and an action instead of it is
    not run.
    """
    finishing = {
        "tools": [add, look_up],
        "protocol": protocol,
        "on_exhausted": "finish",
        "start": {"budget": Budget(model_calls=2)},
    }
    good, bad = ScriptedModel(action, answer), ScriptedModel(action, action)

    finished, refused = await run(good, **finishing), await run(bad, **finishing)

    final = good.requests[1]
    assert (finished.outcome, finished.output, finished.tool_calls) == (
        Outcome.BUDGET_EXHAUSTED,
        "15",
        1,
    )
    assert (refused.outcome, refused.output, refused.tool_calls) == (
        Outcome.BUDGET_EXHAUSTED,
        action,
        1,
    )
    assert "You have no tools now." in final.system
    assert "look_up" not in final.system
    assert str(final.response_schema).count("anyOf") == 0
    assert words(last(final)).endswith(f"\n\n{LAST_WORDS.text}")


@pytest.mark.slow
async def test_protocols_continue_each_others_turns(runtime: Runtime) -> None:
    """They share one form of transcript: native calls are sent as text, and calls in text as native
    ones.
    """
    agents = {"words": speaker("words"), "native": speaker("native", protocol="native")}
    models = {
        "words": ScriptedModel("Final Answer: still 15", ADD, "Final Answer: 15"),
        "native": ScriptedModel(
            calls(call("add", a=7, b=8), call("look_up", words="it"), text="Both."),
            says("15"),
            says("still 15"),
        ),
    }
    async with runtime(Registry(agents.values()), model=models) as client:
        first = await client.run("native", "What is 7 + 8?")
        await client.run("words", "Sure?", history=first.messages)
        second = await client.run("words", "What is 7 + 8?")
        await client.run("native", "Sure?", history=second.messages)

    assert [words(message) for message in models["words"].requests[0].messages] == [
        "What is 7 + 8?",
        'Thought: Both.\nAction: add\nAction Input: {"a": 7, "b": 8}',
        "Observation: 15",
        'Action: look_up\nAction Input: {"words": "it"}',
        "Observation: found it",
        "Final Answer: 15",
        "Sure?",
    ]
    assert models["native"].requests[2].messages == (*second.messages, UserMessage.of("Sure?"))


class Sum(BaseModel):
    total: int


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "script"),
    [
        ("react_text", [ADD, "Final Answer: fifteen", 'Final Answer: {"total": 15}']),
        ("react_text", [ADD, "Final Answer: fifteen", '{"total": 15}']),
        (
            "json",
            [
                '{"name": "add", "arguments": {"a": 7, "b": 8}}',
                '{"answer": {"total": "x"}}',
                '{"answer": {"total": 15}}',
            ],
        ),
    ],
)
async def test_answer_in_words_is_held_to_a_type(
    run: Run, protocol: str, script: list[str]
) -> None:
    """The protocol extracts the answer, and the type is validated after that."""
    report = await run(
        ScriptedModel(*script), "What is 7 + 8?", tools=[add], protocol=protocol, output=Sum
    )

    assert (report.output, report.model_calls, report.tool_calls) == (Sum(total=15), 3, 1)


@pytest.mark.slow
@pytest.mark.accepts("R7")
async def test_a_script_that_is_over_ends_the_turn_clearly(run: Run) -> None:
    """The report has the earlier messages, and the surplus request is kept."""
    model = ScriptedModel(
        fails(errors.LLMRateLimitError("slow down", context={"retry_after_s": 0.1})), ADD
    )

    with pytest.raises(
        errors.ConfigurationError,
        match="the script has 2 replies, and the model was asked once more",
    ) as caught:
        await run(model, tools=[add], protocol="react_text")

    assert caught.value.report is not None
    assert ([len(step.results) for step in caught.value.report.steps], model.call_count) == ([1], 3)
    assert last(model.requests[2]) == UserMessage.of("Observation: 15")


@pytest.mark.slow
def test_example_runs() -> None:
    """`examples/react.py` prints the messages to the model and the result."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False, timeout=100
    )

    assert (done.returncode, done.stdout) == (
        0,
        (
            "The model was told: Observation: 30 days\nIt thought: The handbook will say. Now I"
            " know.\nIt answered: 30 days\n"
        ),
    ), done.stderr
