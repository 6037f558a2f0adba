"""Patches of the shared state of a turn, and what may be in it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import errors, limits
from perdure.agents.tool_context import Sharing
from perdure.values.shared_state import check_shared_state, difference, merged, read


def _objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(["x", "y", "z"]), values, max_size=3)


_LEAVES = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a"])
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=2) | _objects(inner), max_leaves=6
)


@pytest.mark.accepts("F34")
@given(before=_objects(_VALUES), patches=st.lists(_objects(_VALUES), max_size=3))
def test_difference_is_what_the_patches_have_done(
    before: dict[str, Any], patches: list[dict[str, Any]]
) -> None:
    """However often a call changes the state, one patch says it."""
    after = before
    for patch in patches:
        after = merged(after, patch)

    assert merged(before, difference(before, after)) == after
    assert difference(after, after) == {}


@pytest.mark.accepts("F34")
def test_patch_merges_objects_and_removes_what_is_none() -> None:
    """As RFC 7396 has it: a list is replaced as a whole."""
    before: dict[str, Any] = {"cart": {"lamps": 1, "note": None}, "page": [1, 2], "user": "ada"}
    patch: dict[str, Any] = {"cart": {"chairs": 2, "lamps": None}, "page": [3], "user": None}

    after = merged(before, patch)

    assert after == {"cart": {"note": None, "chairs": 2}, "page": [3]}
    assert before["user"] == "ada"


NO_STATE: dict[str, tuple[Any, str]] = {
    "list": ([1], "is a JSON object, and not list"),
    "not a number": ({"x": math.nan}, "is no JSON"),
    "surrogate": ({"x": "\ud800"}, "is no JSON"),
    "object": ({"x": object()}, "is no JSON"),
}


@pytest.mark.accepts("F40")
@pytest.mark.parametrize("name", NO_STATE)
def test_changes_are_json(name: str) -> None:
    """The tool is told, and the state stays as it was."""
    value, reason = NO_STATE[name]
    sharing = Sharing({"a": 1}, may_change=True)

    with pytest.raises(ValueError, match=reason):
        sharing.change(value)
    assert (sharing.after, sharing.patch) == ({"a": 1}, {})


@pytest.mark.accepts("F40")
def test_depth_is_limited() -> None:
    """It is copied and compared at each change."""
    deep: Any = 1
    for _ in range(limits.SHARED_STATE_DEPTH):
        deep = {"x": deep}
    assert read(deep) == deep
    with pytest.raises(ValueError, match="levels deep"):
        read({"x": deep})
    with pytest.raises(errors.InvalidRequestError, match="levels deep"):
        check_shared_state({"x": deep})
