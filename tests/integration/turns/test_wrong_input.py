"""Invalid input is refused by the client, before anything is started or sent."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Agent,
    Budget,
    Context,
    Media,
    RequestOptions,
    RequireApproval,
    Task,
    Text,
    UserMessage,
    errors,
    tool,
)
from perdure.clients import AgentClient, Turn
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.facts import WaitBegan
from perdure.values.approvals import PendingApproval

from ...conftest import Runtime
from ...support.bad_input.wrong_starts import NOTHING_ASKED, STARTS
from ...support.spending import app, ended, until


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen"


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send."""
    return f"sent to {to}"


CLERK = Agent(name="clerk", model="scripted:clerk", tools=[look, send])


async def refusal(asked: Coroutine[Any, Any, object]) -> str:
    """The error for the caller."""
    with pytest.raises(errors.InvalidRequestError) as caught:
        await asked

    return caught.value.message


async def test_turn_that_cannot_be_meant_is_not_started(runtime: Runtime) -> None:
    """By `start` and by `run`; no turn is left behind."""
    async with runtime(CLERK, model=ScriptedModel()) as client:
        for given, words in STARTS:
            wanted = {"agent": "clerk", "task": "go", **given}
            assert (await refusal(client.start(**wanted))).startswith(words), given
            assert (await refusal(client.run(**wanted))).startswith(words), given
        assert client.recorded == set()


async def test_generate_refuses_the_same(runtime: Runtime) -> None:
    """An invalid prompt, model or limit."""
    async with runtime(CLERK, model=ScriptedModel()) as client:
        told = [
            await refusal(client.generate("scripted:m", " ", str)),
            # the wrong type is the mistake under test
            await refusal(client.generate(5, "go", str)),  # type: ignore[arg-type]
            await refusal(client.generate("scripted:m", "go", str, budget="1")),  # type: ignore[arg-type]
            await refusal(client.generate("scripted:m", "go", str, id=5)),  # type: ignore[arg-type]
        ]

    assert told == [
        NOTHING_ASKED,
        "the turn cannot be started: model must be a string, not 5",
        ("the turn cannot be started: budget must be a Budget, not '1'"),
        "the turn: id must be a string, not 5",
    ]


@pytest.mark.slow
async def test_task_may_be_empty_where_a_context_says_what_is_asked(runtime: Runtime) -> None:
    """The model gets only the context; an image alone is a task as well."""
    model = ScriptedModel(says("five"), says("a cat"))
    image = Media(media_type="image/png", data="aGVsbG8=")
    async with runtime(CLERK, model=model) as client:
        report = await client.run("clerk", "", context=Context(blocks={"question": "2 + 3?"}))
        seen = await client.run("clerk", Task(content=(image,)))

    assert (report.output, seen.output) == ("five", "a cat")
    assert model.requests[0].messages == (
        UserMessage(parts=(Text(text="<question>\n2 + 3?\n</question>\n\n"), Text(text=""))),
    )
    assert model.requests[1].messages == (UserMessage(parts=(image,)),)


@pytest.mark.slow
async def test_what_has_the_right_form_is_taken(runtime: Runtime) -> None:
    """Any iterable is accepted as a list, and mappings are accepted as a budget or as options."""
    model = ScriptedModel(says("done"))
    async with runtime(CLERK, model=model) as client:
        given: dict[str, Any] = {
            "budget": {"model_calls": 3},
            "options": {"temperature": 0},
            "allowed_tools": {"look": 1}.keys(),
            "history": iter(()),
        }
        report = await client.run("clerk", "go", **given)

    [request] = model.requests
    assert report.output == "done"
    assert ([item.name for item in request.tools], request.options) == (
        ["look"],
        RequestOptions(temperature=0),
    )


LISTS: list[tuple[dict[str, Any], str]] = [
    ({"agent": 5}, "the list: agent must be a string that UTF-8 can hold, or None, not 5"),
    (
        {"labels": {"a": 5}},
        (
            "the list: labels must be a mapping of at most 50 strings, such as {'name': 'text'},"
            " or None, not {'a': 5}"
        ),
    ),
    (
        {"labels": ["a"]},
        (
            "the list: labels must be a mapping of at most 50 strings, such as {'name': 'text'},"
            " or None, not ['a']"
        ),
    ),
    ({"parent": 5}, "the list: parent must be a string that UTF-8 can hold, or None, not 5"),
    (
        {"limit": "5"},
        "the list: limit must be a whole number from 1 to 1000000000, or None, not '5'",
    ),
    ({"limit": 0}, "the list: limit must be a whole number from 1 to 1000000000, or None, not 0"),
    (
        {"state": "Running"},
        "there is no state 'Running' of turns; there are running, waiting, paused, ended",
    ),
]


@pytest.mark.table(1)
@pytest.mark.parametrize(
    ("given", "words"),
    LISTS,
    ids=[f"{next(iter(given))}-{number}" for number, (given, _) in enumerate(LISTS)],
)
async def test_filter_that_cannot_be_meant_is_refused(
    runtime: Runtime, given: dict[str, Any], words: str
) -> None:
    """Before any request to Temporal."""
    async with runtime(CLERK, model=ScriptedModel()) as client:
        with pytest.raises(errors.InvalidRequestError) as caught:
            client.turns(**given)

    assert caught.value.message == words


@pytest.mark.slow
async def test_what_a_turn_is_told_is_refused_before_it_is_sent(runtime: Runtime) -> None:
    """A decision with arguments that are not a JSON object, an invalid budget: the turn keeps
    waiting for a valid one.
    """
    model = ScriptedModel(calls(call("send", to="Ann")), says("done"))
    async with runtime(CLERK, model=model) as client:
        turn = await client.start("clerk", "go")
        await until(turn, WaitBegan)
        [pending] = await turn.pending_approvals()
        told = [await refusal(ask(client, turn, pending)) for ask in TELLS.values()]
        await turn.approve(pending, arguments={"to": "Bob"})
        report = await turn.result()

    assert dict(zip(TELLS, told, strict=True)) == {
        "letters": "the answer: arguments must be a mapping, such as a dict, or None, not ['to']",
        "no JSON": (
            "the arguments of an approval are not JSON: Unable to serialize unknown type: <class"
            " 'object'>"
        ),
        "reason": "the answer: reason must be a string, not 5",
        "no call": "the answer: call must be what pending_approvals gives, or its id, not 5",
        "by id": "the answer: arguments must be a mapping, such as a dict, or None, not ['to']",
        "no budget": "nothing is added: give a Budget, iterations=…, or both",
        "money alone": (
            "what is added: more must be a Budget, such as Budget(usd='0.50'), or None, not '0.5'"
        ),
        "no id": "the turn: id must be a string that UTF-8 can hold, not empty, not 5",
        "cancel": "the cancel: reason must be a string that UTF-8 can hold, not 5",
    }
    assert report.steps[0].results[0].content.startswith("sent to Bob\n")


Tell = Callable[[AgentClient, Turn[Any], PendingApproval], Coroutine[Any, Any, object]]
WRONG: Any = ["to"]
FIVE: Any = 5
NONE: Any = None


async def status_of(client: AgentClient, id: str) -> object:
    return await client.turn(id).status()


TELLS: dict[str, Tell] = {
    "letters": lambda client, turn, pending: turn.approve(pending, arguments=WRONG),
    # the wrong type is the mistake under test
    "no JSON": lambda client, turn, pending: turn.approve(pending, arguments={"to": object()}),  # type: ignore[dict-item]
    "reason": lambda client, turn, pending: turn.deny(pending, FIVE),
    "no call": lambda client, turn, pending: turn.deny(FIVE),
    "by id": lambda client, turn, pending: client.turn(turn.id).approve(
        pending.call_id, arguments=WRONG
    ),
    "no budget": lambda client, turn, pending: turn.add_budget(NONE),
    # the wrong type is the mistake under test
    "money alone": lambda client, turn, pending: client.turn(turn.id).add_budget("0.5"),  # type: ignore[arg-type]
    "no id": lambda client, turn, pending: status_of(client, FIVE),
    "cancel": lambda client, turn, pending: turn.cancel(FIVE),
}


@pytest.mark.slow
async def test_budget_that_does_not_cover_what_is_overdrawn_leaves_nothing(
    runtime: Runtime,
) -> None:
    """The time is never negative; an addition that is large enough leaves the difference."""
    async with runtime(app(on_exhausted="pause"), model=ScriptedModel(says("done"))) as client:
        turn = await client.start("spender", "go", budget=Budget(time=timedelta(microseconds=1)))
        await until(turn, WaitBegan)
        short = await turn.add_budget(Budget(time=timedelta(microseconds=1)))
        enough = await turn.add_budget(Budget(time=timedelta(hours=1)))
        await ended(turn)

    assert short.time == timedelta(0)
    assert enough.time is not None
    assert timedelta(minutes=58) < enough.time < timedelta(hours=1)


@pytest.mark.slow
async def test_policy_that_wants_an_absurd_time_denies(runtime: Runtime) -> None:
    """Its call is not run, and the model gets the reason; the turn continues."""
    policed = Agent(
        name="clerk",
        model="scripted:clerk",
        tools=[look],
        policy=lambda proposed: RequireApproval(expires=timedelta.max),
    )
    async with runtime(policed, model=ScriptedModel(calls(call("look")), says("done"))) as client:
        report = await client.run("clerk", "go")

    [result] = report.steps[0].results
    assert (report.output, result.is_error) == ("done", True)
    assert "the policy failed: RequireApproval: " in result.content
    assert (
        "expires must be a timedelta, longer than zero and at most 3650 days, not 999999999 days"
        in result.content
    )


@pytest.mark.slow
async def test_time_that_a_worker_of_an_earlier_release_wrote_is_taken(runtime: Runtime) -> None:
    """It had no bounds: its approval has already expired."""
    long_ago = RequireApproval.model_construct(expires=timedelta(days=-1))
    policed = Agent(
        name="clerk", model="scripted:clerk", tools=[look], policy=lambda proposed: long_ago
    )
    async with runtime(policed, model=ScriptedModel(calls(call("look")), says("done"))) as client:
        report = await client.run("clerk", "go")

    [result] = report.steps[0].results
    assert (report.output, result.is_error) == ("done", True)
    assert result.content.startswith("This call was not run: nobody approved it")
