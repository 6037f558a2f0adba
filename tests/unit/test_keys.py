"""Keys: their texts are the ids of activities in Temporal, and are in every history."""

from __future__ import annotations

import pytest

from perdure.turn.keys import (
    AgentKey,
    ChildKey,
    HookKey,
    Key,
    ModelKey,
    PolicyKey,
    ReadKey,
    ToolKey,
    parse_key,
)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (AgentKey(), "agent"),
        (AgentKey(2), "agent.try-2"),
        (ModelKey(3), "step-3"),
        (ModelKey(3, 2), "step-3.try-2"),
        (ModelKey(4, is_last=True), "step-4.last"),
        (ModelKey(4, 2, is_last=True), "step-4.last.try-2"),
        (ToolKey(3, 2), "step-3.call-2"),
        (ToolKey(3, 2, 2), "step-3.call-2.try-2"),
        (PolicyKey(3, 2), "step-3.call-2.policy"),
        (PolicyKey(3, 2, 2), "step-3.call-2.policy.try-2"),
        (HookKey("before", 1), "before-1"),
        (HookKey("after", 1, 3), "after-1.try-3"),
        (HookKey("observe", 14), "observe-14"),
        (ChildKey(3, 1, 2), "step-3.call-1.child-2"),
        (ChildKey(3, 1, 2, 2), "step-3.call-1.child-2.try-2"),
        (ReadKey(3, 1, 2), "step-3.call-1.child-2.read"),
        (ReadKey(3, 1, 2, 2), "step-3.call-1.child-2.read.try-2"),
    ],
    ids=str,
)
def test_key_has_one_text(key: Key, text: str) -> None:
    """Parsing the text gives the same key."""
    assert (str(key), parse_key(text)) == (text, key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "agents",
        "step-",
        "step-1 ",
        "step-1.policy",
        "step-1.child-1",
        "step-1.call-1.read",
        "during-1",
        "step-1.try-",
    ],
)
def test_other_ids_have_no_key(text: str) -> None:
    """An activity of another library has no fact."""
    assert parse_key(text) is None


def test_child_and_its_reading_name_each_other() -> None:
    """The number of the attempt is kept."""
    assert ChildKey(3, 1, 2, 2).read == ReadKey(3, 1, 2, 2)
    assert ReadKey(3, 1, 2, 2).of == ChildKey(3, 1, 2, 2)
