"""The results of tool calls: values, errors, wrong arguments, odd ids.

A tool's error is data for the model.
"""

import asyncio
import sys
from collections.abc import Callable
from datetime import timedelta

import pytest

from perdure import (
    AssistantMessage,
    Toolbox,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    errors,
    limits,
    tool,
)
from perdure.agents.tools import Tool
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import Run
from ...support.tooling import add, results_of


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Stop(BaseException):
    """Neither an Exception nor a SystemExit, like those of test runners and schedulers."""


def raises(error: BaseException) -> Tool:
    @tool(name="break")
    def broken() -> None:
        raise error

    return broken


def raises_later(error: BaseException) -> Tool:
    @tool(name="break", timeout=timedelta(seconds=5))
    async def broken() -> None:
        raise error

    return broken


@pytest.mark.accepts("T1")
@pytest.mark.parametrize("make", [raises, raises_later], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("error", "content"),
    [
        (ValueError("the file is empty"), "break failed: ValueError: the file is empty"),
        (KeyError(), "break failed: KeyError: no message"),
        (errors.LLMAuthError("no key"), "break failed: LLMAuthError: no key"),
        (ValueError("half \ud800 a pair"), "break failed: ValueError: half ? a pair"),
    ],
    ids=["message", "no message", "ours", "surrogate"],
)
@pytest.mark.table(1)
async def test_tool_that_raises_is_an_error_result(
    run: Run, make: Callable[[BaseException], Tool], error: BaseException, content: str
) -> None:
    """With the type and message of the exception, and the loop continues; one of our errors raised
    by a tool ends nothing either.
    """
    results = await results_of(run, call("break"), tools=[make(error)])

    assert results == [(content, True)]


@pytest.mark.accepts("T1", "T2")
@pytest.mark.parametrize("make", [raises, raises_later], ids=["sync", "async"])
@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        Stop("halt"),
        GeneratorExit(),
        asyncio.CancelledError(),
        UnprintableError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.table(1)
async def test_tool_that_raises_what_nobody_catches_is_an_error_result(
    run: Run, make: Callable[[BaseException], Tool], error: BaseException
) -> None:
    """The worker lives, the next call works, and the result says that the tool ran and failed,
    which differs from "could not be run".
    """
    results = await results_of(run, call("break"), call("add", a=2, b=3), tools=[make(error), add])

    assert results[0][1]
    assert results[0][0].startswith(f"break failed: {type(error).__name__}: ")
    assert results[1] == ("5", False)


@pytest.mark.accepts("T2")
async def test_sync_tool_that_calls_exit_is_an_error_result(run: Run) -> None:
    """`sys.exit` with a message, as in command-line programs."""

    @tool
    def leave() -> None:
        sys.exit("usage: leave NAME")

    results = await results_of(run, call("leave"), call("add", a=2, b=3), tools=[leave, add])

    assert results == [("leave failed: SystemExit: usage: leave NAME", True), ("5", False)]


@pytest.mark.slow
@pytest.mark.accepts("T2")
async def test_exit_in_a_task_of_an_async_tool_does_not_end_the_loop_of_all_tools(run: Run) -> None:
    """`gather` and `wait_for` create tasks, and a `SystemExit` in a task passes through asyncio's
    loop: other tools must not hang after it.
    """

    async def command_line() -> None:
        sys.exit(3)

    @tool(timeout=timedelta(seconds=2))
    async def leave() -> None:
        await asyncio.gather(command_line())

    @tool(timeout=timedelta(seconds=2))
    async def stay() -> str:
        return "here"

    async with asyncio.timeout(60):
        results = await results_of(run, call("leave"), call("stay"), tools=[leave, stay])

    assert results == [("leave failed: SystemExit: 3", True), ("here", False)]


@pytest.mark.accepts("T8")
async def test_results_are_text_json_or_what_str_gives(run: Run) -> None:
    """For a value that cannot be encoded, the result says that the tool ran: after a failure the
    model would call it again.
    """
    values: dict[str, object] = {
        "text": "plain",
        "number": 1.5,
        "nothing": None,
        "nested": {"rows": [{"id": 1, "name": "é"}]},
        "opaque": object(),
        "bytes": b"\xff",
    }

    @tool
    def fetch(which: str) -> object:
        return values[which]

    results = await results_of(
        run, *(call("fetch", which=which) for which in values), tools=[fetch]
    )

    assert results[:4] == [
        ("plain", False),
        ("1.5", False),
        ("null", False),
        ('{"rows":[{"id":1,"name":"é"}]}', False),
    ]
    note = "\n[The tool ran. This is its result as str() gives it: "
    assert [(content.partition(note)[0], is_error) for content, is_error in results[4:]] == [
        (str(values["opaque"]), False),
        ("b'\\xff'", False),
    ]


@pytest.mark.accepts("T3")
async def test_unknown_tool_is_an_error_result_that_names_it_and_those_there_are(run: Run) -> None:
    """The model may recover; no activity is scheduled for it."""
    results = await results_of(
        run,
        call("subtract", a=1),
        call("add", a=2, b=3),
        tools=[add, Toolbox("more", [_named("neg")]).tools[0]],
    )

    assert results == [
        ("There is no tool named 'subtract'. The tools are: add, neg.", True),
        ("5", False),
    ]


@pytest.mark.accepts("T3")
async def test_call_to_an_agent_without_tools_is_an_error_result(run: Run) -> None:
    """The list of tools is empty."""
    assert await results_of(run, call("add", a=2), tools=[]) == [
        ("There is no tool named 'add'. The tools are: none.", True)
    ]


@pytest.mark.accepts("T7")
async def test_arguments_that_do_not_fit_are_an_error_result_and_call_nothing(run: Run) -> None:
    """Not JSON, wrong types, missing, unknown, absurd: the result says what is wrong, and a valid
    call next to them runs.
    """
    called: list[int] = []

    @tool
    def count(n: int) -> int:
        called.append(n)
        return n

    texts = [
        "{",
        "",
        "[]",
        '{"n": "many"}',
        '{"n": 1, "m": 2}',
        '{"n": ' + "9" * 5000 + "}",
        '{"n": ' + "[" * 10_000,
        '{"n": 7}',
    ]
    results = await results_of(
        run, *(ToolCall(id="", name="count", arguments=text) for text in texts), tools=[count]
    )

    wrong = "count was not called, its arguments are not valid: "
    assert [(content.partition(" at line ")[0], is_error) for content, is_error in results] == [
        (f"{wrong}arguments: Invalid JSON: EOF while parsing an object", True),
        (f"{wrong}n: Field required", True),
        (f"{wrong}arguments: Input should be an object", True),
        (f"{wrong}n: Input should be a valid integer, unable to parse string as an integer", True),
        (f"{wrong}m: Extra inputs are not permitted", True),
        (f"{wrong}arguments: Invalid JSON: number out of range", True),
        (f"{wrong}arguments: Invalid JSON: recursion limit exceeded", True),
        ("7", False),
    ]
    assert called == [7]


@pytest.mark.slow
@pytest.mark.accepts("T9")
async def test_calls_without_an_id_or_with_one_that_is_taken_get_their_own(run: Run) -> None:
    """Ids are unique in the whole transcript, including an earlier turn's; each result has the id
    of its call.
    """
    earlier = (
        UserMessage.of("1 + 1?"),
        AssistantMessage(parts=(ToolCall(id="c1", name="add", arguments='{"a": 1, "b": 1}'),)),
        ToolMessage(results=(ToolResult(call_id="c1", name="add", content="2"),)),
    )
    asked = [
        ToolCall(id=call_id, name="add", arguments=f'{{"a": {n}, "b": 0}}')
        for n, call_id in enumerate(["", "c1", "c2", "c2", "call_1_1"])
    ]
    model = ScriptedModel(
        calls(*asked),
        calls(call("add", call_id="c2", a=5, b=0), call("add", a=6, b=0)),
        says("done"),
    )

    report = await run(model, tools=[add], start={"history": earlier})

    ids = [[part.id for part in step.message.calls] for step in report.steps]
    assert ids == [
        ["call_1_1", "call_1_2", "c2", "call_1_4", "call_1_5"],
        ["call_2_1", "call_2_2"],
        [],
    ]
    assert [
        [(result.call_id, result.content) for result in step.results] for step in report.steps
    ] == [
        [("call_1_1", "0"), ("call_1_2", "1"), ("c2", "2"), ("call_1_4", "3"), ("call_1_5", "4")],
        [("call_2_1", "5"), ("call_2_2", "6")],
        [],
    ]
    assert model.requests[2].messages == report.messages[:-1]


@pytest.mark.slow
@pytest.mark.accepts("T10")
async def test_tools_are_offered_in_the_order_given(run: Run) -> None:
    """In every request: the agent's own, then toolbox by toolbox."""
    model = ScriptedModel(calls(call("m")), says("done"))
    boxes = [Toolbox("two", [_named("z"), _named("a")]), Toolbox("one", [_named("m")])]

    await run(model, tools=[_named("y"), add], toolboxes=boxes)

    assert [[item.name for item in request.tools] for request in model.requests] == [
        ["y", "add", "z", "a", "m"]
    ] * 2


@pytest.mark.slow
@pytest.mark.accepts("T13", "Y9")
async def test_long_result_is_clipped_with_a_note_of_both_sizes(run: Run) -> None:
    """A result at the limit in bytes is complete; a longer one is cut so that it fits together with
    the note.
    """

    @tool
    def fetch(letter: str, times: int) -> str:
        return letter * times

    limit = limits.TOOL_RESULT_BYTES
    asked = [
        call("fetch", letter="x", times=limit),
        call("fetch", letter="x", times=limit + 1),
        call("fetch", letter="é", times=1_500_000),
    ]
    whole, clipped, multibyte, control = await results_of(
        run, *asked, call("fetch", letter="\1", times=limit), tools=[fetch]
    )

    assert whole == ("x" * limit, False)
    assert clipped == ("x" * 65_504 + "\n[clipped: 65504 of 65537 bytes]", False)
    assert multibyte == ("é" * 32_751 + "\n[clipped: 65502 of 3000000 bytes]", False)
    # each is six bytes of JSON
    assert control == ("\1" * 21_834 + "\n[clipped: 21834 of 65536 bytes]", False)


@pytest.mark.slow
@pytest.mark.accepts("T13", "Y9")
async def test_long_error_is_clipped_and_stays_an_error(run: Run) -> None:
    """An exception with a message of a megabyte is cut to the limit, and its beginning is kept."""
    [(content, is_error)] = await results_of(
        run, call("break"), tools=[raises(ValueError("boom " * 600_000))]
    )

    assert is_error
    assert content.startswith("break failed: ValueError: boom boom")
    assert content.endswith(" of 3000026 bytes]")
    assert len(content) <= limits.TOOL_RESULT_BYTES


@pytest.mark.slow
@pytest.mark.accepts("T3", "T13")
async def test_result_for_an_unknown_tool_is_clipped_too(run: Run) -> None:
    """A model that writes its answer into a tool's name does not get all of it back."""
    [(content, is_error)] = await results_of(run, call("x" * 500_000), tools=[add])

    assert is_error
    assert len(content.encode()) <= limits.TOOL_RESULT_BYTES


def _named(name: str) -> Tool:
    def nothing() -> None: ...

    return tool(name=name)(nothing)
