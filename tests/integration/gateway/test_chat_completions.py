"""Chat completions over the gateway, by OpenAI's own client."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

from perdure import Agent, OutputGuardrail, errors, tool
from perdure.testing import ByTask, ScriptedModel, call, calls, fails, says, slowly
from perdure.values.messages import UserMessage
from perdure.values.reports import StopReason, Usage

from ...conftest import Runtime
from ...support.gateway.responses import by_name, failing, key, openai_of
from ...support.gateway.served import served
from ...support.listing import many_listed

USED = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4)


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


@tool
def look_up(order: int) -> str:
    """Find an order."""
    return f"order {order} was sent"


DESK = Agent(
    name="desk",
    model="main",
    tools=[refund, look_up],
    instructions="Be kind.",
    takes_instructions=True,
)
GUARDED = Agent(
    name="guarded",
    model="main",
    middleware=[OutputGuardrail(lambda report: "SECRET" not in str(report.output))],
)


class Parcel(BaseModel):
    """What became of a parcel."""

    order: int


def said(text: str, **more: Any) -> Any:
    """A message of the user."""
    return {"role": "user", "content": text, **more}


async def chunks_of(ai: AsyncOpenAI, text: str, **more: Any) -> list[ChatCompletionChunk]:
    """The chunks of a completion about a text."""
    stream = await ai.chat.completions.create(
        **{"model": "desk", "messages": [said(text)], "stream": True, **more}
    )
    return [chunk async for chunk in stream]


def text_in(chunks: list[ChatCompletionChunk]) -> list[str]:
    """The pieces of text in chunks."""
    return [one.choices[0].delta.content or "" for one in chunks if one.choices]


@pytest.mark.accepts("H175", "H176")
async def test_completion_is_the_answer_of_a_turn(runtime: Runtime) -> None:
    """At once or as a stream; the messages before the last one are its history."""
    models = {
        "Hi": ScriptedModel(says("Hello.", usage=USED), says("Yes.")),
        "look": ScriptedModel(calls(call("look_up", order=7), text="I look."), says("Sent.")),
        "long": ScriptedModel(says("Lo", stop=StopReason.MAX_TOKENS)),
        "typed": ScriptedModel(says('{"order": 7}')),
    }
    talk: Any = [
        {"role": "system", "content": "Answer in French."},
        said("Hi"),
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "text", "text": "And?"}]},
    ]
    async with (
        runtime(DESK, model=ByTask(models)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        hello = await ai.chat.completions.create(
            model="desk",
            messages=[said("Hi")],
            metadata={"a": "b"},
            n=1,
            stop="END",
            seed=1,
            user="u",
            extra_headers=key("h175-a"),
        )
        again = await ai.chat.completions.create(
            model="desk", messages=[said("Hi")], extra_headers=key("h175-a")
        )
        followed = await chunks_of(
            ai, "Hi", stream_options={"include_usage": True}, extra_headers=key("h175-a")
        )
        after = await ai.chat.completions.create(model="desk", messages=talk)
        looked = await chunks_of(ai, "look")
        cut = await ai.chat.completions.create(model="desk", messages=[said("long")])
        parsed = await ai.chat.completions.parse(
            model="desk", messages=[said("typed")], response_format=Parcel
        )
        turn = await client.turn("@ai/h175-a").status()

    assert (hello.id, hello.model, hello.object) == ("@ai/h175-a", "desk", "chat.completion")
    assert (hello.choices[0].message.content, hello.choices[0].finish_reason) == ("Hello.", "stop")
    assert hello.usage is not None
    assert (hello.usage.prompt_tokens, hello.usage.total_tokens) == (10, 15)
    assert models["Hi"].requests[0].options.stop_sequences == ("END",)
    assert again == hello
    assert turn.labels == {"a": "b"}
    assert text_in(followed) == ["", "Hello.", ""]
    assert [one.choices[0].finish_reason for one in followed if one.choices] == [None, None, "stop"]
    assert followed[-1].usage == hello.usage
    assert after.choices[0].message.content == "Yes."
    asked = models["Hi"].requests[1]
    assert asked.system.endswith("Answer in French.")
    assert [one.role for one in asked.messages] == ["user", "assistant", "user"]
    assert isinstance(asked.messages[-1], UserMessage)
    assert "".join(text_in(looked)) == "I look.\n\nSent."
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("Lo", "length")
    assert parsed.choices[0].message.parsed == Parcel(order=7)


LABELS = {"test": "h177"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "two answers": ({"n": 2}, "n"),
    "tools": ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    "functions": ({"functions": [{"name": "f"}]}, "functions"),
    "any JSON": ({"response_format": {"type": "json_object"}}, "response_format.type"),
    "probabilities": ({"logprobs": True}, "logprobs"),
    "sound": ({"modalities": ["text", "audio"]}, "modalities"),
    "an unknown parameter": ({"best_of": 3}, "best_of"),
    "no messages": ({"messages": []}, "messages"),
    "an answer last": ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
    "a result": (
        {"messages": [{"role": "tool", "tool_call_id": "x", "content": "y"}, said("x")]},
        "messages[0]",
    ),
    "a call": (
        {
            "messages": [
                said("x"),
                {"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]},
                said("y"),
            ]
        },
        "messages[1].tool_calls",
    ),
    "a sound": (
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        "messages[0].content[0]",
    ),
}


@pytest.mark.accepts("H177", "H178")
async def test_what_is_no_completion_is_an_error(runtime: Runtime) -> None:
    """Refused parameters start nothing; a turn that fails, waits or has a refused answer is an
    error, as an answer and in a stream; and what a caller may do holds.
    """
    models = {
        "bad": ScriptedModel(*[fails(errors.LLMAuthError("no key"))] * 2),
        "pay": ScriptedModel(*[calls(call("refund", euros=4), text="I pay.")] * 2),
        "tell": ScriptedModel(*[says("SECRET")] * 2),
    }
    async with (
        runtime([DESK, GUARDED], model=ByTask(models)) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
        openai_of(http, "rita") as rita,
        openai_of(http, "nora") as nora,
        openai_of(http, "nobody") as nobody,
    ):

        def create(of: AsyncOpenAI, text: str, **more: Any) -> Awaitable[object]:
            body = {"model": "desk", "messages": [said(text)], "metadata": LABELS, **more}
            return of.post("/chat/completions", body=body, cast_to=ChatCompletionChunk)

        found = {
            name: await failing(create(ai, "x", **given)) for name, (given, _) in REFUSED.items()
        }
        bad = [await failing(create(ai, "bad")), await broken(ai, "bad")]
        pay = [await failing(create(ai, "pay")), await broken(ai, "pay")]
        tell = [
            await failing(create(ai, "tell", model="guarded")),
            await broken(ai, "tell", model="guarded"),
        ]
        may_not = [
            await failing(create(rita, "x")),
            await failing(create(nora, "x", max_tokens=5)),
            await failing(create(nobody, "x")),
        ]
        started = await many_listed(client, 3, labels=LABELS)

    assert {name: one.param for name, one in found.items()} == {
        name: param for name, (_, param) in REFUSED.items()
    }
    assert {type(one) for one in found.values()} == {openai.BadRequestError}
    assert [one.code for one in bad] == ["LLM_AUTH"] * 2
    assert [one.code for one in pay] == ["NEEDS_PERSON"] * 2
    assert [one.code for one in tell] == ["GUARDRAIL"] * 2
    assert not any("SECRET" in str(one.body) for one in tell)
    assert [type(one) for one in may_not] == [
        openai.PermissionDeniedError,
        openai.PermissionDeniedError,
        openai.AuthenticationError,
    ]
    assert len(started) == 3


async def broken(ai: AsyncOpenAI, text: str, **more: Any) -> openai.APIError:
    """The error of a stream that has begun."""
    with pytest.raises(openai.APIError) as raised:
        await chunks_of(ai, text, **more)
    assert not isinstance(raised.value, openai.APIStatusError)
    return raised.value


@pytest.mark.accepts("H172", "H176")
@pytest.mark.slow
async def test_text_of_a_completion_comes_while_it_is_generated(runtime: Runtime) -> None:
    """In pieces, before the end; text that does not count any more is an error."""
    model = ScriptedModel(slowly("One two three four.", pause=timedelta(seconds=0.6)))
    void = ScriptedModel(
        slowly(
            fails(errors.LLMUnavailableError("gone")),
            pieces=["Never ", "mind"],
            pause=timedelta(seconds=0.6),
        ),
        says("Said."),
    )
    async with (
        runtime(DESK, model=ByTask({"count": model, "fail": void})) as client,
        served(client, by_name) as http,
        openai_of(http) as ai,
    ):
        counted = await chunks_of(ai, "count")
        error = await broken(ai, "fail", extra_headers=key("h172-a"))
        report = await client.turn("@ai/h172-a").result()
        again = await chunks_of(ai, "fail", extra_headers=key("h172-a"))

    assert "".join(text_in(counted)) == "One two three four."
    assert len([one for one in text_in(counted) if one]) > 1
    assert error.code == "TEXT_VOID"
    assert report.output == "".join(text_in(again)) == "Said."
