"""Input of excessive size from outside: it is counted before it is parsed, and parsing does not
starve other turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from pydantic_ai import messages as theirs

from perdure import errors, limits
from perdure.activities import output_validation, tool_results
from perdure.activities.answer_checks import Check, checked
from perdure.activities.mcp.process import _A_SECOND, _GUARD_S, _RUSH, ServerProcess, _Pace
from perdure.activities.providers import (
    anthropic,
    lenient_json,
    openai_chat,
    openai_responses,
    pydantic_ai_messages,
)
from perdure.agents.definitions import AgentDefinition
from perdure.text import clean, clip
from perdure.turn.facts import AgentResolved, TurnStarted
from perdure.turn.fold import fold
from perdure.turn.keys import AgentKey
from perdure.turn.wire import TurnRequest
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Text
from perdure.values.tasks import Task

ITEMS: dict[str, Any] = {
    "type": "array",
    "uniqueItems": True,
    "items": {"type": "object", "properties": {"n": {"type": "integer"}}},
}


@pytest.fixture
def never_interrupted() -> Iterator[None]:
    """A thread that does not yield by itself keeps the interpreter."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    yield
    sys.setswitchinterval(before)


def turns_beside(work: Callable[[], object]) -> int:
    """How often another thread gets the interpreter while `work` runs."""
    busy = threading.Thread(target=work)
    turns = 0
    busy.start()
    while busy.is_alive():
        time.sleep(0.0001)
        turns += 1
    return turns


@pytest.mark.accepts("C8")
@pytest.mark.usefixtures("never_interrupted")
@pytest.mark.parametrize(
    "work",
    {
        "a check of unique items": lambda: output_validation.validator(ITEMS)(
            [{"n": n} for n in range(5_000)]
        ),
        "objects of a reply": lambda: lenient_json.parsed(json.dumps([{"n": True}] * 200_000)),
        "numbers of a reply": lambda: lenient_json.parsed(json.dumps([1, 2.5] * 200_000)),
    }.values(),
    ids=["unique", "objects", "numbers"],
)
def test_long_work_lets_other_threads_run(work: Callable[[], object]) -> None:
    """Many times, although Python never interrupts it."""
    # imports what it needs, and reading files yields to other threads
    output_validation.validator(ITEMS)
    assert turns_beside(work) >= 10


@pytest.mark.accepts("C8")
def test_reply_with_too_many_values_is_not_parsed() -> None:
    """It has neither objects nor numbers, so the parser could not be interrupted."""
    with pytest.raises(ValueError, match="more than 2000000 values"):
        lenient_json.parsed(f"[{'[],' * limits.REPLY_VALUES}[]]")


@pytest.mark.parametrize(
    "words",
    ['[1, 2.5, "a", {"b": [null, true]}, -0.0, 1e400]', "[" + "1," * 60_000 + "01]"],
    ids=["values", "invalid"],
)
def test_long_replies_are_read_as_short_ones(words: str) -> None:
    """The same values, and the same errors."""
    padded = words + " " * 200_000

    def read(given: str) -> object:
        try:
            return repr(json.loads(given)), repr(lenient_json.parsed(given))
        except ValueError as error:
            return str(error)

    assert read(padded) == read(words)


# without a name, which is an error as soon as it is read
CALL: dict[str, Any] = {"type": "tool_use", "function": {}}
ITEM = {"type": "function_call"}
WAYS: dict[str, Callable[[], object]] = {
    "openai": lambda: openai_chat.answer_of(
        {"choices": [{"message": {"tool_calls": [CALL] * 20_000}}]}, "m"
    ),
    "anthropic": lambda: anthropic.answer_of({"content": [CALL] * 20_000}, "m"),
    "openai-responses": lambda: openai_responses.answer_of(
        {"status": "completed", "output": [ITEM] * 20_000}, "m"
    ),
    "pydantic-ai": lambda: pydantic_ai_messages.answer_of(
        theirs.ModelResponse(parts=[theirs.ToolCallPart("")] * 20_000), "m"
    ),
}


@pytest.mark.accepts("C9")
@pytest.mark.parametrize("answer", WAYS.values(), ids=WAYS)
def test_calls_are_counted_before_they_are_read(answer: Callable[[], object]) -> None:
    """None of 20,000 is parsed."""
    with pytest.raises(
        errors.LLMInvalidRequestError,
        match="m asked for 20000 tool calls in one answer, more than the 64",
    ) as refused:
        answer()

    assert (refused.value.context["calls"], refused.value.context["limit"]) == (20_000, 64)


@pytest.mark.accepts("C9")
@pytest.mark.parametrize("letter", ["x", "é"])
def test_huge_result_is_cut_before_it_is_copied(letter: str) -> None:
    """The note has the original size; no memory near that size is allocated."""
    result = letter * 5_000_000
    tracemalloc.start()
    try:
        output = tool_results.output_of(result)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert output.content.endswith(f" of {len(result.encode())} bytes]")
    assert peak < 1_000_000


@pytest.mark.parametrize("words", ["", "a\ud800b" * 30, "é漢😀" * 40_000, "x" * 100])
def test_cut_and_cleaned_is_cleaned_and_cut(words: str) -> None:
    """The order makes no difference to the result."""
    assert clean(clip(words, 80)) == clip(clean(words), 80)


class Number(BaseModel):
    value: int


def state() -> Any:
    """A turn with an output of type int."""
    agent = AgentDefinition(
        name="clerk", instructions="", model="a:m", output_schema=Number.model_json_schema()
    )
    return fold(
        [
            TurnStarted(TurnRequest(agent="clerk", task=Task(content="go"))),
            AgentResolved(AgentKey(), agent),
        ]
    )


@pytest.mark.accepts("C10")
@pytest.mark.parametrize(
    ("check", "limit_s", "words"),
    [
        (lambda _: threading.Event().wait(5), 0.05, r"it took longer than 0\.05 s"),
        (lambda _: sys.exit(), 60, "it called sys.exit"),
    ],
    ids=["hangs", "exits"],
)
async def test_validator_that_does_not_end_is_given_up(
    check: Callable[[Any], object], limit_s: float, words: str
) -> None:
    """The error names the validators' type."""
    answer = ModelAnswer(message=AssistantMessage(parts=(Text(text='{"value": 1}'),)))

    with pytest.raises(
        errors.ConfigurationError,
        match=f"the validators of the output type of agent 'clerk' failed: {words}",
    ):
        await checked(answer, state(), Check(check, timedelta(seconds=limit_s)))


async def test_error_of_a_validator_keeps_its_meaning() -> None:
    """A reason goes to the model; a typed error ends the turn unchanged."""
    answer = ModelAnswer(message=AssistantMessage(parts=(Text(text='{"value": "x"}'),)))

    told = await checked(answer, state(), Check(Number.model_validate))
    with pytest.raises(errors.GuardrailError):
        await checked(answer, state(), Check(_refuse))

    assert told.objection is not None
    assert "value" in told.objection
    assert ValidationError.__name__ not in told.objection


def _refuse(_: object) -> None:
    raise errors.GuardrailError("no")


NO_MESSAGES = {
    "blank lines": "while True: print(flush=True)",
    "long lines": "while True: print('x' * 100_000, flush=True)",
    "short lines": "while True: print('loading', flush=True)",
}


@pytest.mark.table(1)
@pytest.mark.accepts("C10")
@pytest.mark.parametrize("script", NO_MESSAGES.values(), ids=NO_MESSAGES)
async def test_server_without_messages_is_ended(script: str) -> None:
    """After 1,000 lines or 1 MB of any kind. What it wrote besides is not waited for."""
    process = ServerProcess([sys.executable, "-S", "-c", script], {})

    async with process:
        await process.ended.wait()
        ended_at = time.monotonic()

    assert time.monotonic() - ended_at < _GUARD_S
    assert process.complaint == "it writes something that is not JSON-RPC to its standard output"


@pytest.mark.accepts("C10")
def test_server_is_read_at_a_limited_pace() -> None:
    """A burst is read at once, later data at the limited rate, and a pause allows another burst."""
    pace = _Pace()

    rush = [pace.wait_s(100.0) for _ in range(_RUSH)]
    flood = [pace.wait_s(100.0) for _ in range(_A_SECOND)]
    later = [pace.wait_s(200.0) for _ in range(_RUSH)]

    assert max(rush) == pytest.approx(0)
    assert max(later) == pytest.approx(0, abs=1e-6)
    assert flood[-1] == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.accepts("C8")
def test_process_of_a_worker_is_prepared() -> None:
    """The modules for its turns are imported, and the garbage collector has almost nothing to
    scan.
    """
    code = (
        "import gc, sys\nfrom perdure import Agent, MCPServer\nfrom perdure.worker import"
        " AgentWorker, startup\nstartup.prepare([Agent(name='a', model='m')])\nprint('httpx' in"
        " sys.modules, 'mcp' in sys.modules)\nstartup.prepare([Agent(name='a', model='m',"
        " toolboxes=[MCPServer.stdio('time', ['x'])])])\nprint('mcp' in sys.modules,"
        " len(gc.get_objects()) < gc.get_freeze_count() / 100)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "True False\nTrue True\n"
