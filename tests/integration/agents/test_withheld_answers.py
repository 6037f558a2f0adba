"""Answers that the checks of an agent have not let pass, where a transcript goes on from them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel, create_model, field_validator

from perdure import Agent, AgentReport, OutputGuardrail, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.clients import Turn
from perdure.session.facts import TurnRecorded
from perdure.testing import ScriptedModel, call, calls, fails, says
from perdure.turn.facts import TurnStarted
from perdure.turn.withheld import MARK, OBJECTION
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, UserMessage
from perdure.values.reports import Outcome, Step, StopReason

from ...conftest import Runtime, eventually
from ...support.delegating import spawn
from ...support.long_turns import begin, filling, reader, runs_of
from ...support.resets import reset, task_ends
from ...support.scheduling import DAILY, at, new_id, turns_of
from ...support.spending import SOON_S, app, ended
from ...support.steered import MORE, SteeredModel

REFUSED = f"{MARK} The turn ended: failed (GUARDRAIL).]"
UNCHECKED = f"{MARK} The turn ended: completed.]"
SECRET = "the PASSWORD is hunter2"
NO_SECRETS = OutputGuardrail(lambda report: "PASSWORD" not in str(report.output))


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen"


def guarded(**fields: Any) -> Agent:
    """An agent whose answers are checked."""
    given = {"name": "clerk", "model": "scripted:m", "tools": [look], "middleware": [NO_SECRETS]}
    return Agent(**{**given, **fields})


class Greeting(BaseModel):
    """What an agent with an output type answers."""

    text: Literal["Hello.", "Bye."]


HELLO = json.dumps({"text": "Hello."})
WRONG = json.dumps({"text": SECRET})
EARLY: dict[str, tuple[type, Callable[[], ScriptedModel], str]] = {
    "steered": (str, lambda: SteeredModel(SECRET, "Hello.", "Yes.", "Sure.", during=SECRET), MORE),
    "objected": (Greeting, lambda: ScriptedModel(WRONG, HELLO, HELLO, HELLO), OBJECTION),
}
"""Answers that are not the last of their turn: the type that is asked for, the model, and the
message after the answer.
"""


def answers(messages: Any) -> list[str]:
    """The texts of the model in a transcript."""
    return [one.text for one in messages if isinstance(one, AssistantMessage)]


@pytest.mark.accepts("G22")
async def test_refused_answer_is_withheld_from_its_session_and_the_next_model(
    runtime: Runtime,
) -> None:
    """Messages, conversation, events and the next request have a mark that says how the turn ended;
    what the model said beside its calls, and an answer that passes, are as they were.
    """
    model = ScriptedModel(calls(call("look"), text="I look."), says(SECRET), says("Hello."))
    async with runtime(guarded(), model=model) as client:
        session = client.session("desk", agent="clerk")
        with pytest.raises(errors.GuardrailError) as caught:
            await (await session.say("What is it?")).result()
        report = await (await session.say("And now?")).result()
        await session.close()
        parts = [one.fact async for one in session.events() if isinstance(one.fact, TurnRecorded)]
        messages, conversation = await session.messages(), await session.conversation()

    assert answers(messages) == answers(report.messages) == ["I look.", REFUSED, "Hello."]
    assert answers(model.requests[2].messages) == ["I look.", REFUSED]
    assert [one.outcome for one in conversation.turns] == [Outcome.FAILED, Outcome.COMPLETED]
    assert caught.value.report is not None
    assert answers(caught.value.report.messages) == ["I look.", REFUSED]
    shown = [conversation, parts, report, caught.value.report, model.requests[2]]
    assert [one for one in map(str, shown) if "hunter2" in one] == []


@pytest.mark.table(1)
@pytest.mark.accepts("G36")
@pytest.mark.parametrize("way", EARLY)
async def test_answer_that_is_not_the_last_is_withheld(runtime: Runtime, way: str) -> None:
    """The checks have not seen it: its turn went on because of a message of the user, or because
    the answer did not fit the caller's type. The last one, which has passed, is as it was.
    """
    output, model_of, after = EARLY[way]
    model = model_of()
    async with runtime(guarded(), model=model) as client:
        session = client.session(f"early-{way}", agent="clerk", output=output)
        report = await (await session.say("What is it?")).result()
        await (await session.say("And now?")).result()
        await session.close()
        messages, events = await session.messages(), [one async for one in session.events()]

    last = "Hello." if output is str else HELLO
    assert answers(report.messages) == [UNCHECKED, last]
    assert [step.message.text for step in report.steps] == [UNCHECKED, last]
    assert answers(model.requests[2].messages) == [UNCHECKED, last]
    assert answers(messages)[:2] == [UNCHECKED, last]
    assert [one.text for one in messages if isinstance(one, UserMessage)] == [
        "What is it?",
        after,
        "And now?",
    ]
    shown = [report, messages, [one.fact for one in events], model.requests[2]]
    assert [one for one in map(str, shown) if "hunter2" in one] == []


@pytest.mark.slow
@pytest.mark.accepts("G36")
@pytest.mark.parametrize("way", EARLY)
async def test_fork_has_a_mark_for_an_answer_that_is_not_the_last(
    runtime: Runtime, way: str
) -> None:
    """Whether it goes on from that answer or from the last one, which is as it was."""
    output, model_of, _ = EARLY[way]
    model, last = model_of(), "Hello." if output is str else HELLO
    async with runtime(guarded(), model=model) as client:
        turn = await client.start("clerk", "What is it?", output=output)
        await turn.result()
        forked = [await (await turn.fork(step, say="Sure?")).result() for step in (1, 2)]

    assert answers(model.requests[2].messages) == [f"{MARK}]"]
    assert answers(model.requests[3].messages) == [f"{MARK}]", last]
    assert [answers(one.messages)[:-1] for one in forked] == [[f"{MARK}]"], [f"{MARK}]", last]]
    assert [one for one in map(str, [forked, *model.requests[2:]]) if "hunter2" in one] == []


@pytest.mark.slow
@pytest.mark.accepts("G37")
async def test_error_of_a_guarded_agent_quotes_nothing(runtime: Runtime) -> None:
    """Not the words of a model that declines, nor what does not fit the type of a caller: the
    error has the path and the rule, and the model the whole objection.
    """
    model = ScriptedModel(says(SECRET, stop=StopReason.REFUSED), WRONG, WRONG, WRONG)
    async with runtime(guarded(), model=model) as client:
        declined = await ended(await client.start("clerk", "go"))
        turn: Turn[Any] = await client.start("clerk", "go", output=Greeting)
        objected = await ended(turn)

    assert isinstance(declined, errors.LLMRefusedError)
    assert declined.message == "scripted declined to answer"
    assert isinstance(objected, errors.OutputInvalidError)
    assert objected.message == "scripted: the answer is not what was asked for: text: enum"
    assert "hunter2" not in str([declined.report, objected.report])
    assert f"{SECRET}' is not one of" in str(model.requests[-1].messages[-1]).replace("\\", "")


class Picky(BaseModel):
    """An output type with a validator that is broken."""

    text: str

    @field_validator("text")
    @classmethod
    def _is_known(cls, text: str) -> str:
        raise KeyError(text)


PICKY = create_model("Picky", __doc__="Another version of it.", text=str)


def breaks(report: AgentReport[Any]) -> bool:
    """A check that is broken."""
    raise KeyError(report.output)


def is_refused(report: AgentReport[Any]) -> bool:
    """A check that asks a model, which declines."""
    raise errors.LLMRefusedError(f"the judge declined to answer: {report.output}")


@pytest.mark.table(1)
@pytest.mark.accepts("G37")
@pytest.mark.parametrize(
    ("fields", "output", "reason"),
    [
        ({"output": Picky}, PICKY, "its middleware gets: KeyError (FILE in _is_known)"),
        ({"middleware": [OutputGuardrail(breaks)]}, None, "failed: KeyError (FILE in breaks)"),
        (
            {"middleware": [OutputGuardrail(is_refused)]},
            None,
            "failed: LLMRefusedError (FILE in is_refused)",
        ),
    ],
    ids=["validator", "check", "judge"],
)
async def test_error_of_what_looks_at_an_answer_does_not_quote_the_answer(
    runtime: Runtime, fields: dict[str, Any], output: Any, reason: str
) -> None:
    """It has the class of the exception and its place."""
    model = ScriptedModel(WRONG)
    async with runtime(guarded(**fields), model=model) as client:
        failed = await ended(await client.start("clerk", "go", output=output))

    assert isinstance(failed, errors.PerdureError)
    assert reason in re.sub(r"test_withheld_answers\.py:\d+", "FILE", failed.message)
    assert "hunter2" not in str([failed.message, failed.context, failed.report])


@pytest.mark.slow
@pytest.mark.accepts("G37")
async def test_error_of_an_agent_without_checks_quotes_the_answer(runtime: Runtime) -> None:
    model = ScriptedModel(says("I may not.", stop=StopReason.REFUSED), WRONG, WRONG, WRONG)
    async with runtime(guarded(middleware=[]), model=model) as client:
        declined = await ended(await client.start("clerk", "go"))
        turn: Turn[Any] = await client.start("clerk", "go", output=Greeting)
        objected = await ended(turn)

    assert isinstance(declined, errors.LLMRefusedError)
    assert declined.message == "scripted declined to answer: I may not."
    assert isinstance(objected, errors.OutputInvalidError)
    assert SECRET in objected.message


@pytest.mark.accepts("G38")
async def test_steps_for_a_caller_come_after_their_checks(runtime: Runtime) -> None:
    """One that is not the last, and one that is refused, come as marks, in their order."""
    model = SteeredModel(
        calls(call("look"), text="I look."), SECRET, "Hello.", f"Again: {SECRET}", during=SECRET
    )
    passed: list[Step] = []
    refused: list[Step] = []
    async with runtime(guarded(), model=model) as client:
        await client.run("clerk", "go", on_step=passed.append)
        turn = await client.start("clerk", "go")
        with pytest.raises(errors.GuardrailError):
            await turn.result(on_step=refused.append)

    assert [(step.number, step.message.text) for step in passed] == [
        (1, "I look."),
        (2, f"{MARK}]"),
        (3, "Hello."),
    ]
    assert [(step.number, step.message.text) for step in refused] == [(1, REFUSED)]


@pytest.mark.slow
@pytest.mark.accepts("G23")
async def test_fork_of_a_refused_answer_has_the_mark(runtime: Runtime) -> None:
    """A message after it is answered by a model that sees the mark, and a turn that is resumed asks
    the model again without it.
    """
    model = ScriptedModel(calls(call("look")), says(SECRET), says("Sorry."), says("Nothing."))
    async with runtime(guarded(), model=model) as client:
        turn = await client.start("clerk", "What is it?")
        with pytest.raises(errors.GuardrailError):
            await turn.result()
        forked = await (await turn.fork(say="Say it without the secret.")).result()
        resumed = await (await turn.resume()).result()

    assert answers(model.requests[2].messages) == ["", f"{MARK}]"]
    assert answers(forked.messages) == ["", f"{MARK}]", "Sorry."]
    assert answers(resumed.messages) == ["", "Nothing."]


@pytest.mark.accepts("G23")
async def test_fork_of_an_accepted_answer_has_the_answer(runtime: Runtime) -> None:
    """The checks have let it pass since."""
    model = ScriptedModel(says("It is blue."), says("Yes."))
    async with runtime(guarded(), model=model) as client:
        turn = await client.start("clerk", "What is it?")
        await turn.result()
        forked = await (await turn.fork(say="Sure?")).result()

    assert answers(forked.messages) == ["It is blue.", "Yes."]


@pytest.mark.slow
@pytest.mark.accepts("G23")
async def test_resumed_turn_of_an_agent_without_checks_withholds_nothing(runtime: Runtime) -> None:
    """Nor does its input ask for it: a worker of an earlier release would withhold the answers."""
    refused = fails(errors.LLMAuthError("no"))
    model = SteeredModel(SECRET, calls(call("look")), refused, "Yes.", during=SECRET)
    async with runtime(guarded(middleware=[]), model=model) as client:
        turn = await client.start("clerk", "What is it?")
        await ended(turn)
        resumed = await turn.resume()
        report = await resumed.result()
        [started] = [
            event.fact async for event in resumed.events() if isinstance(event.fact, TurnStarted)
        ]

    assert answers(report.messages) == [SECRET, "", "Yes."]
    assert started.request.origin is not None
    assert not started.request.origin.withheld


@pytest.mark.accepts("G24")
async def test_words_beside_calls_of_a_guarded_delegate_are_not_its_last_words(
    runtime: Runtime,
) -> None:
    """It fails before its checks have let an answer pass: its parent's model, its report, its
    memo, its status and the last event have none of them.
    """
    kid = guarded(name="kid", max_iterations=1, on_exhausted="fail")
    boss = Agent(name="boss", model="scripted:b", delegates=["kid"])
    asks = calls(call("delegate_to_agent", agent="kid", task="x"))
    models = {
        "boss": ScriptedModel(asks, says("fin")),
        "kid": ScriptedModel(calls(call("look"), text=SECRET)),
    }
    async with runtime([kid, boss], model=models) as client:
        report = await client.run("boss", "go")
        below = client.turn(report.children[0].turn_id)
        with pytest.raises(errors.PerdureError) as caught:
            await below.result()
        status = await below.status()
        last = [one async for one in below.events()][-1]
        memo = await (await client.temporal.get_workflow_handle(below.id).describe()).memo()

    assert "MAX_ITERATIONS" in str(models["boss"].requests[1].messages[-1])
    assert caught.value.report is not None
    assert (caught.value.report.last_text, status.last_text, last.text) == ("", "", "")
    shown = [models["boss"].requests[1], report, memo, last, caught.value]
    assert [one for one in map(str, shown) if "hunter2" in one] == []


@pytest.mark.slow
@pytest.mark.accepts("G22")
async def test_refused_answer_of_a_long_turn_is_withheld(runtime: Runtime) -> None:
    """Also in a later run of it, which a reader puts together with the runs before; and a turn that
    fails there has no last words.
    """
    clerk = reader(name="clerk", middleware=[NO_SECRETS], parallel_tools=True)
    model = ScriptedModel(*filling(), says(SECRET), *filling(), fails(errors.LLMAuthError("no")))
    async with runtime(app(clerk), model=model) as client:
        turns = [await begin(client, "clerk")]
        ends = [await ended(turns[0])]
        turns.append(await begin(client, "clerk"))
        ends.append(await ended(turns[1]))
        runs = [len(await runs_of(client, turn)) for turn in turns]

    assert min(runs) > 1
    reports = [end.report for end in ends if isinstance(end, errors.PerdureError)]
    assert [report and report.output for report in reports] == [None, None]
    assert reports[0] is not None
    assert answers(reports[0].messages) == ["", "", REFUSED]
    assert [step.message.text for step in reports[0].steps] == ["", "", REFUSED]


@pytest.mark.slow
@pytest.mark.accepts("G36")
async def test_fork_in_a_later_run_has_a_mark_for_an_answer_of_an_earlier_one(
    runtime: Runtime,
) -> None:
    """It reads that run alone, whose steps do not include the answer."""
    clerk = reader(name="clerk", middleware=[NO_SECRETS], parallel_tools=True)
    model = SteeredModel(SECRET, *filling(), "Hello.", "Sure.", during=SECRET)
    async with runtime(app(clerk), model=model) as client:
        turn = await begin(client, "clerk")
        await turn.result()
        runs = await runs_of(client, turn)
        forked = await (await turn.fork(say="Sure?")).result()

    assert len(runs) > 1
    assert answers(model.requests[-1].messages) == [f"{MARK}]", "", "", "Hello."]
    assert answers(forked.messages) == [f"{MARK}]", "", "", "Hello.", "Sure."]


class Late(ScriptedModel):
    """A model that answers when another one is asked for its second answer."""

    def __init__(self, other: ScriptedModel, *replies: Any) -> None:
        super().__init__(*replies)
        self._other = other

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Return the next reply, then."""
        await eventually(lambda: self._other.call_count == 2, "the other delegate works")
        return await super().complete(request)


AT_ONCE = {
    "spawn_agents": [spawn(("kid", "say"), ("busy", "work"))],
    "parallel tools": [
        calls(*(call("delegate_to_agent", agent=name, task="x") for name in ("kid", "busy")))
    ],
}
"""Answers that let two delegates run at once."""


@pytest.mark.slow
@pytest.mark.accepts("Y121")
@pytest.mark.parametrize("way", AT_ONCE)
async def test_guarded_delegates_at_once_tell_nothing_of_what_was_refused(
    runtime: Runtime, way: str
) -> None:
    """The answer of one is refused while the other works, which said something beside its calls.
    `spawn_agents` cancels the other one then; otherwise it fails at its limit.
    """
    boss = Agent(name="boss", model="scripted:b", delegates=["kid", "busy"], parallel_tools=True)
    busy_agent = guarded(name="busy", max_iterations=2, on_exhausted="fail")
    busy = ScriptedModel(
        *[calls(call("look"), text=SECRET)] * (1 if way == "spawn_agents" else 2),
        *[says("late", delay=timedelta(seconds=60))] * (way == "spawn_agents"),
    )
    models = {
        "boss": ScriptedModel(*AT_ONCE[way], says("fin")),
        "kid": Late(busy, says(SECRET)),
        "busy": busy,
    }
    async with runtime([boss, guarded(name="kid"), busy_agent], model=models) as client:
        turn = await client.start("boss", "go")
        report = await turn.result()
        status = await turn.status()
        told = [event.text async for event in turn.events()]
        memo = await (await client.temporal.get_workflow_handle(turn.id).describe()).memo()

    asked = models["boss"].requests[1]
    assert "GUARDRAIL" in str(asked)
    assert ("TURN_CANCELLED" if way == "spawn_agents" else "MAX_ITERATIONS") in str(asked)
    assert [one for one in map(str, [asked, report, status, told, memo]) if "hunter2" in one] == []


@pytest.mark.accepts("Y121")
async def test_refused_answer_is_not_the_last_output_of_its_schedule(runtime: Runtime) -> None:
    """The next turn gets the last answer that has passed; status, results and lists have none."""
    model = ScriptedModel(says("Fine."), says(SECRET), says("Good."))
    async with runtime(guarded(), model=model) as client:
        daily = await client.create_schedule(
            new_id("guarded"), "clerk", "Go on.", **DAILY, remember_last=True
        )
        slots = await daily.backfill(at(2), at(5))
        ends = [await ended(turn) for turn in await turns_of(client, daily, slots)]
        told = [await daily.status(), [one async for one in client.turns(schedule=daily.id)]]
        async with asyncio.timeout(SOON_S):
            async for result in daily.results():
                told.append(result)
                if len(told) == 5:
                    break
        await daily.delete()

    assert [type(end).__name__ for end in ends] == ["AgentReport", "GuardrailError", "AgentReport"]
    opening = model.requests[2].messages[0]
    assert isinstance(opening, UserMessage)
    assert "<last_output>\nFine.\n</last_output>" in opening.text
    shown = [*told, model.requests[2], ends[2]]
    assert [one for one in map(str, shown) if "hunter2" in one] == []


@pytest.mark.slow
@pytest.mark.accepts("Y121")
async def test_refused_answer_is_not_in_the_turn_after_a_reset(runtime: Runtime) -> None:
    """The turn is reset to before the answer, and another one passes. A fork has that one."""
    model = ScriptedModel(calls(call("look")), says(SECRET), says("Hello."), says("Yes."))
    async with runtime(guarded(), model=model) as client:
        turn = await client.start("clerk", "What is it?")
        with pytest.raises(errors.GuardrailError):
            await turn.result()
        before_answer = task_ends(await client.history(turn))[2]
        again = await reset(client, turn, before_answer)
        report = await again.result()
        status, events = await again.status(), [event.fact async for event in again.events()]
        forked = await (await again.fork(say="Sure?")).result()

    assert answers(report.messages) == ["", "Hello."]
    assert answers(forked.messages) == ["", "Hello.", "Yes."]
    shown = [report, status, events, forked, *model.requests[2:]]
    assert [one for one in map(str, shown) if "hunter2" in one] == []
