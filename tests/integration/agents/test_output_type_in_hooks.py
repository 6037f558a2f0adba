"""The output type of an agent in its middleware, observers and callers, for every kind of start,
and after a deploy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, create_model, field_validator

from perdure import (
    Agent,
    AgentReport,
    Logger,
    Middleware,
    Observer,
    OutputGuardrail,
    Recovery,
    Registry,
    TurnInfo,
    errors,
    tool,
)
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

from ...conftest import Runtime


class Resolution(BaseModel):
    """How a ticket ends."""

    refund: int
    note: str = ""

    @field_validator("refund")
    @classmethod
    def _is_small(cls, refund: int) -> int:
        if refund > 100:
            raise ValueError("refunds end at 100")
        return refund


class Other(BaseModel):
    """The type of a caller's."""

    total: int


@dataclass
class Seen(Observer):
    """The outputs that the agent's own code received."""

    outputs: list[Any] = field(default_factory=list)

    def check(self, report: AgentReport[Any]) -> bool:
        """A guardrail."""
        self.outputs.append(report.output)
        return True

    async def on_end(self, turn: TurnInfo, report: AgentReport[Any]) -> None:
        """An observer."""
        self.outputs.append(report.output)


def agent(seen: Seen, output: Any, **fields: Any) -> Agent[Any]:
    """An agent whose own code reads its output."""
    return Agent(
        name="support",
        model="scripted:x",
        output=output,
        middleware=[OutputGuardrail(seen.check)],
        observers=[seen],
        **fields,
    )


ANSWER = '{"refund": 40, "note": "paid"}'
STARTS: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "the agent": (Resolution, {}, Resolution(refund=40, note="paid")),
    "its name": (Resolution, {}, Resolution(refund=40, note="paid")),
    "its name and its type": (
        Resolution,
        {"output": Resolution},
        Resolution(refund=40, note="paid"),
    ),
    "its name and text": (Resolution, {"output": str}, Resolution(refund=40, note="paid")),
    "its name and another version of its type": (
        Resolution,
        {"output": create_model("Resolution", refund=int, note=str, tone=str)},
        Resolution(refund=40, note="paid"),
    ),
    "the name of an agent without a type, and a type": (None, {"output": Resolution}, ANSWER),
}


@pytest.mark.slow
@pytest.mark.accepts("X5")
async def test_code_of_an_agent_gets_its_declared_type_however_the_turn_was_started(
    runtime: Runtime,
) -> None:
    """A guardrail before the answer is accepted, and an observer at the end."""
    answers = {
        how: ANSWER if "version" not in how else '{"refund": 40, "note": "paid", "tone": "dry"}'
        for how in STARTS
    }
    model = ByTask({how: ScriptedModel(said) for how, said in answers.items()})
    registry, got = Registry(), {}
    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:
        for how, (output, start, _) in STARTS.items():
            seen = Seen()
            registry.add(agent(seen, output), replace=True)
            await client.run(agent(seen, output) if how == "the agent" else "support", how, **start)
            got[how] = seen.outputs

    assert got == {how: [expected] * 2 for how, (_, _, expected) in STARTS.items()}


@pytest.mark.accepts("X5")
async def test_answer_of_another_type_than_the_agents_is_refused_before_its_guardrail(
    runtime: Runtime,
) -> None:
    """A type whose fields all have defaults accepts any answer, and a guardrail would see only
    defaults.
    """
    defaults = create_model("Defaults", refund=(int, 0))
    seen = Seen()
    async with runtime(agent(seen, defaults), model=ScriptedModel('{"total": 400}')) as client:
        with pytest.raises(errors.OutputInvalidError) as caught:
            await client.run("support", "go", output=Other)

    assert (
        caught.value.message
        == "the answer does not fit Defaults, the output type of the deployed agent support, which"
        " its middleware gets: total: extra_forbidden; the turn was started with"
        " another type: start it with Defaults, or without output="
    )
    assert seen.outputs == [None], (
        "the guardrail was not asked, and the observer hears of an end without an output"
    )


@pytest.mark.accepts("X7")
async def test_validator_of_an_agents_type_is_asked_where_the_caller_names_the_type(
    runtime: Runtime,
) -> None:
    """Its message reaches the model, which answers again."""
    model = ScriptedModel('{"refund": 400, "note": ""}', ANSWER)
    async with runtime(agent(Seen(), Resolution), model=model) as client:
        report = await client.run("support", "go", output=Resolution)

    assert report.output == Resolution(refund=40, note="paid")
    assert "refunds end at 100" in model.requests[1].messages[-1].text  # type: ignore[union-attr]


class Strict(BaseModel):
    """A base class that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")


DEPLOYS: dict[str, tuple[Any, Any]] = {
    "a new field with a default": (
        create_model("Resolution", refund=int, note=str, tone=(str, "dry")),
        {"refund": 40, "note": "paid", "tone": "dry"},
    ),
    "a wider type": (
        create_model("Resolution", refund=float, note=str),
        {"refund": 40.0, "note": "paid"},
    ),
    "a field is taken away": (
        create_model("Resolution", __base__=Strict, refund=int),
        {"refund": 40},
    ),
    "a description": (
        create_model("Resolution", __doc__="Anew.", refund=int, note=str),
        {"refund": 40, "note": "paid"},
    ),
    "the type is taken away": (None, ANSWER),
    "a new field without a default": (
        create_model("Resolution", refund=int, tone=str),
        "tone: missing",
    ),
    "the name of a field": (create_model("Resolution", euros=int), "euros: missing"),
}


MISFIT = (
    "the answer does not fit Resolution, the output type of the deployed agent support, which its"
    " middleware gets: {}; the turn began with another version of the type, and its report's"
    " messages hold the answer as it was recorded"
)


@pytest.mark.accepts("X6")
@pytest.mark.slow
async def test_answer_of_a_turn_that_began_with_an_earlier_version_of_the_type(
    runtime: Runtime,
) -> None:
    """The deploy happens between two answers: the answer is read as the new type, and a mismatch is
    an error with the reason.
    """
    registry, got = Registry(), {}
    deployed = {how: Seen() for how in DEPLOYS}

    @tool
    def deploy(how: str) -> str:
        registry.add(agent(deployed[how], DEPLOYS[how][0]), replace=True)
        return "deployed"

    model = ByTask(
        {how: ScriptedModel(calls(call("deploy", how=how)), says(ANSWER)) for how in DEPLOYS}
    )
    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:
        for how in DEPLOYS:
            registry.add(agent(Seen(), Resolution, tools=[deploy]), replace=True)
            turn = await client.start("support", how)
            try:
                await turn.result()
                got[how] = [
                    getattr(output, "model_dump", lambda output=output: output)()
                    for output in deployed[how].outputs
                ]
            except errors.OutputInvalidError as error:
                got[how] = [error.message]

    for how, (_, expected) in DEPLOYS.items():
        if "missing" in expected:
            assert got[how] == [MISFIT.format(expected)]
        else:
            assert got[how] == [expected] * 2


@pytest.mark.accepts("X8")
async def test_caller_with_a_newer_type_reads_an_earlier_answer(runtime: Runtime) -> None:
    """Unknown fields are left out, and missing ones get their default; otherwise the error says
    what is missing.
    """
    fewer = create_model("Resolution", __base__=Strict, refund=int, tone=(str, "dry"))
    async with runtime(agent(Seen(), Resolution), model=ScriptedModel(ANSWER)) as client:
        turn = await client.start("support", "go")
        read = await turn.typed(fewer).result()
        with pytest.raises(errors.OutputInvalidError) as caught:
            await turn.typed(create_model("Resolution", refund=int, tone=str)).result()
        text = await turn.typed(str).result()

    assert (read.output.model_dump(), text.output) == ({"refund": 40, "tone": "dry"}, ANSWER)
    assert (
        caught.value.message
        == "scripted: the answer is not what was asked for: tone: Field required; the turn was held"
        " to another type or another version of this one, and typed(str) reads its answer as"
        " text"
    )


@pytest.mark.accepts("X6")
async def test_guardrail_is_found_where_a_deploy_has_moved_it(runtime: Runtime) -> None:
    """A turn is pinned to positions, and a middleware in front of the guardrail must not be called
    instead of it; a missing one is an error.
    """
    registry, seen = Registry(), Seen()
    guarded = Agent(name="support", model="scripted:x", middleware=[OutputGuardrail(seen.check)])
    lists: dict[str, list[Middleware]] = {
        "moved": [Recovery(), Logger(), *guarded.middleware],
        "gone": [Recovery()],
    }

    @tool
    def deploy(how: str) -> str:
        registry.add(replace(guarded, middleware=lists[how]), replace=True)
        return "deployed"

    model = ByTask(
        {how: ScriptedModel(calls(call("deploy", how=how)), says("done")) for how in lists}
    )
    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:
        registry.add(replace(guarded, tools=[deploy]), replace=True)
        await client.run("support", "moved")
        registry.add(
            replace(guarded, tools=[deploy], middleware=[Recovery(), *guarded.middleware]),
            replace=True,
        )
        with pytest.raises(
            errors.ConfigurationError,
            match="no longer has middleware number 2, which was a OutputGuardrail",
        ):
            await client.run("support", "gone")

    assert seen.outputs == ["done"]
