"""Rows of the table of bad inputs: requests of callers, other languages, people and operators, and
the environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.workflowservice.v1 import (
    PauseActivityRequest,
    RespondActivityTaskFailedByIdRequest,
    UnpauseActivityRequest,
)
from temporalio.client import Client, WorkflowUpdateFailedError

from perdure import Agent, Task, Text, UserMessage, errors, tool
from perdure.activities.providers import OpenAIChat
from perdure.clients import Turn
from perdure.temporal import failures
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.keys import ModelKey, ToolKey
from perdure.values.approvals import PendingApproval
from perdure.worker import AgentWorker, health

from ...conftest import eventually
from ..approving import pending, send
from ..e2e.probing import ALIVE, Probe
from ..ports import free_port
from ..spending import Held
from .bench import BadInput, Bench, End, Fails, Refused, Responds, Told, all_of, end_of
from .odd_values import BIG, plain, raw
from .wrong_starts import STARTS

INVALID = errors.InvalidRequestError
NAME = "clerk"


def start(number: int, words: str, outcome: Refused, *given: Mapping[str, Any]) -> BadInput:
    """Turns that a caller starts with these arguments, with Perdure's client."""

    async def tried(bench: Bench) -> list[End]:
        wanted = ({"agent": NAME, "task": "go", **one} for one in given)
        return await all_of(*(end_of(bench.client.start(**one)) for one in wanted))

    return BadInput(number, "caller", words, outcome, tried)


def by_json(
    number: int, words: str, error: type[errors.PerdureError], *given: Sequence[object]
) -> BadInput:
    """Turns that are started with these arguments as JSON, without Perdure's client."""
    return BadInput(
        number,
        "start by JSON",
        words,
        Fails(error),
        lambda bench: all_of(*(bench.started(*args) for args in given)),
    )


def request(**fields: Any) -> list[object]:
    """The arguments of a start with an agent, a task, and these fields."""
    return [plain({"agent": NAME, "task": "go", **fields})]


HALF = "half \ud800"
OTHER = {"content": [{"type": "song"}]}

ENDLESS = {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}


UNCHECKED = {
    "$defs": {"a": {"$ref": "#/$defs/a"}},
    "type": "object",
    "anyOf": [{"type": "string"}],
    "properties": {"x": {"$ref": "#/$defs/a"}},
}
"""It refers to itself after keywords at which a check might stop."""


def bomb(levels: int) -> dict[str, Any]:
    """A small schema whose nodes double with each level."""
    grown = {
        f"L{level}": {
            "type": "object",
            "properties": {
                name: {"$ref": f"#/$defs/L{level + 1}", "description": name} for name in "ab"
            },
        }
        for level in range(levels)
    }
    return {"$defs": {**grown, f"L{levels}": {"type": "string"}}, "$ref": "#/$defs/L0"}


SCHEMAS = [ENDLESS, UNCHECKED, bomb(23)]


async def odd_schemas(bench: Bench) -> list[End]:
    """Odd schemas from other languages, with a model that answers in JSON."""
    names = [bench.agent(ScriptedModel(*[says('{"x": 1}')] * 3)) for _ in SCHEMAS]
    starts = (
        {"agent": name, "task": "go", "output_schema": schema}
        for name, schema in zip(names, SCHEMAS, strict=True)
    )
    return await all_of(*(bench.started(plain(one)) for one in starts))


CALLER = [
    start(
        35,
        "an empty task, or an argument of the wrong type or out of range",
        Refused(INVALID),
        *(given for given, _ in STARTS),
        {"task": None},
        {"id": "x" * 101},
    ),
    start(
        36,
        "a lone surrogate in the task, a label, the context, the history or the id",
        Refused(INVALID),
        {"task": HALF},
        {"task": Task(content=(Text(text=HALF),))},
        {"labels": {"a": HALF}},
        {"context": {"a": HALF}},
        {"history": [UserMessage.of(HALF)]},
        {"id": HALF},
    ),
    start(
        37,
        "a task of more than 1 MiB",
        Refused(errors.TooLargeError),
        *({"task": letter * (1_100_000 // len(letter.encode()))} for letter in "xü\n"),
    ),
    start(
        38,
        "a context, a history or a label of 3 MB",
        Refused(errors.TooLargeError),
        {"context": {"book": "x" * BIG}},
        {"history": [UserMessage.of("x" * BIG)]},
        {"labels": {"a": "x" * BIG}},
    ),
]

STARTED = [
    by_json(
        40,
        "no input, two inputs, bytes, or invalid JSON",
        INVALID,
        *(
            [],
            [{}, {}],
            [None],
            [b"\x00\x01"],
            [raw(b"{")],
            [raw(b"")],
            [raw(b"{}", b"json/protobuf")],
        ),
    ),
    by_json(
        41,
        "JSON without an agent or a task, or with a field of the wrong type",
        INVALID,
        *(
            [one]
            for one in (
                {},
                5,
                {"agent": NAME},
                {"agent": 5, "task": "go"},
                {"agent": NAME, "task": OTHER},
            )
        ),
        request(labels={"a": 1}),
        request(history="hi"),
    ),
    by_json(
        42,
        "a lone surrogate, an integer of 5,000 digits, lists nested 100,000 deep",
        INVALID,
        [raw(b'{"agent": "clerk", "task": "\\ud800"}')],
        *([raw(b'{"agent": ' + odd)] for odd in (b"9" * 5000 + b"}", b"[" * 100_000)),
    ),
    BadInput(
        62,
        "start by JSON",
        "an output schema that refers to itself, or expands to gigabytes",
        Fails(INVALID),
        odd_schemas,
    ),
    by_json(
        64,
        "a `lineage`, which only a delegating turn may set",
        INVALID,
        request(lineage={"ancestors": []}),
        request(lineage={"ancestors": [{"turn_id": "x", "key": "step-1.call-1.child-1"}]}),
    ),
    by_json(
        65,
        "an unknown agent, also with a NUL character in its name",
        errors.UnknownAgentError,
        *([{"agent": name, "task": "go"}] for name in ("nobody", "clerk\0", "x" * 64)),
    ),
    by_json(
        75,
        "a delay or a deadline that is not a time, has passed, or is 10,000 years away",
        INVALID,
        *(
            request(**given)
            for given in (
                {"delay": "soon"},
                {"delay": 5},
                {"delay": "-PT1H"},
                {"deadline": "2030-12-01T18:00:00"},
                {"deadline": "2026-01-01T00:00:00Z"},
                {"deadline": "9999-12-31T23:59:59-12:00"},
                {"delay": "PT2H", "deadline": "PT1H"},
            )
        ),
    ),
]


async def waiting(bench: Bench) -> tuple[Turn[Any], PendingApproval]:
    """A turn that waits for a person, and the waiting call."""
    name = bench.agent(ScriptedModel(calls(call("send", to="Ann")), says("done")), tools=[send])
    turn = await bench.client.start(name, "go")
    [asked] = await pending(turn)
    return turn, asked


async def odd_decisions(bench: Bench) -> list[End]:
    """Decisions of another client; the turn then accepts one of Perdure's client."""
    turn, asked = await waiting(bench)
    one = {"call_id": asked.call_id, "digest": asked.digest, "approve": True}
    odd: list[list[object]] = [
        [],
        [5],
        [{}],
        [{**one, "approve": "perhaps"}],
        [raw(b"{")],
        [one, one],
    ]
    ends = [await update(bench.client.temporal, turn, given) for given in odd]
    assert await goes_on(turn, asked)
    return ends


async def update(client: Client, turn: Turn[Any], given: Sequence[object]) -> End:
    """The response to a decision of another client."""
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await client.get_workflow_handle(turn.id).execute_update("decide", args=given)
    return errors.from_info(failures.error_in(caught.value.cause))


async def goes_on(turn: Turn[Any], asked: PendingApproval) -> bool:
    """Whether the turn still accepts a decision, and ends with its own answer."""
    await turn.approve(asked)
    return bool((await turn.result()).output == "done")


async def wrong_arguments(bench: Bench) -> list[End]:
    """A person approves a call with arguments that the tool does not accept."""
    turn, asked = await waiting(bench)
    await turn.approve(asked, arguments={"whom": "Bob"})
    return [await turn.result()]


async def late_decisions(bench: Bench) -> list[End]:
    """A decision on other arguments than the waiting ones, and a second decision on the same
    call.
    """
    turn, asked = await waiting(bench)
    other = asked.model_copy(update={"digest": "0" * 64})
    ends = [await end_of(turn.approve(other))]
    await turn.approve(asked)
    return [*ends, await end_of(turn.deny(asked))]


async def odd_cursors(bench: Bench) -> list[End]:
    """Invalid cursors, and one of another turn."""
    name = bench.agent(ScriptedModel(says("one"), says("two")))
    turn, other = [await bench.client.start(name, "go") for _ in range(2)]
    cursors = ["no cursor", "ü", "YWJj", "!", "OjU="]
    cursors += [event.cursor async for event in other.events()][:1]
    return await all_of(*(end_of(first_event(turn, cursor)) for cursor in cursors))


async def first_event(turn: Turn[Any], cursor: str) -> object:
    """The first event after a cursor."""
    return await anext(turn.events(after=cursor))


PEOPLE = [
    BadInput(
        39,
        "person",
        "an invalid decision from another client: not JSON, incomplete, or two at once",
        Refused(INVALID),
        odd_decisions,
    ),
    BadInput(
        66,
        "person",
        "an approval with arguments that the tool does not accept",
        Told("arguments are not valid: to: Field required"),
        wrong_arguments,
    ),
    BadInput(
        67,
        "person",
        "an approval for other arguments than the pending ones, or a second decision",
        Refused(errors.ApprovalConflictError),
        late_decisions,
    ),
    BadInput(
        68,
        "caller",
        "an invalid cursor, or one of another turn",
        Refused(INVALID, errors.StaleCursorError),
        odd_cursors,
    ),
]


async def paused(bench: Bench) -> list[End]:
    """An operator pauses and unpauses a tool that may not run twice: the server schedules it
    again.
    """
    began, stopped = list[str](), list[str]()

    @tool
    async def charge() -> str:
        began.append("charge")
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append("charge")
        return "charged"

    name = bench.agent(ScriptedModel(calls(call("charge")), says("done")), tools=[charge])
    turn = await bench.client.start(name, "go")
    await eventually(lambda: len(began) == 1, "the tool runs")
    service, names = bench.client.temporal.workflow_service, activity_of(bench, turn)
    await service.pause_activity(PauseActivityRequest(**names, id=str(ToolKey(1, 1))))
    await eventually(lambda: len(stopped) == 1, "the worker has heard of it")
    await service.unpause_activity(UnpauseActivityRequest(**names, id=str(ToolKey(1, 1))))
    end = await end_of(turn.result())
    assert began == ["charge"]
    return [end]


async def failed(bench: Bench) -> list[End]:
    """An operator fails a model call in flight."""
    model = Held(says("never"))
    turn = await bench.client.start(bench.agent(model), "go")
    await eventually(lambda: model.call_count == 1, "the model thinks")
    await bench.client.temporal.workflow_service.respond_activity_task_failed_by_id(
        RespondActivityTaskFailedByIdRequest(
            namespace=bench.client.temporal.namespace,
            workflow_id=turn.id,
            activity_id=str(ModelKey(1)),
            failure=Failure(message="enough", application_failure_info=ApplicationFailureInfo()),
        )
    )
    end = await end_of(turn.result())
    model.let_go.set()
    return [end]


def activity_of(bench: Bench, turn: Turn[Any]) -> dict[str, Any]:
    """The ids with which Temporal addresses an activity of a turn."""
    execution = WorkflowExecution(workflow_id=turn.id)
    return {"namespace": bench.client.temporal.namespace, "execution": execution}


async def odd_keys(bench: Bench) -> list[End]:
    """Keys in the worker's environment that are invalid in a header, and invalid addresses."""
    names = ("ODD_EMPTY", "ODD_LINE", "ODD_LETTER", "ODD_UNSET")
    keyed = [OpenAIChat(base_url="http://127.0.0.1:9/v1", api_key_env=name) for name in names]
    lost = [OpenAIChat(base_url=url) for url in ("ftp://localhost", "http://127.0.0.1:port")]
    return await all_of(*(bench.turn(model) for model in (*keyed, *lost)))


async def odd_probes(bench: Bench) -> list[End]:
    """Invalid requests to the health port; the next valid probe is answered."""
    temporal, port = bench.client.temporal, free_port()
    worker = AgentWorker(Agent(name="clerk", model="offline:librarian")).build(temporal)
    async with health.served(port, health.Readiness(temporal, worker, asyncio.Event())):
        probe = Probe(port)
        odd = (b"\x16\x03\x01\r\n\r\n", b"nonsense\r\n\r\n", b"GET /" + b"x" * 100_000)
        answers = [await probe.send(one) for one in odd]
        assert await probe.get("/healthz") == ALIVE
    return [int(answer.split()[1]) for answer in answers]


OPERATION = [
    BadInput(
        43,
        "environment",
        "a probe that is not HTTP, or has a request line of 100 KB",
        Responds(400),
        odd_probes,
    ),
    BadInput(
        69,
        "operator",
        "a running tool call that is paused and unpaused",
        Told("whether it took effect is unknown"),
        paused,
    ),
    BadInput(
        70,
        "operator",
        "`temporal activity fail` on a running model call",
        Fails(errors.PerdureError),
        failed,
    ),
    BadInput(
        71,
        "environment",
        "a provider key that is unset, empty or not a header value, or an invalid base URL",
        Fails(errors.ConfigurationError),
        odd_keys,
    ),
]


async def odd_schedules(bench: Bench) -> list[End]:
    """Schedules that a caller creates with these arguments."""
    daily = {"id": "odd", "agent": NAME, "task": "go", "cron": "0 7 * * *", "timezone": "UTC"}
    given: list[dict[str, Any]] = [
        {"cron": "0 7 * *"},
        {"cron": "61 * * * *"},
        {"timezone": "Mars/Olympus"},
        {"id": "x" * 79},
        {"catch_up": -1},
        {"remember_last": True, "if_running": "allow"},
    ]
    return await all_of(
        *(end_of(bench.client.create_schedule(**{**daily, **one})) for one in given)
    )


SCHEDULES = [
    BadInput(
        73,
        "caller",
        "a schedule whose cron expression, time zone, id or policy is not valid",
        Refused(INVALID),
        odd_schedules,
    ),
    by_json(
        74,
        "a schedule in the input that is not an object, or has an offset of more than a day",
        INVALID,
        request(schedule="daily"),
        request(schedule={"id": "x", "timezone": "UTC", "offsets": [[0, 10**30]]}),
        request(schedule={"id": "x", "timezone": "U" * 1_000}),
    ),
]

REQUESTS = [*CALLER, *STARTED, *PEOPLE, *OPERATION, *SCHEDULES]
