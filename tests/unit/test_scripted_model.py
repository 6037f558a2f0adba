"""`ScriptedModel`: a provider with scripted replies."""

import time
from datetime import timedelta

import pytest

from perdure import AssistantMessage, Text, Thinking, ToolCall, Usage, UserMessage, errors
from perdure.activities.provider import ModelRequest
from perdure.testing import FunctionModel, Reply, ScriptedModel, call, calls, fails, says, slowly
from perdure.values.answers import ModelAnswer
from perdure.values.reports import StopReason


def request(text: str) -> ModelRequest:
    return ModelRequest(model="m", messages=(UserMessage.of(text),))


@pytest.mark.accepts("R7")
async def test_replies_come_in_order_and_requests_are_kept() -> None:
    """Text, calls, and plain text without `says`."""
    model = ScriptedModel(calls(call("add", call_id="c1", a=1), text="wait"), says("two"), "three")

    answers = [await model.complete(request(text)) for text in ("a", "b", "c")]

    asked = AssistantMessage(
        parts=(Text(text="wait"), ToolCall(id="c1", name="add", arguments='{"a": 1}'))
    )
    assert answers == [
        ModelAnswer(message=asked, stop=StopReason.TOOL_CALLS, model="scripted"),
        ModelAnswer(
            message=AssistantMessage(parts=(Text(text="two"),)),
            stop=StopReason.END,
            model="scripted",
        ),
        ModelAnswer(
            message=AssistantMessage(parts=(Text(text="three"),)),
            stop=StopReason.END,
            model="scripted",
        ),
    ]
    assert model.requests == [request("a"), request("b"), request("c")]
    assert model.call_count == 3


@pytest.mark.accepts("R7")
async def test_thinking_stop_reason_and_usage_are_scripted() -> None:
    """Every field of an answer."""
    used = Usage(input_tokens=10, output_tokens=5)
    model = ScriptedModel(says("cut", thinking="hm", stop=StopReason.MAX_TOKENS, usage=used))

    answer = await model.complete(request("a"))

    message = AssistantMessage(parts=(Thinking(text="hm"), Text(text="cut")))
    assert answer == ModelAnswer(
        message=message, stop=StopReason.MAX_TOKENS, usage=used, model="scripted"
    )


@pytest.mark.accepts("R7")
async def test_request_after_the_last_reply_is_a_clear_error() -> None:
    """It has the number of replies; the request is kept and counted."""
    model = ScriptedModel("only")
    await model.complete(request("a"))

    with pytest.raises(
        errors.ConfigurationError,
        match="the script has 1 replies, and the model was asked once more",
    ):
        await model.complete(request("b"))

    assert (model.call_count, model.requests[-1]) == (2, request("b"))


@pytest.mark.accepts("R7")
async def test_scripted_error_is_raised_and_the_script_goes_on() -> None:
    """The same object, at its position."""
    error = errors.LLMRateLimitError("slow down", context={"retry_after_s": 2})
    model = ScriptedModel(fails(error), "after all")

    with pytest.raises(errors.LLMRateLimitError) as caught:
        await model.complete(request("a"))

    assert caught.value is error
    assert (await model.complete(request("b"))).message.text == "after all"


@pytest.mark.accepts("R7")
async def test_unused_replies_are_reported() -> None:
    """With their number; nothing is left at the end."""
    model = ScriptedModel("one", "two", "three")
    await model.complete(request("a"))

    with pytest.raises(AssertionError, match="2 of 3 scripted replies were not used"):
        model.assert_finished()

    await model.complete(request("b"))
    await model.complete(request("c"))
    model.assert_finished()


async def test_delay_of_a_reply_is_waited_for() -> None:
    """For an answer, and for an error."""
    pause = timedelta(milliseconds=50)
    model = ScriptedModel(says("slow", delay=pause), fails(errors.LLMTimeoutError(), delay=pause))
    began = time.monotonic()

    await model.complete(request("a"))
    with pytest.raises(errors.LLMTimeoutError):
        await model.complete(request("b"))

    assert time.monotonic() - began >= 0.1


def test_call_without_an_id_leaves_it_to_the_turn() -> None:
    """Like models that give none; an argument may be called `name`."""
    assert call("greet", name="Ann") == ToolCall(id="", name="greet", arguments='{"name": "Ann"}')


async def heard(model: ScriptedModel, text: str = "a") -> list[str]:
    """The stream of the next reply."""
    pieces = list[str]()
    await model.stream(request(text), pieces.append)
    return pieces


@pytest.mark.accepts("R7")
async def test_reply_is_said_in_pieces_to_who_listens() -> None:
    """Its text, or the scripted pieces, with a pause after each; the answer is the same without a
    listener.
    """
    pause = timedelta(milliseconds=20)
    script = [
        slowly("one  two\nthree ", pause=pause),
        slowly(calls(call("add"), text="wait"), pause=pause),
        slowly("four", pause=pause, pieces=["fo", "ur"]),
    ]
    model, other = ScriptedModel(*script, "five", calls(call("add"))), ScriptedModel(*script)
    began = time.monotonic()

    assert [await heard(model) for _ in range(5)] == [
        ["one", "  two", "\nthree "],
        ["wait"],
        ["fo", "ur"],
        ["five"],
        [],
    ]
    assert time.monotonic() - began >= 6 * 0.02
    assert (await other.complete(request("a"))).message.text == "one  two\nthree "
    assert (len(model.streamed), len(model.requests), other.streamed) == (5, 5, [])


async def test_scripted_error_comes_after_what_was_said() -> None:
    """An interrupted stream."""
    model, pieces = (
        ScriptedModel(
            slowly(
                fails(errors.LLMUnavailableError("cut")), pieces=["I th", "ink"], pause=timedelta()
            )
        ),
        list[str](),
    )

    with pytest.raises(errors.LLMUnavailableError):
        await model.stream(request("a"), pieces.append)

    assert pieces == ["I th", "ink"]


async def test_function_plays_a_model() -> None:
    """It gets the request, for any number of calls: text, a reply, or an error; live, in the pieces
    of the reply.
    """

    def plays(request: ModelRequest) -> Reply | str:
        match request.messages[0]:
            case UserMessage(text="a"):
                return "one"
            case UserMessage(text="b"):
                return slowly("two three", pause=timedelta())
            case _:
                return fails(errors.LLMRateLimitError("slow down"))

    model, heard = FunctionModel(plays), list[str]()

    answers = [await model.complete(request(text)) for text in ("a", "b", "a")]
    live = await model.stream(request("b"), heard.append)
    with pytest.raises(errors.LLMRateLimitError, match="slow down"):
        await model.complete(request("c"))

    assert [answer.message.text for answer in answers] == ["one", "two three", "one"]
    assert (live, heard) == (answers[1], ["two", " three"])
