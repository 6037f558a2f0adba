"""For any input, a turn continues or fails with a typed error, promptly, and no workflow task
fails.

The fixture `runtime` checks the last part for every turn that the client has seen.
"""

import asyncio
import json
from typing import Any

import pytest
from pydantic import BaseModel, field_validator
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from perdure import (
    Agent,
    AgentReport,
    AssistantMessage,
    Budget,
    Outcome,
    Registry,
    Text,
    ToolCall,
    TurnInfo,
    Usage,
    UserMessage,
    errors,
    limits,
    tool,
)
from perdure.activities.provider import ModelRequest
from perdure.clients import Turn
from perdure.errors import PerdureError
from perdure.temporal.names import CALL_MODEL
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.values.answers import ModelAnswer
from perdure.worker import AgentWorker

from ...conftest import RecordingClient, Run, Runtime, eventually, first_of
from ...support.bad_input.odd_values import BIG, plain, raw, started

PROMPTLY_S = 30.0
CLERK = Agent(name="clerk", model="scripted:clerk", instructions="Answer.")


async def failure(turn: Turn) -> PerdureError:
    """The error that a turn ends with."""
    async with asyncio.timeout(PROMPTLY_S):
        with pytest.raises(PerdureError) as caught:
            await turn.result()
    return caught.value


async def end(turn: Turn) -> AgentReport | PerdureError:
    """How a turn ends."""
    async with asyncio.timeout(PROMPTLY_S):
        try:
            return await turn.result()
        except PerdureError as error:
            return error


async def events(client: RecordingClient, turn: Turn) -> list[str]:
    history = await client.history(turn)
    return [
        EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in history.events
    ]


# Starts without our client: the Temporal UI, the CLI, other languages.


@pytest.mark.accepts("U10")
@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ([], "expected JSON for TurnRequest, got nothing"),
        ([None], "expected JSON for TurnRequest, got binary/null"),
        ([[1, 2]], "not a valid TurnRequest: input: Input should be an object"),
        (["do it"], "not a valid TurnRequest: input: Input should be an object"),
        ([5], "not a valid TurnRequest: input: Input should be an object"),
        ([{}], "not a valid TurnRequest: agent: Field required; task: Field required"),
        ([{"task": "go"}], "not a valid TurnRequest: agent: Field required"),
        ([{"agent": "clerk"}], "not a valid TurnRequest: task: Field required"),
        (
            [{"agent": 5, "task": "go"}],
            "not a valid TurnRequest: agent: Input should be a valid string",
        ),
        (
            [{"agent": None, "task": "go"}],
            "not a valid TurnRequest: agent: Input should be a valid string",
        ),
        ([{"agent": "clerk", "task": 5}], "not a valid TurnRequest: task"),
        ([{"agent": "clerk", "task": None}], "not a valid TurnRequest: task"),
        ([{"agent": "clerk", "task": {"content": 5}}], "not a valid TurnRequest: task.content"),
        (
            [{"agent": "clerk", "task": {"content": [{"type": "song"}]}}],
            "not a valid TurnRequest: task.content",
        ),
        (
            [{"agent": "clerk", "task": "go", "labels": ["a"]}],
            "not a valid TurnRequest: labels: Input should be an object",
        ),
        (
            [{"agent": "clerk", "task": "go", "labels": {"a": 1}}],
            "not a valid TurnRequest: labels.a: Input should be a valid string",
        ),
        ([{"agent": "clerk", "task": "go", "context": ["a"]}], "not a valid TurnRequest: context"),
        (
            [{"agent": "clerk", "task": "go", "context": {"a": {"b": 1}}}],
            "not a valid TurnRequest: context.blocks.a",
        ),
        ([{"agent": "clerk", "task": "go", "history": "hi"}], "not a valid TurnRequest: history"),
        (
            [{"agent": "clerk", "task": "go", "history": [{"role": "system"}]}],
            "not a valid TurnRequest: history.0",
        ),
        ([raw(b"{")], "not a valid TurnRequest: input: Invalid JSON"),
        ([raw(b"")], "not a valid TurnRequest: input: Invalid JSON"),
        (
            [raw(b'{"agent": "clerk", "task": "go"} {}')],
            "not a valid TurnRequest: input: Invalid JSON",
        ),
        ([raw(b'{"agent": "clerk", "task": "\xff"}')], "not a valid TurnRequest: input"),
        ([raw(b'{"agent": "clerk", "task": "\\ud800"}')], "not a valid TurnRequest: input"),
        (
            [raw(b'{"agent": ' + b"9" * 5000 + b', "task": "go"}')],
            "not a valid TurnRequest: input: Invalid JSON: number out of range",
        ),
        (
            [raw(b'{"agent": ' + b"[" * 100_000)],
            "not a valid TurnRequest: input: Invalid JSON: recursion limit exceeded",
        ),
        ([b"\x00\x01"], "expected JSON for TurnRequest, got binary/plain"),
        ([raw(b"{}", b"json/protobuf")], "expected JSON for TurnRequest, got json/protobuf"),
        (
            [raw(b'{"agent": "clerk", "task": "go"}', None)],
            "expected JSON for TurnRequest, got nothing",
        ),
        ([{}, {}], "a turn takes one input, 2 were given"),
        ([{"agent": "clerk", "task": "go"}] * 3, "a turn takes one input, 3 were given"),
    ],
    ids=lambda value: None if isinstance(value, str) else repr(value)[:60],
)
@pytest.mark.table(2)
async def test_start_that_is_not_valid_fails_typed_in_the_first_workflow_task(
    runtime: Runtime, args: list[object], reason: str
) -> None:
    """The message says what is wrong; no activity is scheduled, and nothing is retried."""
    model = ScriptedModel()

    async with runtime(CLERK, model=model) as client:
        turn = await started(client, args)
        error = await failure(turn)
        seen = await events(client, turn)

    assert type(error) is errors.InvalidRequestError
    assert error.message.startswith(reason)
    assert error.report is not None
    assert (error.report.outcome, error.report.steps, model.call_count) == (Outcome.FAILED, (), 0)
    assert [name for name in seen if "TASK" in name] == [
        "WORKFLOW_TASK_SCHEDULED",
        "WORKFLOW_TASK_STARTED",
        "WORKFLOW_TASK_COMPLETED",
    ]


async def test_start_in_an_encoding_that_no_converter_has_fails_and_cannot_be_read(
    runtime: Runtime,
) -> None:
    """It may be encrypted: a reader without the codec says so instead of guessing."""
    async with runtime(CLERK, model=ScriptedModel()) as client:
        turn = await started(client, [raw(b"{}", b"\xff\xfe")])
        error = await failure(turn)
        with pytest.raises(WorkflowFailureError) as failed:
            await client.temporal.get_workflow_handle(turn.id).result()
        client.recorded.clear()  # which are checked by reading them

    assert type(error) is errors.PayloadDecodeError
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == "INVALID_REQUEST"


@pytest.mark.accepts("U10", "U6")
async def test_other_clients_see_the_code_as_the_type_of_the_failure(runtime: Runtime) -> None:
    """A caller in another language gets the code and the summary, and Temporal does not retry."""
    async with runtime(CLERK, model=ScriptedModel()) as client:
        turn = await started(client, [{"agent": "clerk"}])
        with pytest.raises(WorkflowFailureError) as caught:
            await client.temporal.get_workflow_handle(turn.id).result()

    cause = caught.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.non_retryable) == ("INVALID_REQUEST", True)
    assert cause.details[0]["outcome"] == "failed"
    assert cause.details[0]["error"]["code"] == "INVALID_REQUEST"


@pytest.mark.accepts("U10")
async def test_field_that_a_newer_client_sends_is_ignored(runtime: Runtime) -> None:
    """At the top level and inside: old workers run what new callers start."""
    request = {
        "agent": "clerk",
        "task": {"content": "go", "mood": "good"},
        "speed": 9,
        "context": {"memory": "none"},
        "labels": {"a": "b"},
    }

    async with runtime(CLERK, model=ScriptedModel(says("done"))) as client:
        report = await (await started(client, [request])).result()

    assert report.output == "done"
    assert isinstance(report.messages[0], UserMessage)
    assert report.messages[0].text == "<memory>\nnone\n</memory>\n\ngo"


@pytest.mark.accepts("U10", "U6")
@pytest.mark.parametrize(
    "name",
    ["", "nobody", "clerk\0", "x" * 100_000, "x" * 1_400_000, "ü" * 900_000],
    ids=["empty", "unknown", "nul", "long", "longer", "longest"],
)
@pytest.mark.slow
async def test_agent_that_nobody_knows_fails_the_turn_whatever_its_name_is(
    runtime: Runtime, name: str
) -> None:
    """The name is quoted in the error, the summary and the memo, which have their own limits."""
    async with runtime(CLERK, model=ScriptedModel()) as client:
        error = await failure(await started(client, [plain({"agent": name, "task": "go"})]))

    assert isinstance(
        error, errors.UnknownAgentError | errors.InvalidRequestError | errors.TooLargeError
    )


@pytest.mark.accepts("U10", "Y9")
@pytest.mark.parametrize(
    "more",
    [
        {"labels": {"a": "x" * 1_700_000}},
        {"labels": {f"label-{n}": "x" * 100 for n in range(10_000)}},
        {"history": [{"role": "user", "parts": [{"type": "text", "text": "x" * 1_700_000}]}]},
        {"task": {"content": "go", "type": "x" * 1_700_000}},
    ],
    ids=["one label", "many labels", "history", "task type"],
)
@pytest.mark.slow
async def test_start_that_the_server_takes_is_never_too_large_for_the_turn_to_end(
    runtime: Runtime, more: dict[str, Any]
) -> None:
    """Near the server's limit of 2 MB, the turn answers or fails with a typed error."""

    @tool
    def look() -> str:
        return "seen"

    agent = Agent(name="clerk", model="scripted:x", tools=[look])
    async with runtime(agent, model=ScriptedModel(calls(call("look")), says("done"))) as client:
        ended = await end(await started(client, [plain({"agent": "clerk", "task": "go", **more})]))

    assert isinstance(ended, AgentReport | errors.TooLargeError)


# Starts with our client.


@pytest.mark.accepts("Y9")
@pytest.mark.parametrize("letter", ["x", "ü", "\n"], ids=["ascii", "two bytes", "escaped"])
async def test_task_over_a_mebibyte_is_refused_at_the_client(runtime: Runtime, letter: str) -> None:
    """The limit counts bytes of UTF-8; nothing is started."""
    async with runtime(CLERK, model=ScriptedModel()) as client:
        with pytest.raises(
            errors.TooLargeError, match="give the agent a tool that reads the rest"
        ) as caught:
            await client.start(
                CLERK, letter * (1_100_000 // len(letter.encode())), id=f"large-{ord(letter)}"
            )
        with pytest.raises(errors.TurnNotFoundError):
            await client.turn(f"large-{ord(letter)}").status()

    size = caught.value.context["bytes"]
    assert isinstance(size, int)
    assert size >= 1_100_000
    assert caught.value.context["limit"] == limits.TASK_BYTES


@pytest.mark.slow
@pytest.mark.accepts("Y9", "U10")
@pytest.mark.parametrize(
    "request_",
    [
        {"task": "x" * 1_100_000},
        {"task": "ü" * 550_000},
        {"task": "go", "context": {"a": "x" * 1_100_000}},
    ],
    ids=["task", "two bytes", "context"],
)
async def test_task_over_a_mebibyte_fails_a_turn_that_was_started_past_the_client(
    runtime: Runtime, request_: dict[str, Any]
) -> None:
    """The same error, raised inside the workflow."""
    model = ScriptedModel(says("never"))

    async with runtime(CLERK, model=model) as client:
        error = await failure(await started(client, [plain({"agent": "clerk", **request_})]))

    assert type(error) is errors.TooLargeError
    assert error.context["limit"] == limits.TASK_BYTES
    assert model.call_count == 0


@pytest.mark.accepts("U6")
@pytest.mark.parametrize(
    "name", ["", "x" * 2000, "half \ud800"], ids=["empty", "long", "surrogate"]
)
async def test_agent_name_that_cannot_be_is_refused_at_the_client(
    runtime: Runtime, name: str
) -> None:
    """It would be part of the turn's id; the server is not the cause."""
    async with runtime(CLERK, model=ScriptedModel()) as client:
        with pytest.raises((errors.InvalidRequestError, errors.UnknownAgentError)):
            await client.run(name, "go")


# Values that are too large, inside a turn.


@pytest.mark.accepts("Y9")
async def test_instructions_of_three_megabytes_fail_the_turn_before_the_model_is_asked(
    run: Run,
) -> None:
    """The definition of the agent would not fit into history."""
    model = ScriptedModel(says("never"))

    with pytest.raises(errors.TooLargeError) as caught:
        await run(model, instructions="x" * BIG)

    assert caught.value.context == {
        "bytes": caught.value.context["bytes"],
        "limit": limits.PAYLOAD_BYTES,
    }
    assert caught.value.report is not None
    assert (caught.value.report.outcome, model.call_count) == (Outcome.FAILED, 0)


@pytest.mark.table(1)
@pytest.mark.accepts("Y9")
@pytest.mark.parametrize(
    "reply",
    [
        says("x" * BIG),
        says("ok", thinking="x" * BIG),
        calls(call("look", word="x" * BIG)),
        calls(ToolCall(id="c", name="x" * BIG)),
    ],
    ids=["text", "thinking", "arguments", "name"],
)
async def test_answer_of_three_megabytes_fails_the_turn_typed(run: Run, reply: Any) -> None:
    """The answer does not fit into history: there is one request, and the error has the size."""
    model = ScriptedModel(reply, says("never"))

    with pytest.raises(errors.TooLargeError) as caught:
        await run(model)

    size = caught.value.context["bytes"]
    assert isinstance(size, int)
    assert size >= BIG
    assert caught.value.report is not None
    assert (caught.value.report.messages, model.call_count) == ((UserMessage.of("2 + 3?"),), 1)


@pytest.mark.slow
@pytest.mark.accepts("C9", "C10")
async def test_large_answer_is_billed_and_not_checked(runtime: Runtime) -> None:
    """Its tokens are counted although none of it is kept or validated; its activity has time for a
    factory and for validators.
    """
    checked: list[str] = []

    class Words(BaseModel):
        words: str

        @field_validator("words")
        @classmethod
        def _note(cls, value: str) -> str:
            checked.append(value)
            return value

    reply = says(json.dumps({"words": "x" * BIG}), usage=Usage(input_tokens=7, output_tokens=5))
    agent = Agent(name="clerk", model="scripted:clerk", output=Words)

    async with runtime(agent, model=ScriptedModel(reply)) as client:
        turn: Any = await client.start(agent, "go", budget=Budget(tokens=100_000))
        with pytest.raises(
            errors.TooLargeError, match="the answer of scripted:clerk is 3000013 bytes"
        ) as caught:
            await turn.result()
        history = await client.history(turn)

    assert caught.value.report is not None
    assert (caught.value.report.spent.tokens, checked) == (12, [])
    scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
    (timeout,) = [
        one.start_to_close_timeout.ToTimedelta()
        for one in scheduled
        if one.activity_type.name == CALL_MODEL
    ]
    assert timeout > limits.MODEL_CALL + 2 * limits.USER_CODE


@pytest.mark.slow
@pytest.mark.accepts("Y9")
async def test_answer_that_just_fits_is_the_output_in_full(run: Run) -> None:
    """The summary in the workflow's result is bounded; the report is read from history."""
    report = await run(ScriptedModel(says("x" * 1_400_000)))

    assert report.output == "x" * 1_400_000


@pytest.mark.slow
@pytest.mark.accepts("Y9")
async def test_arguments_that_just_fit_into_the_answer_run_or_fail_typed(runtime: Runtime) -> None:
    """The input of the tool's activity contains them again, with other data."""

    @tool
    def measure(word: str) -> int:
        return len(word)

    agent = Agent(name="clerk", model="scripted:x", tools=[measure])
    model = ScriptedModel(
        calls(call("measure", word="x" * (limits.PAYLOAD_BYTES - 400))), says("done")
    )

    async with runtime(agent, model=model) as client:
        ended = await end(await client.start(agent, "go", labels={"a": "b" * 1000}))

    report = ended if isinstance(ended, AgentReport) else ended.report
    assert report is not None
    assert len(report.messages) >= 2
    assert isinstance(ended, AgentReport | errors.TooLargeError)


@pytest.mark.accepts("Y9", "U6")
@pytest.mark.parametrize(
    "error",
    [
        errors.LLMInvalidRequestError("x" * BIG),
        errors.LLMInvalidRequestError("no", context={"body": "x" * BIG}),
        errors.LLMInvalidRequestError("half \ud800"),
        errors.LLMInvalidRequestError("no", context={"body": "\ud800"}),
    ],
    ids=["long message", "long context", "surrogate", "surrogate in context"],
)
@pytest.mark.table(1)
async def test_error_of_a_model_reaches_the_caller_as_its_class_whatever_it_quotes(
    run: Run, error: PerdureError
) -> None:
    """A provider quotes the request."""
    with pytest.raises(PerdureError) as caught:
        await run(ScriptedModel(fails(error)))

    assert type(caught.value) is errors.LLMInvalidRequestError
    assert caught.value.report is not None


# Text that is not text, numbers that are not numbers.


@pytest.mark.slow
@pytest.mark.accepts("Y9", "G3")
async def test_odd_tool_results_reach_the_model_cleaned(run: Run) -> None:
    """Lone surrogates are replaced, NUL and non-finite numbers are written, and huge numbers are
    written or refused; the turn continues.
    """
    values: dict[str, object] = {
        "surrogate": "a\ud800b",
        "surrogate inside": ["\ud800"],
        "nul": "a\0b",
        "control": "\x01\x1b[31m\x7f\u2028",
        "nan": [float("nan"), float("-inf")],
        "huge": 10**4000,
        "absurd": 10**5000,
        "key": {float("nan"): 1},
        "bytes": b"a\0b",
    }

    @tool
    def fetch(which: str) -> object:
        return values[which]

    model = ScriptedModel(calls(*(call("fetch", which=which) for which in values)), says("done"))
    report = await run(model, tools=[fetch])

    results = {
        which: (result.content, result.is_error)
        for which, result in zip(values, report.steps[0].results, strict=True)
    }
    inside, is_error = results.pop("surrogate inside")
    assert (report.output, is_error) == ("done", False)
    assert "[The tool ran. " in inside
    assert results == {
        "surrogate": ("a?b", False),
        "nul": ("a\0b", False),
        "control": ("\x01\x1b[31m\x7f\u2028", False),
        "nan": ("[NaN,-Infinity]", False),
        "huge": (str(10**4000), False),
        "absurd": ("1" + "0" * 5000, False),
        "key": ('{"nan":1}', False),
        "bytes": ('"a\\u0000b"', False),
    }


@pytest.mark.slow
@pytest.mark.accepts("G3")
async def test_odd_calls_of_a_model_are_error_results(run: Run) -> None:
    """NUL, line breaks and empty names; NUL, NaN and deep nesting in arguments."""

    @tool
    def weigh(grams: float, note: str = "") -> str:
        return f"{grams} {note!r}"

    asked = [
        ToolCall(id="\0", name="a\0b"),
        ToolCall(id="\n", name=""),
        ToolCall(id="c", name="weigh\n"),
        ToolCall(id="", name="weigh", arguments='{"grams": NaN}'),
        ToolCall(id="", name="weigh", arguments='{"grams": 1e999, "note": "\\u0000"}'),
        ToolCall(id="", name="weigh", arguments='{"grams": 1, "note": "\\ud800"}'),
        ToolCall(id="", name="weigh", arguments="\0"),
    ]
    model = ScriptedModel(calls(*asked), says("done"))

    report = await run(model, tools=[weigh])

    assert report.output == "done"
    assert [result.content.partition(" at line ")[0] for result in report.steps[0].results] == [
        "There is no tool named 'a\\x00b'. The tools are: weigh.",
        "There is no tool named ''. The tools are: weigh.",
        "There is no tool named 'weigh\\n'. The tools are: weigh.",
        "nan ''",
        "inf '\\x00'",
        (
            "weigh was not called, its arguments are not valid: arguments: Invalid JSON: unexpected"
            " end of hex escape"
        ),
        (
            "weigh was not called, its arguments are not valid: arguments: Invalid JSON: expected"
            " value"
        ),
    ]


@pytest.mark.table(1)
@pytest.mark.accepts("G3")
@pytest.mark.parametrize(
    "text",
    ["a\0b", "\x01\x1b[31m\x7f", "\u2028\ufeff", "\U0001f600" * 100],
    ids=["nul", "control", "separators", "emoji"],
)
async def test_odd_text_of_a_model_is_the_output_as_it_is(run: Run, text: str) -> None:
    """Text, thinking, task and label: everything that can be stored is stored unchanged."""
    model = ScriptedModel(says(text, thinking=text))

    report = await run(
        model, task=text, start={"labels": {"text": text}, "context": {"memory": text}}
    )

    assert report.output == text
    assert report.messages[0].text == f"<memory>\n{text}\n</memory>\n\n{text}"


def _odd_answer(**fields: Any) -> ModelAnswer:
    return ModelAnswer(
        **{
            "message": AssistantMessage(parts=(Text(text="odd"),)),
            "stop": "end",
            "model": "m",
            **fields,
        }
    )


@pytest.mark.table(1)
@pytest.mark.accepts("G3", "U6")
@pytest.mark.parametrize(
    "answer",
    [
        _odd_answer(message=AssistantMessage(parts=(Text(text="half \ud800"),))),
        _odd_answer(message=AssistantMessage(parts=(ToolCall(id="a", name="half \ud800"),))),
        _odd_answer(
            message=AssistantMessage(parts=(ToolCall(id="a", name="b", arguments='"\ud800"'),))
        ),
        _odd_answer(model="\ud800"),
        _odd_answer(usage=Usage(input_tokens=10**5000)),
        _odd_answer(usage=Usage(input_tokens=10**30, output_tokens=-5)),
    ],
    ids=["text", "call name", "arguments", "model name", "absurd usage", "huge and negative usage"],
)
async def test_answer_that_cannot_be_stored_ends_the_turn_typed_or_is_cleaned(
    runtime: Runtime, answer: ModelAnswer
) -> None:
    """A turn never hangs, and no library's error is raised."""
    provider = _Broken(answer)

    async with runtime(CLERK, model=provider) as client:
        ended = await end(await client.start(CLERK, "go"))

    report = ended if isinstance(ended, AgentReport) else ended.report
    assert report is not None
    assert report.outcome in (Outcome.COMPLETED, Outcome.FAILED)


# Whatever fails, the caller gets one of our errors.


class _Broken:
    """A provider that returns or raises whatever it was given."""

    def __init__(self, value: object) -> None:
        self._value = value
        self.asked = 0

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.asked += 1
        if isinstance(self._value, BaseException):
            raise self._value
        return self._value  # type: ignore[return-value]

    async def close(self) -> None: ...


_NO_FIELDS: dict[str, Any] = {}


class _Stop(BaseException):
    """Neither an Exception nor a SystemExit."""


@pytest.mark.accepts("U6")
@pytest.mark.parametrize(
    "value",
    [
        ValueError("no"),
        KeyError("x" * BIG),
        RuntimeError("no"),
        asyncio.CancelledError(),
        TimeoutError(),
        SystemExit(3),
        _Stop("halt"),
        ApplicationError("somebody else's", {"code": 1}, type="LLM_AUTH"),
        None,
        "five",
        ModelAnswer.model_construct(**_NO_FIELDS),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.table(1)
async def test_provider_that_breaks_its_contract_fails_the_turn_typed(
    runtime: Runtime, value: object
) -> None:
    """Whatever it raises or returns, the caller gets one of our errors, with the report of the
    turn.
    """
    async with runtime(CLERK, model=_Broken(value)) as client:
        error = await failure(await client.start(CLERK, "go"))

    assert error.report is not None
    assert (error.report.outcome, error.report.messages) == (
        Outcome.FAILED,
        (UserMessage.of("go"),),
    )


@pytest.mark.accepts("U6", "U7")
@pytest.mark.slow
async def test_every_class_of_error_reaches_the_caller_as_itself(runtime: Runtime) -> None:
    """Raised by a model, after two conversions by Temporal, with message, severity and context; the
    budget's is translated (U8).
    """
    raised = (cls for cls in errors.tree() if cls is not errors.LLMBudgetExceededError)
    given = {
        cls.code: cls(
            "what happened", severity=errors.Severity.INFO, context={"n": 1, "retry_after_s": 0.01}
        )
        for cls in raised
    }
    agents = [Agent(name=code, model="scripted:x") for code in given]
    models = {code: ScriptedModel(fails(error), fails(error)) for code, error in given.items()}

    async with runtime(Registry(agents), model=models) as client:
        turns = [await client.start(code, "go") for code in given]
        caught = await asyncio.gather(*(failure(turn) for turn in turns))

    assert [type(error) for error in caught] == [type(error) for error in given.values()]
    told = [
        error.to_dict()
        | {
            "message": first_of(error),
            "context": {**error.context, "attempts": 0, "failing_for_s": 0},
        }
        for error in caught
    ]
    more = {"attempts": 0, "failing_for_s": 0}
    assert told == [
        error.to_dict() | {"context": {**error.context, **more}} for error in given.values()
    ]
    assert all(
        error.report and error.report.messages == (UserMessage.of("go"),) for error in caught
    )


def _fails(info: TurnInfo) -> Agent:
    raise OSError("no database")


def _nothing(info: TurnInfo) -> Any:
    return None


def _unknown_model(info: TurnInfo) -> Agent:
    return Agent(name="_unknown_model", model="main")


def _unknown_provider(info: TurnInfo) -> Agent:
    return Agent(name="_unknown_provider", model="nobody:x")


def _bad_tool(info: TurnInfo) -> Agent:
    def variable(*words: str) -> None: ...

    return Agent(name="_bad_tool", model="scripted:x", tools=[variable])


def _bad_limit(info: TurnInfo) -> Agent:
    return Agent(name="_bad_limit", model="scripted:x", max_iterations=0)


@pytest.mark.table(1)
@pytest.mark.accepts("U6", "D16")
@pytest.mark.parametrize(
    "factory",
    [_fails, _nothing, _unknown_model, _unknown_provider, _bad_tool, _bad_limit],
    ids=lambda factory: factory.__name__,
)
async def test_agent_that_cannot_be_made_fails_the_turn_as_a_configuration_error(
    runtime: Runtime, factory: Any
) -> None:
    """The factory fails, or its agent is invalid: the model is not called."""
    model = ScriptedModel(says("never"))

    async with runtime(AgentWorker([factory], providers={"scripted": model})) as client:
        error = await failure(await client.start(factory.__name__, "go"))

    assert type(error) is errors.ConfigurationError
    assert error.report is not None
    assert (error.report.outcome, model.call_count) == (Outcome.FAILED, 0)


@pytest.mark.slow
@pytest.mark.accepts("U6", "U12")
async def test_turn_that_is_terminated_is_an_error_of_ours_with_what_was_done(
    runtime: Runtime,
) -> None:
    """No workflow code ran at the end; the report is read from history."""
    model = ScriptedModel(calls(call("nothing")), says("never", delay=limits.TOOL_CALL))

    async with runtime(CLERK, model=model) as client:
        turn = await client.start(CLERK, "go")
        await eventually(lambda: model.call_count == 2, "the second call is made")
        await client.temporal.get_workflow_handle(turn.id).terminate(reason="enough")
        error = await failure(turn)

    assert (type(error), error.message) == (
        errors.TurnTerminatedError,
        "the turn was terminated: enough",
    )
    assert error.report is not None
    assert (error.report.outcome, len(error.report.steps), error.report.model_calls) == (
        Outcome.TERMINATED,
        1,
        2,
    )
