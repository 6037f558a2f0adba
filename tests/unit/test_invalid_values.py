"""Invalid values are refused when they are built, with the expected type; values from an older
release are read unchanged.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Agent,
    Budget,
    Delegate,
    Deny,
    InputGuardrail,
    Logger,
    MCPServer,
    ModelProfile,
    Observer,
    OutputGuardrail,
    Price,
    Registry,
    RequestOptions,
    RequireApproval,
    Skill,
    Task,
    Timeout,
    Tool,
    Toolbox,
    errors,
    tool,
    validation,
)
from perdure.toolboxes import fetch, shell
from perdure.turn.approvals import Ruling
from perdure.values.budgets import Remaining
from perdure.worker import AgentWorker


@tool
def look() -> str:
    """Look."""
    return "seen"


class Audit(Observer):
    """Sees everything."""


class Silent:
    """An object whose `repr` raises."""

    def __repr__(self) -> str:
        raise ValueError("no")


TIME = "a timedelta, longer than zero and at most 3650 days"
FROM_1 = "a whole number from 1 to 1000000000"

WRONG: list[tuple[str, Any, str]] = [
    ("description", 5, "description must be a string, not 5"),
    ("instructions", None, "instructions must be a string, not None"),
    ("instructions", Silent(), "instructions must be a string, not an instance of Silent"),
    ("model", 5, "model must be a string, or a list of strings, not 5"),
    ("model", ["a:b", 1], "model[1] must be a string, not 1"),
    ("model", " ", "name a model, such as model='openai:gpt-5-mini'"),
    ("max_iterations", "5", f"max_iterations must be {FROM_1}, or 'unlimited', not '5'"),
    ("max_iterations", 2.5, f"max_iterations must be {FROM_1}, or 'unlimited', not 2.5"),
    ("max_iterations", True, f"max_iterations must be {FROM_1}, or 'unlimited', not True"),
    ("max_iterations", 10**10, f"max_iterations must be {FROM_1}, or 'unlimited', not 10000000000"),
    ("max_depth", -1, "max_depth must be a whole number from 0 to 1000000000, not -1"),
    ("max_depth", "x", "max_depth must be a whole number from 0 to 1000000000, not 'x'"),
    ("max_children", 0, f"max_children must be {FROM_1}, not 0"),
    ("children_at_once", True, f"children_at_once must be {FROM_1}, not True"),
    ("parallel_tools", "no", "parallel_tools must be True or False, not 'no'"),
    ("tools", None, "tools must be a list, each item a tool or a function, not None"),
    ("tools", look, "tools must be a list, each item a tool or a function, not Tool('look')"),
    ("tools", [look, 5], "tools[1] must be a tool or a function, not 5"),
    ("toolboxes", [look], "toolboxes[0] must be a Toolbox or an MCPServer, not Tool('look')"),
    (
        "toolboxes",
        Toolbox("x"),
        (
            "toolboxes must be a list, each item a Toolbox or an MCPServer, not Toolbox(name='x',"
            " tools=())"
        ),
    ),
    (
        "skills",
        "skills",
        "skills must be a list, each item a Skill, or the Path of a folder, not 'skills'",
    ),
    ("resolver", 5, "resolver must be an object with a method resolve(name), or None, not 5"),
    ("budget", "0.5", "budget must be a Budget, such as Budget(usd='0.50'), or None, not '0.5'"),
    (
        "budget",
        {"usd": "1"},
        "budget must be a Budget, such as Budget(usd='0.50'), or None, not {'usd': '1'}",
    ),
    (
        "options",
        {"temperature": 1},
        (
            "options must be RequestOptions, such as RequestOptions(temperature=0), not"
            " {'temperature': 1}"
        ),
    ),
    (
        "options",
        None,
        "options must be RequestOptions, such as RequestOptions(temperature=0), not None",
    ),
    ("policy", 5, "policy must be a function, or None, not 5"),
    ("policy", Audit, "policy must be a function, or None, not the class Audit itself"),
    (
        "middleware",
        [InputGuardrail],
        "middleware[0] must be an instance of Middleware, not the class InputGuardrail itself",
    ),
    (
        "middleware",
        Logger(),
        "middleware must be a list, each item an instance of Middleware, not Logger(level=20)",
    ),
    (
        "observers",
        [Audit],
        "observers[0] must be an instance of Observer, not the class Audit itself",
    ),
    ("delegates", [5], "delegates[0] must be a name, a Delegate or an Agent, not 5"),
    ("approval", None, "approval must be 'marked', 'changes' or 'all', not None"),
    ("on_loop", ["fail"], "on_loop must be 'fail', 'warn' or 'ignore', not ['fail']"),
]


@pytest.mark.parametrize(
    ("field", "given", "words"),
    WRONG,
    ids=[f"{field}-{number}" for number, (field, *_) in enumerate(WRONG)],
)
def test_agent_that_cannot_work_is_refused_when_it_is_built(
    field: str, given: Any, words: str
) -> None:
    """The message has the agent, the field, what is expected and what was given."""
    with pytest.raises(errors.ConfigurationError) as caught:
        Agent(**{"name": "clerk", "model": "scripted:clerk", field: given})

    assert str(caught.value) == f"agent clerk: {words}"


@pytest.mark.parametrize("name", [5, None, "", "é"])
def test_agent_needs_a_name(name: Any) -> None:
    """A short string."""
    with pytest.raises(errors.ConfigurationError) as caught:
        Agent(name=name, model="scripted:clerk")

    assert str(caught.value) == f"agent name {name!r}: use 1 to 64 of A-Z, a-z, 0-9, _ and -"


def test_any_iterable_is_a_list() -> None:
    """Even one that can be iterated only once."""
    logger, audit = Logger(), Audit()

    agent = Agent(
        name="clerk",
        model=(name for name in ("a:a", "b:b")),  # type: ignore[arg-type]
        tools=iter([look]),
        middleware={logger},
        observers=iter([audit]),
    )

    assert (agent.models, agent.tools, agent.middleware, agent.observers) == (
        ("a:a", "b:b"),
        (look,),
        (logger,),
        (audit,),
    )


NAMED: dict[str, tuple[Callable[[], object], str]] = {
    "tool's name": (lambda: tool(name=5)(look.function), "tool name 5: use 1 to 64"),  # type: ignore[call-overload]
    "tool's empty name": (lambda: tool(name="")(look.function), "tool name '': use 1 to 64"),
    "tool's description": (
        lambda: Tool(look.function, description=5),  # type: ignore[arg-type]
        "tool look: description must be a string, or None, not 5",
    ),
    "read_only": (
        lambda: tool(read_only="no")(look.function),  # type: ignore[call-overload]
        "tool look: read_only must be True or False, not 'no'",
    ),
    "toolbox": (lambda: Toolbox(5), "toolbox: name must be a string, not 5"),  # type: ignore[arg-type]
    "tool of a toolbox": (
        lambda: Toolbox("x", [5]),  # type: ignore[list-item]
        "toolbox 'x': tools[0] must be a tool or a function, not 5",
    ),
    "filter": (
        lambda: Toolbox("x", [look]).filtered("look"),
        "toolbox 'x': what it is filtered by must be a list",
    ),
    "skill's name": (lambda: Skill(5, "x"), "skill name 5: use 1 to 64 printable characters"),  # type: ignore[arg-type]
    "skill's instructions": (
        lambda: Skill("x", None),  # type: ignore[arg-type]
        "skill 'x': instructions must be a string, not None",
    ),
    "skill's file": (
        lambda: Skill("x", "y", files={"a": 5}, on_demand=True),  # type: ignore[dict-item]
        "skill 'x': files must be a mapping of strings",
    ),
    "delegate": (
        lambda: Delegate("x", budget=5),  # type: ignore[arg-type]
        "delegate x: budget must be a Budget, such as Budget(usd='0.50'), or None, not 5",
    ),
    "delegate's tools": (
        lambda: Delegate("x", allowed_tools="look"),
        "delegate x: allowed_tools must be a list, each item a string, not 'look'",
    ),
    "logger": (
        lambda: Logger("INFO"),  # type: ignore[arg-type]
        "Logger: level must be a whole number from 0 to 1000000000, not 'INFO'",
    ),
    "guardrail": (lambda: InputGuardrail(5), "InputGuardrail: check must be a function, not 5"),  # type: ignore[arg-type]
    "guardrail of the answer": (
        lambda: OutputGuardrail(None),  # type: ignore[arg-type]
        "OutputGuardrail: check must be a function, not None",
    ),
    "server's trust": (
        lambda: MCPServer.stdio("x", ["x"], trusted="no"),  # type: ignore[arg-type]
        "MCP server x: trusted must be True or False, not 'no'",
    ),
    "hosts": (
        lambda: fetch("docs.python.org"),
        "fetch: allow_hosts must be a list, each item a string, not 'docs.python.org'",
    ),
    "bytes": (lambda: fetch(max_bytes=0), f"fetch: max_bytes must be {FROM_1}, not 0"),
}


@pytest.mark.parametrize(("make", "words"), NAMED.values(), ids=NAMED)
def test_what_an_agent_is_made_of_is_refused_as_early(
    make: Callable[[], object], words: str
) -> None:
    """The error names the owner of the value."""
    with pytest.raises(errors.ConfigurationError) as caught:
        make()

    assert str(caught.value).startswith(words)


TIMED: dict[str, Callable[[Any], object]] = {
    "tool": lambda time: tool(timeout=time)(look.function),
    "Timeout": lambda time: Timeout(time),
    "MCP server": lambda time: MCPServer.stdio("x", ["x"], timeout=time),
    "start of an MCP server": lambda time: MCPServer.stdio("x", ["x"], start_timeout=time),
    "shell": lambda time: shell(".", ["ls"], timeout=time),
    "fetch": lambda time: fetch(timeout=time),
}


@pytest.mark.parametrize("make", TIMED.values(), ids=TIMED)
@pytest.mark.parametrize(
    "time",
    [
        timedelta.max,
        timedelta(days=3650, microseconds=1),
        timedelta(0),
        timedelta(seconds=-1),
        5,
        None,
    ],
    ids=str,
)
def test_time_that_no_clock_can_keep_is_refused(make: Callable[[Any], object], time: Any) -> None:
    """With a typed error at once, instead of an `OverflowError` during a turn."""
    with pytest.raises(errors.ConfigurationError, match=f"must be {TIME}, not "):
        make(time)


def test_longest_time_is_ten_years() -> None:
    """The bound itself is accepted, and is the same everywhere."""
    ten_years = timedelta(days=3650)

    assert (
        tool(timeout=ten_years)(look.function).timeout
        == Timeout(ten_years).limit
        == RequireApproval(expires=ten_years).expires
        == ten_years
    )
    assert Budget(time=ten_years).time == ten_years


@pytest.mark.parametrize("time", [timedelta.max, timedelta(0), timedelta(seconds=-1)], ids=str)
def test_approval_that_expires_never_or_at_once_is_refused(time: timedelta) -> None:
    """Like a budget's time: the policy raises, and therefore denies."""
    with pytest.raises(errors.ConfigurationError, match=f"must be {TIME}, not "):
        RequireApproval(expires=time)


def test_absurd_output_limit_is_refused() -> None:
    """It is multiplied by prices."""
    assert RequestOptions(max_output_tokens=10**9).max_output_tokens == 10**9
    with pytest.raises(errors.ConfigurationError, match=f"must be {FROM_1}, not "):
        RequestOptions(max_output_tokens=10**9 + 1)


def test_what_an_older_release_wrote_is_read_as_it_is() -> None:
    """History is JSON; a bound that was added later does not apply to it, or to values made from
    it.
    """
    ruling = Ruling.model_validate_json(
        '{"verdict": {"kind": "require_approval", "expires": "-P1D"}}'
    )
    options = RequestOptions.model_validate_json('{"max_output_tokens": 1000000000000}')

    assert ruling.verdict == RequireApproval.model_construct(expires=timedelta(days=-1))
    assert options.max_output_tokens == 10**12
    assert options.over(RequestOptions(temperature=0)) == RequestOptions(temperature=0).model_copy(
        update={"max_output_tokens": 10**12}
    )


def test_options_of_both_are_joined() -> None:
    """The first ones override the others, field by field, and in `extra` name by name."""
    ours = RequestOptions(temperature=0, extra={"a": 1, "b": 1})
    theirs = RequestOptions(temperature=1, max_output_tokens=9, extra={"b": 2, "c": 2})

    assert ours.over(theirs) == RequestOptions(
        temperature=0, max_output_tokens=9, extra={"a": 1, "b": 1, "c": 2}
    )


def test_time_that_is_overdrawn_is_none_left() -> None:
    """The remaining time is never negative."""
    assert Remaining(time=timedelta(seconds=-4)) == Remaining(time=timedelta(0))
    assert Remaining().time is None


def test_level_of_a_logger_is_a_number() -> None:
    """Including names of the `logging` module."""
    assert [Logger(level).level for level in (logging.DEBUG, 0, 25)] == [10, 0, 25]


def test_long_value_is_shown_short() -> None:
    """The message stays short, and the value moves no cursor."""
    assert validation.shown("x" * 500) == "'" + "x" * 78 + "…"
    assert validation.shown("a\x1b[2J\nb") == "'a\\x1b[2J\\nb'"


WRONG_VALUES: dict[str, tuple[Callable[[], object], str]] = {
    "money": (lambda: Budget(usd="1,50"), "Budget: usd: '1,50' is not a number, such as '0.50'"),
    "no limit": (lambda: Budget(), "Budget: name at least one of"),
    "unknown": (
        lambda: Budget(dollars=1),  # type: ignore[call-arg]
        "Budget: there is no field 'dollars'; there are usd, time, tokens, model_calls, tool_calls",
    ),
    "no name": (lambda: Budget("0.50"), "Budget: name the fields, such as Budget(usd=…)"),  # type: ignore[call-arg]
    "quoted output": (
        lambda: Agent(name="a", model="m:x", output="Out"),  # type: ignore[arg-type]
        "agent a: output is the string 'Out'; give the type itself",
    ),
    "output value": (
        lambda: Agent(name="a", model="m:x", output=Deny()),  # type: ignore[arg-type]
        "agent a: output is an instance of Deny; give the type Deny itself",
    ),
    "output": (
        lambda: RequestOptions(max_output_tokens=0),
        "RequestOptions: max_output_tokens must be ",
    ),
    "choice": (
        lambda: RequestOptions(tool_choice=5),
        (
            "RequestOptions: tool_choice must be 'auto', 'required', 'none' or the name of a tool,"
            " not 5"
        ),
    ),
    "missing": (lambda: Price(input="1"), "Price: output is missing"),  # type: ignore[call-arg]
    "task": (
        lambda: Task(content=5),
        "Task: content must be a string, or a list of Text and Media, not 5",
    ),
    "price": (lambda: Price(input="x", output="1"), "Price: input: "),
    "window": (lambda: ModelProfile(window="x"), "ModelProfile: window must be "),
    "expiry": (lambda: RequireApproval(timedelta(0)), "RequireApproval: expires must be "),
    "reasons": (lambda: Deny("a", "b"), "Deny: name the fields"),  # type: ignore[call-arg]
    "reason": (lambda: Deny(reason=5), "Deny: reason must be a string, not 5"),  # type: ignore[arg-type]
    "url": (lambda: MCPServer.http("s", 5), "MCP server s: url must be a string, not 5"),  # type: ignore[arg-type]
    "server": (lambda: MCPServer.http(5, "http://x"), "MCP server: name must be a string, not 5"),  # type: ignore[arg-type]
    "command": (
        lambda: MCPServer.stdio("s", [5]),  # type: ignore[list-item]
        "MCP server s: command[0] must be a string, not 5",
    ),
    "headers": (
        lambda: MCPServer.http("s", "http://x", headers_env={"a": 5}),  # type: ignore[dict-item]
        "MCP server s: headers_env must be",
    ),
    "registry": (lambda: Registry(5), "the registry: agents must be a list"),  # type: ignore[arg-type]
    "entry": (lambda: Registry([5]), "the registry: agents[0] must be an Agent"),  # type: ignore[list-item]
    "alias": (lambda: AgentWorker([], models={"m": 5}), "the worker: models must be a mapping"),  # type: ignore[dict-item]
    "prices": (lambda: AgentWorker([], prices={"m": 5}), "the worker: prices must be a mapping"),  # type: ignore[dict-item]
    "queue": (lambda: AgentWorker([], task_queue=5), "the worker: task_queue must be a string"),  # type: ignore[arg-type]
}


@pytest.mark.accepts("U15", "P29")
@pytest.mark.parametrize(("make", "words"), WRONG_VALUES.values(), ids=WRONG_VALUES)
def test_value_that_people_build_is_refused_as_an_agent_is(
    make: Callable[[], object], words: str
) -> None:
    """All of them raise the same error, with the invalid field."""
    with pytest.raises(errors.ConfigurationError) as caught:
        make()

    assert caught.value.message.startswith(words)


def test_verdicts_are_written_without_names() -> None:
    """Positional arguments work; they are read from history as before."""
    assert (
        Deny("no")
        == Deny(reason="no")
        == Ruling.model_validate_json('{"verdict":{"kind":"deny","reason":"no"}}').verdict
    )
    assert RequireApproval(timedelta(hours=1)).expires == timedelta(hours=1)


def test_stored_types_are_the_declared_ones() -> None:
    """Functions, names and lists are converted when a value is built, and copies keep the converted
    values.
    """

    def plain() -> str:
        """Say it."""
        return "said"

    agent = Agent(
        name="clerk",
        model="a:a",
        tools=[plain],
        delegates=["other"],
        toolboxes=[Toolbox("box", [plain])],
    )
    copied = dataclasses.replace(agent, max_depth=1)

    assert isinstance(agent.tools[0], Tool)
    assert agent.delegates == (Delegate("other"),)
    assert [item.tools[0].name for item in agent.toolboxes if isinstance(item, Toolbox)] == [
        "plain"
    ]
    assert (copied.tools, copied.delegates, copied.toolboxes) == (
        agent.tools,
        agent.delegates,
        agent.toolboxes,
    )
    assert Delegate("other", allowed_tools=["plain"]).allowed_tools == ("plain",)


def test_fields_of_a_subclass_are_not_checked() -> None:
    """Only the fields that Perdure declares are checked, whatever fields a subclass adds."""

    @dataclasses.dataclass(frozen=True)
    class Limited(InputGuardrail):
        most: "OnlyForTypeCheckers" = 5  # type: ignore[name-defined]  # noqa: F821, UP037

    assert Limited(lambda task: True).most == 5
    with pytest.raises(errors.ConfigurationError, match="check must be a function, not 5"):
        Limited(5)  # type: ignore[arg-type]
