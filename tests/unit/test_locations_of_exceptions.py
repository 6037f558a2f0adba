"""The location of an exception, short enough for an error message."""

import functools
import json
import traceback
from collections.abc import Callable

from perdure.agents.registry import Registry
from perdure.agents.tracebacks import named, place_of, raised, traceback_of
from perdure.values.tasks import Task, TurnInfo

NOTHING: dict[str, str] = {}


def raised_by(function: Callable[[], object]) -> Exception:
    """The exception that a call raises."""
    try:
        function()
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error
    raise AssertionError("it raised nothing")


def refund() -> str:
    """Ask for a key that is not there."""
    return NOTHING["key"]


def parse() -> None:
    """Fail within the standard library."""
    json.loads("{")


def line_of(function: Callable[[], object]) -> int:
    """The line of the statement after a function's docstring."""
    return function.__code__.co_firstlineno + 2


def test_place_is_the_innermost_line_of_the_users_code_without_its_folder() -> None:
    """Frames of libraries below it are left out."""
    said = [
        raised(raised_by(refund)),
        place_of(raised_by(parse)),
        place_of(ValueError("never raised")),
    ]

    assert said == [
        f"KeyError: 'key' (test_locations_of_exceptions.py:{line_of(refund)} in refund)",
        f"test_locations_of_exceptions.py:{line_of(parse)} in parse",
        "",
    ]


class Rules:
    """A check that is an object."""

    def __call__(self, _: object) -> bool:
        return True

    def check(self, _: object) -> bool:
        return True


def test_function_is_named_with_its_place() -> None:
    """Without its wrappers, so that it is the user's own line."""
    first = Rules.__call__.__code__.co_firstlineno

    assert (
        named(refund)
        == f"refund (test_locations_of_exceptions.py:{refund.__code__.co_firstlineno})"
    )
    assert named(functools.partial(functools.lru_cache(refund))) == named(refund)
    assert named(Rules().check) == f"Rules.check (test_locations_of_exceptions.py:{first + 3})"
    assert named(Rules()) == f"Rules (test_locations_of_exceptions.py:{first})"
    assert named(len) == "len"


def test_traceback_begins_at_the_users_code() -> None:
    """Perdure's own frames above it are left out; the whole traceback is kept if it has no
    others.
    """

    def factory(_: TurnInfo) -> object:
        return refund()

    factory.__name__ = "support"
    error = raised_by(
        lambda: Registry([factory]).make(  # type: ignore[list-item]
            TurnInfo(turn_id="t", agent="support", task=Task(content="go"))
        )
    )
    assert error.__cause__ is not None
    raised_in, machinery = traceback_of(error.__cause__), traceback_of(error)

    assert str(error) == f"the factory of agent 'support' failed: {raised(error.__cause__)}"
    assert "registry.py" not in raised_in
    assert raised_in.startswith('Traceback (most recent call last):\n  File "')
    assert raised_in.endswith(
        "in refund\n    return NOTHING[\"key\"]\n           ~~~~~~~^^^^^^^\nKeyError: 'key'\n"
    )
    assert "KeyError: 'key'" in machinery


def test_long_traceback_keeps_its_beginning_and_its_end() -> None:
    """For example, one with a message of a megabyte."""
    error = raised_by(lambda: (_ for _ in ()).throw(ValueError("x" * 1_000_000 + "END")))
    told = traceback_of(error)

    assert len(told) < 20_000
    assert told.startswith("Traceback")
    assert told.endswith("END\n")
    assert "characters left out" in told
    assert len("".join(traceback.format_exception(error))) > 1_000_000
