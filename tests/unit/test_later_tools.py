"""The options of tools whose result comes later, and the tokens of their calls."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure import tool
from perdure.errors import ConfigurationError, InvalidRequestError
from perdure.turn import call_tokens
from perdure.turn.keys import PollKey, StopKey, ToolKey, parse_key


def start(target: str) -> str:
    """Start a job."""
    return target


def look(handle: str) -> str | None:
    """Look whether it is done."""
    return handle


def other(handle: str, region: str) -> None:
    """Take an argument that nobody gives it."""


@pytest.mark.accepts("F17")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"poll": look}, "poll= is for a job whose result comes later; add later=True"),
        ({"cancel": look}, "cancel= is for a job"),
        ({"poll_every": timedelta(seconds=1)}, "poll_every= is for a job"),
        ({"later": True, "local": True, "read_only": True}, "is local, so its result is there"),
        ({"later": timedelta()}, "later"),
        ({"later": timedelta(days=4000)}, "later"),
        ({"later": "yes"}, "later"),
        ({"later": True, "poll": "x"}, "poll must be a tool or a function"),
        ({"later": True, "poll": tool(look)}, "which is not read-only"),
        ({"later": True, "cancel": tool(read_only=True)(look)}, "which is read-only"),
        ({"later": True, "poll_every": timedelta()}, "poll_every"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match="tool start") as refused:
        tool(name="start", **options)(start)

    assert told in refused.value.message


@pytest.mark.accepts("F17")
def test_tool_of_an_option_takes_arguments_of_the_call_and_the_handle() -> None:
    with pytest.raises(ConfigurationError, match="cancel= takes 'region'"):
        _ = tool(later=True, cancel=other)(start).pinned_job


@pytest.mark.accepts("F17")
def test_turn_is_pinned_to_what_a_tool_says_of_its_jobs() -> None:
    made = tool(later=timedelta(hours=2), poll=look, cancel=look)(start)

    pinned = made.renamed("other").pinned_job

    assert pinned is not None
    assert (pinned.longest_s, pinned.polls, pinned.poll_every_s) == (7200, True, 30)
    assert (pinned.can_cancel, pinned.cancel_timeout_s) == (True, 60)
    assert tool(start).pinned_job is None


KEY = ToolKey(3, 2)


@pytest.mark.accepts("F4")
def test_token_proves_its_turn_and_call() -> None:
    token = call_tokens.make("secret", "@acme/turn/1\nx", KEY, "0badcafe")

    read = call_tokens.parse(token)

    assert (read.turn_id, read.key, read.call) == ("@acme/turn/1\nx", KEY, "0badcafe")
    assert read.is_made_with("secret")
    assert not read.is_made_with("other")
    assert not read.is_made_with("")
    assert token.startswith("call_")
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@pytest.mark.accepts("F4")
@pytest.mark.parametrize("text", ["", "call_", "call_!!", "call_AAAA", "x", "call_" + "A" * 999])
def test_text_that_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="token of an open call"):
        call_tokens.parse(text)


@pytest.mark.accepts("F4")
def test_each_part_of_a_token_counts() -> None:
    """Whoever changes one has another token, which was not made with the secret."""
    parts = [("a", KEY, "1"), ("b", KEY, "1"), ("a", ToolKey(3, 3), "1"), ("a", ToolKey(4, 2), "1")]
    macs = {
        call_tokens.parse(call_tokens.make("s", *part)).mac for part in (*parts, ("a", KEY, "2"))
    }

    assert len(macs) == 5


def test_keys_of_jobs_are_read() -> None:
    assert parse_key("step-3.call-2.poll") == PollKey(3, 2)
    assert parse_key("step-3.call-2.cancel") == StopKey(3, 2)
    assert str(StopKey(3, 2, 2)) == "step-3.call-2.cancel.try-2"
