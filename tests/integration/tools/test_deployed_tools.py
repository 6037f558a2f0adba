"""A deploy changes a tool while turns wait for approval and while others run: which calls run,
which need approval, and what is reported.

All turns go through one deploy: a worker with the old code starts them, and one with the new code,
on the same queue, completes them. The rows of `CHANGES` are those of the table in docs/tools.md.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field
from temporalio.client import Client

from perdure import Agent, AgentReport, Registry, Tool, errors
from perdure.activities.provider import ModelRequest
from perdure.clients import Turn
from perdure.clients.cli.running.approvals import ApprovalOptions, decide
from perdure.testing import ScriptedModel, call, calls, says
from perdure.turn.facts import ApprovalNeeded
from perdure.values.answers import ModelAnswer
from perdure.values.approvals import PendingApproval
from perdure.values.messages import AssistantMessage, Text, ToolMessage, ToolResult
from perdure.worker import AgentWorker
from perdure.worker.settings import WorkerSettings

from ...conftest import RecordingClient, Runtime, check_history, eventually

SETTINGS = WorkerSettings(grace=timedelta(seconds=1))
PAGE = Path(__file__).parents[3] / "docs/tools.md"
WORDS = {"runs": "runs", "asked": "a person is asked", "told": "the model is told"}

Fate = Literal["runs", "asked", "told"]


def pay(euros: int, to: str = "Ann") -> str:
    """Pay."""
    return f"{euros!r} to {to}"


def documented(euros: int, to: str = "Ann") -> str:
    """Transfer money to a customer."""
    return f"{euros!r} to {to}, new"


def described(euros: int, to: str = "Ann") -> str:
    """Pay.

    Args:
        euros: How much.
        to: The customer's name.
    """
    return f"{euros!r} to {to}, new"


def longer(euros: int, to: str = "Ann", at_once: bool = False) -> str:
    """Pay."""
    return f"{euros!r} to {to}, at once: {at_once}"


def reordered(to: str = "Ann", *, euros: int) -> str:
    """Pay."""
    return f"{euros!r} to {to}, new"


def wider(euros: int | str, to: str = "Ann") -> str:
    """Pay."""
    return f"{euros!r} to {to}, new"


def as_float(euros: float, to: str = "Ann") -> str:
    """Pay."""
    return f"{euros!r} to {to}, new"


def other_default(euros: int, to: str = "Bob") -> str:
    """Pay."""
    return f"{euros!r} to {to}, new"


def up_to_100(euros: Annotated[int, Field(le=100)], to: str = "Ann") -> str:
    """Pay."""
    return f"{euros!r} to {to}, new"


def up_to_10(euros: Annotated[int, Field(le=10)], to: str = "Ann") -> str:
    """Pay."""
    return f"{euros!r} to {to}, new"


def with_invoice(euros: int, invoice: str, to: str = "Ann") -> str:
    """Pay."""
    return f"{euros!r} to {to} for {invoice}"


def renamed_parameter(amount: int, to: str = "Ann") -> str:
    """Pay."""
    return f"{amount!r} to {to}, new"


def of_minutes(euros: timedelta, to: str = "Ann") -> str:
    """Pay."""
    return f"{euros} to {to}, new"


@dataclass(frozen=True)
class Change:
    """A change by a deploy, and its effect on a call that was approved before it, and on any other
    call.
    """

    approved: Fate
    other: Fate
    says: str
    """The result of the deployed tool, or where none runs a part of what the model is told."""
    after: Callable[..., str] | None = pay
    asks: str = ""
    """A part of why a person is asked."""
    better: Mapping[str, Any] | None = None
    """What a person approves instead."""
    before_options: Mapping[str, Any] = field(default_factory=dict)
    after_options: Mapping[str, Any] = field(default_factory=dict)
    agent: Mapping[str, Any] = field(default_factory=dict)
    after_agent: Mapping[str, Any] = field(default_factory=dict)
    after_name: str = ""


READS = {"read_only": True}
MISFIT = "has changed since the call was approved, and the arguments do not fit it: "
CHANGES = {
    "the body, the docstring": Change("runs", "runs", "40 to Ann, new", documented),
    "the description of a parameter": Change("runs", "runs", "40 to Ann, new", described),
    "a new parameter with a default": Change("runs", "runs", "40 to Ann, at once: False", longer),
    "the order of parameters": Change("runs", "runs", "40 to Ann, new", reordered),
    "a default": Change("runs", "runs", "40 to Bob, new", other_default),
    "a wider type, such as `float` for `int`": Change("runs", "runs", "40.0 to Ann, new", as_float),
    "a union with another type": Change("runs", "runs", "40 to Ann, new", wider),
    "a limit that the arguments keep": Change("runs", "runs", "40 to Ann, new", up_to_100),
    "a limit that they break": Change(
        "asked",
        "told",
        "euros: Input should be less than or equal to 10",
        up_to_10,
        asks=f"{MISFIT}euros: Input should be less",
        better={"euros": 10},
    ),
    "a new parameter without a default": Change(
        "asked",
        "told",
        "invoice: Field required",
        with_invoice,
        asks='"invoice":{"type":"string"}',
        better={"euros": 40, "invoice": "A"},
    ),
    "the name of a parameter": Change(
        "asked",
        "told",
        "since this turn began, and the arguments do not fit it: amount: Field required",
        renamed_parameter,
        asks=MISFIT,
        better={"amount": 4},
    ),
    "a type that reads the arguments as something else, such as `timedelta` for `int`": Change(
        "asked",
        "runs",
        "0:00:40 to Ann, new",
        of_minutes,
        asks="reads the arguments in another way",
        better={"euros": "PT40S"},
    ),
    "`read_only` is taken away": Change(
        "asked",
        "runs",
        "40 to Ann",
        before_options=READS,
        asks="said that it changes nothing when this turn began, and does not say so any more",
    ),
    "`read_only` is taken away, and a change needs an approval or a policy's yes": Change(
        "asked",
        "asked",
        "40 to Ann",
        before_options=READS,
        agent={"approval": "changes"},
        asks="does not say so any more",
    ),
    "`requires_approval` is set": Change(
        "runs",
        "asked",
        "40 to Ann",
        after_options={"requires_approval": True},
        asks="this call has none",
    ),
    'the agent\'s `approval` becomes `"changes"` or `"all"`': Change(
        "runs", "asked", "40 to Ann", after_agent={"approval": "all"}, asks="this call has none"
    ),
    "the tool is gone, or has another name": Change(
        "told", "told", "the deployed worker does not have this tool", after_name="transfer"
    ),
    "instructions, model, budget of the agent": Change(
        "runs",
        "runs",
        "40 to Ann",
        after_agent={"instructions": "Be brief.", "model": "scripted:other"},
    ),
}
RUN = {
    "a new parameter with a default",
    "a limit that they break",
    "`requires_approval` is set",
    "the tool is gone, or has another name",
}
"""The changes that meet running turns as well."""
WAITING, RUNNING = "pay note", "note"
"""The tools that the model calls in a turn which waits for a person at the deploy, and in one which
waits for its model.
"""
ARGUMENTS: dict[str, Any] = {"euros": 40}
ROWS = {what: f"a{place}" for place, what in enumerate(CHANGES)}
"""The agent of each row."""


def old(what: str) -> Agent[Any]:
    """The agent before the deploy: `pay` needs approval, and `note` does not."""
    change = CHANGES[what]
    tools: list[Any] = [
        Tool(pay, requires_approval=True, **change.before_options),
        Tool(pay, name="note", **change.before_options),
    ]
    return Agent(**{"name": ROWS[what], "model": "scripted:old", "tools": tools, **change.agent})


def new(what: str) -> Agent[Any]:
    """The agent after the deploy."""
    change = CHANGES[what]
    assert change.after is not None
    names = [f"{name}{change.after_name}" for name in ("pay", "note")]
    tools: list[Any] = [
        Tool(change.after, name=names[0], **{"requires_approval": True, **change.after_options}),
        Tool(change.after, name=names[1], **change.after_options),
    ]
    return dataclasses.replace(old(what), tools=tools, **change.after_agent)


class Model:
    """Calls the tool in the task, and then answers.

    If it holds, the model of a running turn never answers.
    """

    def __init__(self, *, holds: bool) -> None:
        self.holds = holds
        self.held = 0

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """An answer."""
        asked: Any = request.messages[0]
        names = asked.text.partition(": ")[0]
        if names == RUNNING and self.holds:
            self.held += 1
            await asyncio.sleep(600)
        is_done = isinstance(request.messages[-1], ToolMessage)
        parts = (
            (Text(text="done"),)
            if is_done
            else tuple(call(name, **ARGUMENTS) for name in names.split())
        )
        return ModelAnswer(message=AssistantMessage(parts=parts))

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Went:
    """How a turn went: the approvals needed because of the deploy, by tool, and the report."""

    asked: Mapping[str, PendingApproval]
    facts: Sequence[ApprovalNeeded]
    report: AgentReport[Any]

    def fate(self, name: str) -> Fate:
        """The outcome of a call of this tool."""
        return "asked" if name in self.asked else "told" if self.result(name).is_error else "runs"

    def result(self, name: str) -> ToolResult:
        """The result that the model received for it."""
        return next(result for result in self.report.steps[0].results if result.name == name)


async def deployed(address: str) -> dict[tuple[str, str], Went]:
    """Every change at once: how each turn went, by the change and the tools called."""
    temporal, queue = await Client.connect(address), f"tools-{secrets.token_hex(6)}"
    client, model = RecordingClient(temporal, queue), Model(holds=True)
    async with AgentWorker(
        [old(what) for what in CHANGES], providers={"scripted": model}, task_queue=queue
    ).running(temporal, settings=SETTINGS):
        turns = {
            (what, names): await client.start(
                ROWS[what], f"{names}: {what}", id=f"{queue}-{ROWS[what]}-{names}"
            )
            for what in CHANGES
            for names in ([WAITING, RUNNING] if what in RUN else [WAITING])
        }
        await eventually(
            lambda: model.held == len(RUN), "the models of all running turns are asked", within_s=60
        )
        waiting = {key: await pending(turn) for key, turn in turns.items() if key[1] == WAITING}
    after = AgentWorker(
        [new(what) for what in CHANGES],
        providers={"scripted": Model(holds=False)},
        task_queue=queue,
    )
    async with after.running(temporal, settings=SETTINGS):
        for key, one in waiting.items():
            await turns[key].approve(one)
        went = await asyncio.gather(*(follow(turn, CHANGES[key[0]]) for key, turn in turns.items()))
    for turn in turns.values():
        await check_history(temporal, turn.id, await turn.first_run())
    return dict(zip(turns, went, strict=True))


async def pending(turn: Turn[Any]) -> PendingApproval:
    """The calls that wait, as soon as there are any."""
    async with asyncio.timeout(60):
        # history is polled
        while not (found := await turn.pending_approvals()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return found[0]


async def follow(turn: Turn[Any], change: Change) -> Went:
    """Follow the turn to its end; calls that wait because of the deploy are approved."""
    asked, facts = {}, []
    async for event in turn.events():
        if isinstance(event.fact, ApprovalNeeded):
            facts.append(event.fact)
            one = await pending(turn)
            asked[one.tool] = one
            await turn.approve(one, arguments=change.better)
    return Went(asked, facts, await turn.result())


@pytest.mark.accepts("T27", "T28", "T29")
@pytest.mark.slow
async def test_call_that_fits_runs_and_any_other_goes_back_to_whom_it_concerns(
    perdure_server: str,
) -> None:
    """Back to the person who approved it, or to the model; a call with less consent than needed
    goes to a person.
    """
    turns = await deployed(perdure_server)

    asked = [(what, names, name) for what, names in turns for name in names.split()]
    assert {key: turns[key[:2]].fate(key[2]) for key in asked} == {
        key: CHANGES[key[0]].approved if key[2] == "pay" else CHANGES[key[0]].other for key in asked
    }
    for (what, names), went in turns.items():
        for name in names.split():
            check(what, CHANGES[what], name, went)
        assert (went.report.tool_calls, went.report.spent.tool_calls) == (len(names.split()),) * 2


def check(what: str, change: Change, name: str, went: Went) -> None:
    """The messages about a call match the change."""
    result = went.result(name)
    if name in went.asked:
        reason = went.asked[name].reason
        assert change.asks in reason, what
        assert [fact.reason for fact in went.facts].count(reason) == 1, what
        assert not result.is_error, what
    elif result.is_error:
        assert change.says in result.content, what
    else:
        assert result.content == change.says, what


def clerk(function: Callable[..., str]) -> Agent[Any]:
    """An agent whose calls of `pay` need approval."""
    return Agent(
        name="clerk", model="scripted:x", tools=[Tool(function, name="pay", requires_approval=True)]
    )


async def approve_and_deploy(
    client: RecordingClient, registry: Registry, function: Callable[..., str]
) -> tuple[Turn[Any], PendingApproval]:
    """A turn whose call was approved with edited arguments just before the tool changed, and what
    was approved.
    """
    registry.add(clerk(pay), replace=True)
    turn = await client.start("clerk", "go")
    first = await pending(turn)
    registry.add(clerk(function), replace=True)
    await turn.approve(first, arguments={"euros": 30}, by="anna")
    async for event in turn.events():
        if isinstance(event.fact, ApprovalNeeded):
            await pending(turn)
            return turn, first
    raise AssertionError("nobody was asked")


@pytest.mark.accepts("T32")
async def test_approval_that_was_given_before_does_not_count_for_the_deployed_tool(
    runtime: Runtime, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither does the id of the call; the edited arguments are what is shown, and they run unless
    others are given.
    """
    caplog.set_level(logging.INFO, "perdure.turns")
    registry = Registry()
    model = ScriptedModel(
        calls(call("pay", euros=4000)), says("done"), calls(call("pay", euros=4000)), says("done")
    )
    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:
        turn, first = await approve_and_deploy(client, registry, of_minutes)
        second = await pending(turn)
        with pytest.raises(errors.ApprovalConflictError, match="the approval names the arguments"):
            await turn.approve(first)
        with pytest.raises(
            errors.ApprovalConflictError, match="approve it with its token; nothing was decided"
        ):
            await client.turn(turn.id).approve(first.call_id)
        await decide(client, ApprovalOptions(turn.id))
        await client.turn(turn.id).approve(first.call_id, token=second.token, by="bob")
        approved = (await turn.result()).steps[0].results[0]
        denied, _ = await approve_and_deploy(client, registry, of_minutes)
        await client.turn(denied.id).deny(first.call_id, "too much")
        refused = (await denied.result()).steps[0].results[0]

    shown = capsys.readouterr().out
    assert (first.reason, second.arguments) == ("", '{"euros":30}')
    assert f"{second.call_id}:{second.token}  pay  expires in" in shown
    assert second.reason.split(". Its")[0] in shown
    assert (approved.content.splitlines()[0], approved.is_error) == ("0:00:30 to Ann, new", False)
    assert refused.content == "This call was not run: it was denied: too much"
    # a field that Perdure adds to the record
    lines = [getattr(record, "perdure") for record in caplog.records]  # noqa: B009
    assert [line.get("decided_by") for line in lines if line["event"] == "tool_call"] == [
        "bob",
        None,
    ]


@pytest.mark.accepts("T30")
def test_table_of_the_documentation_is_that_of_the_test() -> None:
    """Each row says what was observed here."""
    rows = re.findall(
        r"^\| (.+?) \| (.+?) \| (.+?) \|$",
        PAGE.read_text(encoding="utf-8").partition("| what a deploy changes |")[2],
        re.MULTILINE,
    )

    assert rows[: len(CHANGES)] == [
        (what, WORDS[change.approved], WORDS[change.other]) for what, change in CHANGES.items()
    ]
