"""The registry: agents by name, for threads and factories."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from perdure import Agent, Registry, Task, TurnInfo, errors
from perdure.agents.registry import described_in

ADDER = Agent(name="adder", model="openai:x")
INFO = TurnInfo(
    turn_id="t-1", agent="adder", task=Task(content="2 + 3?", type="sum"), labels={"team": "maths"}
)


def test_names_are_sorted_and_the_values_with_them() -> None:
    """In the order of names; agents of factories are not built."""

    def maker(info: TurnInfo) -> Agent:
        return replace(ADDER, name="maker")

    zed = replace(ADDER, name="zed")
    registry = Registry([zed, maker, ADDER])

    assert registry.list() == ("adder", "maker", "zed")
    assert registry.agents() == (ADDER, zed)
    assert (registry.entry("maker"), registry.entry("zed")) == (maker, zed)


@pytest.mark.accepts("T23")
def test_agent_of_a_factory_is_described_by_its_docstring() -> None:
    """With its first paragraph, on one line; without a docstring, with nothing."""

    def maker(info: TurnInfo) -> Agent:
        return ADDER

    maker.__doc__ = """Adds numbers,
        and checks the sum.

        Args:
            info: Not for models.
        """

    assert described_in(maker) == "Adds numbers, and checks the sum."
    assert (
        described_in(lambda info: ADDER),
        described_in(replace(ADDER, description="Adds.")),
    ) == ("", "Adds.")


@pytest.mark.accepts("U25")
def test_descriptions_are_by_name_and_sorted() -> None:
    """Those of factories are among them; one without a description has an empty text."""

    def maker(info: TurnInfo) -> Agent:
        """Make an agent that multiplies."""
        return ADDER

    described = replace(ADDER, name="described", description="Adds.")
    registry = Registry([maker, described, replace(ADDER, description="")])

    assert list(registry.descriptions().items()) == [
        ("adder", ""),
        ("described", "Adds."),
        ("maker", "Make an agent that multiplies."),
    ]


def test_name_that_is_taken_is_refused_unless_it_is_replaced() -> None:
    """The existing agent stays."""
    registry = Registry([ADDER])
    other = replace(ADDER, instructions="Add.")

    with pytest.raises(
        errors.ConfigurationError,
        match="an agent named 'adder' is registered already; pass replace=True to replace it",
    ):
        registry.add(other)

    assert registry.entry("adder") is ADDER
    registry.add(other, replace=True)
    assert registry.entry("adder") is other


@pytest.mark.accepts("D62")
@pytest.mark.parametrize(
    "name", ["openai:gpt-5", "gpt-5", "claude-sonnet-4-5", "qwen3", "o3", "hub.io:y", "m"]
)
def test_name_of_a_model_is_no_agent(name: str) -> None:
    """With a provider, without one, or a model of an agent; the error says what to do."""
    registry = Registry([Agent(name="adder", model="m")])
    with pytest.raises(errors.UnknownAgentError) as raised:
        registry.entry(name)

    assert raised.value.message == (
        f"no agent named {name!r}; this worker knows adder. It looks like the name of a model: give"
        " the name of an agent that has it, or ask the model itself with client.generate(model,"
        " prompt, type)"
    )


def test_unknown_agent_names_those_there_are() -> None:
    """So that a typo is easy to see; an empty registry says so."""
    with pytest.raises(errors.UnknownAgentError) as caught:
        Registry([ADDER, replace(ADDER, name="zed")]).entry("addr")
    with pytest.raises(
        errors.UnknownAgentError, match="no agent named 'addr'; this worker knows none at all"
    ):
        Registry().entry("addr")

    assert caught.value.to_dict() == {
        "code": "UNKNOWN_AGENT",
        "severity": "error",
        "message": "no agent named 'addr'; this worker knows adder, zed",
        "context": {"agent": "addr"},
        "cause": None,
    }


@pytest.mark.accepts("D16")
def test_factory_is_called_with_the_turn_once_for_each_make() -> None:
    """Its argument has turn id, task and labels."""
    seen: list[TurnInfo] = []

    def adder(info: TurnInfo) -> Agent:
        seen.append(info)
        return replace(ADDER, instructions=f"For {info.labels['team']}: {info.task.type}")

    made = Registry([adder]).make(INFO)

    assert made == replace(ADDER, instructions="For maths: sum")
    assert seen == [INFO]


def _fails(info: TurnInfo) -> Agent:
    raise OSError("no database")


def _other_name(info: TurnInfo) -> Agent:
    return replace(ADDER, name="other")


def _nothing(info: TurnInfo) -> Any:
    return None


@pytest.mark.accepts("D16")
@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (_fails, "the factory of agent 'adder' failed: OSError: no database"),
        (_other_name, "the factory 'adder' must return an Agent of that name, not Agent"),
        (_nothing, "the factory 'adder' must return an Agent of that name, not None"),
    ],
    ids=["fails", "another name", "nothing"],
)
def test_factory_that_makes_no_agent_is_a_configuration_error(factory: Any, reason: str) -> None:
    """The error has the factory and the reason."""
    registry = Registry([_as_adder(factory)])

    with pytest.raises(errors.ConfigurationError, match=reason):
        registry.make(INFO)


def test_factory_without_a_name_is_refused_when_it_is_added() -> None:
    """A callable object has no name under which it could be registered: a typed error at once."""

    class Factory:
        def __call__(self, info: TurnInfo) -> Agent:
            return ADDER

    with pytest.raises(errors.ConfigurationError):
        Registry([Factory()])


@pytest.mark.slow
@pytest.mark.accepts("D16")
def test_agents_added_from_threads_are_all_there() -> None:
    """During concurrent listing, lookup and building."""
    registry = Registry([ADDER])
    barrier = threading.Barrier(8)

    def add(worker: int) -> None:
        barrier.wait()
        for n in range(200):
            registry.add(replace(ADDER, name=f"agent-{worker}-{n}"))
            registry.list()
            registry.make(INFO)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(8)))

    assert registry.list() == tuple(
        sorted(["adder", *(f"agent-{worker}-{n}" for worker in range(8) for n in range(200))])
    )


@pytest.mark.accepts("D16")
def test_of_many_threads_that_add_one_name_exactly_one_wins() -> None:
    """The others get an error."""
    registry = Registry()
    barrier = threading.Barrier(8)

    def add(worker: int) -> bool:
        barrier.wait()
        try:
            registry.add(replace(ADDER, instructions=str(worker)))
        except errors.ConfigurationError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(add, range(8)))

    assert sum(won) == 1
    assert registry.agents() == (replace(ADDER, instructions=str(won.index(True))),)


def _as_adder(factory: Any) -> Any:
    def adder(info: TurnInfo) -> Any:
        return factory(info)

    return adder
