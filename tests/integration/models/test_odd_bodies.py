"""Responses of a provider with unusual JSON: the turn continues or fails with a typed error,
promptly, and no workflow task fails.

The fixture `runtime` checks the last part. All turns of a test run concurrently.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest

from perdure import Agent, AgentReport, ToolCall
from perdure.activities.providers.lenient_json import MOST_TOKENS
from perdure.errors import LLMInvalidRequestError, PerdureError
from perdure.testing import ScriptedModel, calls, says
from perdure.values.messages import Thinking
from perdure.worker import AgentWorker

from ...conftest import Run, Runtime, first_of
from ...support.bad_input.odd_bodies import DIALECTS, ODD, UNREADABLE, Bodies, Dialect, usage
from ...support.bad_input.weigher import weigh
from ...support.loopback import OPENAI, RESPONSES, VENDORS, Vendor
from ...support.thorough import some

PROMPTLY_S = 60.0

End = AgentReport | PerdureError


async def ends(
    runtime: Runtime, vendor: Vendor, bodies: Mapping[str, bytes], status: int = 200
) -> tuple[dict[str, End], Bodies]:
    """The ends of turns whose first response has these bodies, and their requests."""
    with Bodies({task: {"raw": body, "status": status} for task, body in bodies.items()}) as stub:
        worker = AgentWorker(
            Agent(name="scales", model="vendor:m", tools=[weigh]),
            providers={"vendor": vendor.make(stub.anthropic_url, None)},
        )
        async with runtime(worker) as client:

            async def end(task: str) -> End:
                turn = await client.start("scales", task)
                async with asyncio.timeout(PROMPTLY_S):
                    try:
                        return await turn.result()
                    except PerdureError as error:
                        return error

            return dict(zip(bodies, await asyncio.gather(*map(end, bodies)), strict=True)), stub


def words(end: End) -> str:
    """The output, or the error."""
    return end.output if isinstance(end, AgentReport) else f"{type(end).__name__}: {first_of(end)}"


@pytest.mark.accepts("G3")
@pytest.mark.parametrize("vendor", some(VENDORS))
@pytest.mark.slow
async def test_odd_text_is_cleaned_or_counts_as_missing(runtime: Runtime, vendor: Vendor) -> None:
    """A lone surrogate is replaced, and NUL is kept; a value that is not text counts as missing,
    and an answer without any text is an error of the model.
    """
    dialect = DIALECTS[vendor.name]
    ended, stub = await ends(
        runtime, vendor, {name: dialect.answer(text=value) for name, value in ODD.items()}
    )

    given = {name: words(end) for name, end in ended.items()}
    assert (given.pop("surrogate"), given.pop("nul")) == ("a?b", "a\0b")
    assert set(given.values()) == {
        "LLMUnavailableError: vendor:m answered with nothing (stop reason: end)"
    }
    assert {len(stub.heard[name]) for name in given} == {2}


PLACES = ["text", "name", "id", "arguments", "thinking", "usage", "stop", "model"]


def in_place(dialect: Dialect, place: str, value: bytes) -> bytes:
    """A body with this value somewhere."""
    if place in ("name", "id", "arguments"):
        return dialect.answer(calls=dialect.call(**{place: value}))
    return dialect.answer(**{place: usage(value) if place == "usage" else value})


@pytest.mark.accepts("G3", "M9")
@pytest.mark.parametrize("vendor", some(VENDORS))
@pytest.mark.slow
async def test_body_that_cannot_be_read_fails_the_turn_after_two_tries(
    runtime: Runtime, vendor: Vendor
) -> None:
    """For an integer of 5,001 digits, nesting of 100,000 levels or invalid JSON anywhere."""
    places = [
        *((place, name) for place in PLACES for name in ("huge", "deep list")),
        *(("text", name) for name in UNREADABLE),
    ]
    bodies = {
        f"{place}: {name}": in_place(DIALECTS[vendor.name], place, UNREADABLE[name])
        for place, name in places
    }
    ended, stub = await ends(runtime, vendor, bodies)

    expected = {
        name: "is not UTF-8" if "UTF-8" in name else "is not readable JSON" for name in bodies
    }
    assert {name: words(end).partition(" (")[0] for name, end in ended.items()} == {
        name: f"LLMUnavailableError: {vendor.name}: the reply {reason}"
        for name, reason in expected.items()
    }
    assert {name: len(requests) for name, requests in stub.heard.items()} == dict.fromkeys(
        bodies, 2
    )


@pytest.mark.accepts("G3")
@pytest.mark.parametrize("vendor", some(VENDORS))
@pytest.mark.slow
async def test_oddness_beside_the_words_of_an_answer_does_not_matter(
    runtime: Runtime, vendor: Vendor
) -> None:
    """The output is the model's text, token counts are neither negative nor absurd, and other text
    is cleaned.
    """
    bodies = {
        f"{place}: {name}": in_place(DIALECTS[vendor.name], place, value)
        for place in ("thinking", "usage", "stop", "model")
        for name, value in ODD.items()
    }
    ended, _ = await ends(runtime, vendor, bodies)
    reports = {name: end for name, end in ended.items() if isinstance(end, AgentReport)}

    assert {name: words(end) for name, end in ended.items()} == dict.fromkeys(bodies, "hi")
    assert all(
        0 <= number <= MOST_TOKENS
        for report in reports.values()
        for number in report.usage.model_dump().values()
    )
    assert {name: thought(report) for name, report in reports.items() if thought(report)} == {
        "thinking: surrogate": "a?b",
        "thinking: nul": "a\0b",
    }
    assert {
        name: report.steps[0].model
        for name, report in reports.items()
        if report.steps[0].model != "m"
    } == {"model: surrogate": "a?b", "model: nul": "a\0b"}


def thought(report: AgentReport) -> str:
    """The model's reasoning in the transcript."""
    return "".join(
        part.text for part in report.steps[0].message.parts if isinstance(part, Thinking)
    )


@pytest.mark.slow
@pytest.mark.accepts("G3")
@pytest.mark.parametrize("vendor", some(VENDORS))
async def test_odd_name_of_a_call_is_an_unknown_tool_or_counts_as_missing(
    runtime: Runtime, vendor: Vendor
) -> None:
    """A name that is text becomes an error result; a call without a name is not an answer."""
    dialect = DIALECTS[vendor.name]
    ended, stub = await ends(
        runtime,
        vendor,
        {name: dialect.answer(calls=dialect.call(name=value)) for name, value in ODD.items()},
    )

    given = {name: words(end) for name, end in ended.items()}
    assert (given.pop("surrogate"), given.pop("nul")) == ("done", "done")
    assert set(given.values()) == {
        "LLMUnavailableError: m: the reply holds a tool call without a name"
    }
    told = [
        result
        for name in ("surrogate", "nul")
        for _, _, _, result in dialect.heard(stub.heard[name][1])
    ]
    assert told == [
        "There is no tool named 'a?b'. The tools are: weigh.",
        "There is no tool named 'a\\x00b'. The tools are: weigh.",
    ]


@pytest.mark.slow
@pytest.mark.accepts("G3")
@pytest.mark.parametrize("vendor", some(VENDORS))
async def test_call_with_an_odd_id_runs_and_its_result_has_the_same_id(
    runtime: Runtime, vendor: Vendor
) -> None:
    """An id that is not plain is replaced, in the next request, too."""
    dialect = DIALECTS[vendor.name]
    ended, stub = await ends(
        runtime,
        vendor,
        {name: dialect.answer(calls=dialect.call(id=value)) for name, value in ODD.items()},
    )

    assert {name: words(end) for name, end in ended.items()} == dict.fromkeys(ODD, "done")
    heard = {name: dialect.heard(requests[1]) for name, requests in stub.heard.items()}
    assert {(name, arguments, result) for ((_, name, arguments, result),) in heard.values()} == {
        ("weigh", "{}", "0 ")
    }
    assert {name: call_id for name, ((call_id, *_),) in heard.items()} == dict.fromkeys(
        ODD, "call_1_1"
    )


WRITTEN = {
    "surrogate": '"a?b"',
    "nul": '"a\\u0000b"',
    "infinite": "Infinity",
    "minus infinite": "-Infinity",
    "nan": "NaN",
    "big": str(10**30),
    "negative": "-5",
    "nested": ODD["nested"].decode().replace(":", ": "),
}
"""The odd values as the arguments have them that go into history."""

TAKEN = {
    "surrogate": "1 a?b",
    "nul": "1 a\0b",
    "infinite": "1 inf",
    "minus infinite": "1 -inf",
    "nan": "1 nan",
    "big": f"1 {10**30}",
    "negative": "1 -5",
    "nested": (
        "weigh was not called, its arguments are not valid: arguments: Invalid JSON: recursion"
        " limit exceeded"
    ),
}
"""The result of a call with them."""


@pytest.mark.slow
@pytest.mark.accepts("G3")
@pytest.mark.parametrize("vendor", some(VENDORS))
async def test_odd_arguments_reach_the_tool_or_the_model_is_told(
    runtime: Runtime, vendor: Vendor
) -> None:
    """The next request has them as they were written, and the result of the call."""
    dialect = DIALECTS[vendor.name]
    arguments = {name: b'{"grams": 1, "note": ' + value + b"}" for name, value in ODD.items()}
    ended, stub = await ends(
        runtime,
        vendor,
        {
            name: dialect.answer(calls=dialect.call(arguments=value))
            for name, value in arguments.items()
        },
    )

    assert {name: words(end) for name, end in ended.items()} == dict.fromkeys(ODD, "done")
    heard = {name: dialect.heard(requests[1]) for name, requests in stub.heard.items()}
    assert {
        name: [(asked, result.partition(" at line ")[0]) for _, _, asked, result in calls]
        for name, calls in heard.items()
    } == {name: [(f'{{"grams": 1, "note": {WRITTEN[name]}}}', TAKEN[name])] for name in ODD}


@pytest.mark.accepts("G3")
@pytest.mark.parametrize("vendor", some([OPENAI, RESPONSES]), ids=lambda vendor: vendor.name)
@pytest.mark.slow
async def test_odd_arguments_in_text_are_told_to_the_model_as_it_wrote_them(
    runtime: Runtime, vendor: Vendor
) -> None:
    """If an API has the arguments as text, a body with any content of them can be parsed."""
    written = {
        name: value.decode() for name, value in (ODD | UNREADABLE).items() if "UTF-8" not in name
    }
    texts = {name: f'{{"grams": 1, "note": {value}}}' for name, value in written.items()}
    dialect = DIALECTS[vendor.name]
    bodies = {
        name: dialect.answer(calls=dialect.call(arguments=json.dumps(text).encode()))
        for name, text in texts.items()
    }
    ended, stub = await ends(runtime, vendor, bodies)

    assert {name: words(end) for name, end in ended.items()} == dict.fromkeys(texts, "done")
    refused = dict.fromkeys(texts, "weigh was not called, its arguments are not valid: arguments")
    taken = {name: result for name, result in TAKEN.items() if name not in ("surrogate", "nested")}
    heard = {name: dialect.heard(requests[1]) for name, requests in stub.heard.items()}
    assert {name: text for name, ((_, _, text, _),) in heard.items()} == texts
    assert {
        name: result.partition(": Invalid JSON")[0] for name, ((*_, result),) in heard.items()
    } == refused | taken


@pytest.mark.accepts("G3")
@pytest.mark.parametrize("vendor", some(VENDORS))
@pytest.mark.slow
async def test_odd_words_of_an_error_leave_it_typed(runtime: Runtime, vendor: Vendor) -> None:
    """The class follows from the status, and the text can be stored, whatever is in the body; the
    request is not repeated.
    """
    bodies = {
        name: b'{"error": {"message": %b, "type": %b, "code": %b}}' % (value, value, value)
        for name, value in (ODD | UNREADABLE).items()
    }
    ended, stub = await ends(runtime, vendor, bodies, status=400)

    assert {name: type(end) for name, end in ended.items()} == dict.fromkeys(
        bodies, LLMInvalidRequestError
    )
    assert (words(ended["surrogate"]), words(ended["nan"])) == (
        "LLMInvalidRequestError: m: a?b (status 400)",
        "LLMInvalidRequestError: m: NaN (status 400)",
    )
    assert all(words(end).encode() for end in ended.values())
    assert {name: len(requests) for name, requests in stub.heard.items()} == dict.fromkeys(
        bodies, 1
    )


@pytest.mark.slow
@pytest.mark.accepts("G3")
async def test_arguments_nested_about_as_deep_as_python_goes_are_told_to_be_too_deep(
    run: Run,
) -> None:
    """Parsing and printing them reach the recursion limit at different depths, and the turn
    continues.
    """
    depths = range(900, 990)
    asked = [
        ToolCall(
            id=f"{depth}", name="weigh", arguments='{"note":' + "[" * depth + "]" * depth + "}"
        )
        for depth in depths
    ]
    report = await run(
        ScriptedModel(calls(*asked[:45]), calls(*asked[45:]), says("done")), tools=[weigh]
    )

    assert report.output == "done"
    assert {
        result.content.partition(" at line ")[0] for step in report.steps for result in step.results
    } == {TAKEN["nested"]}
