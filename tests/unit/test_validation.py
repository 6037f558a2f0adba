"""Rules of ids, which stay what they are in URLs, and of arguments, which have annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from perdure import errors, validation
from perdure.text import stays_in_urls


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("..", False),
        ("a/../b", False),
        (".", False),
        ("a//b", False),
        ("/a", False),
        ("a/", False),
        ("", False),
        ("%2e%2e", False),
        ("%252e%252e", False),
        ("a%2F..", False),
        ("a\\..\\b", False),
        ("a..b", True),
        ("...", True),
        ("repo#12", True),
        ("@acme/what?", True),
        ("100%", True),
    ],
)
@pytest.mark.accepts("H110")
def test_id_that_a_url_would_change_is_noticed(text: str, stays: bool) -> None:
    """Parts that are empty, `.` or `..`, also encoded, twice encoded, and after a backslash."""
    assert stays_in_urls(text) is stays


def _sent(
    text: validation.Message,
    id: validation.By | None = None,
    *,
    mode: Literal["one", "two"] = "one",
    more: object = None,
) -> str:
    return f"{text} {id} {mode} {more}"


async def _sent_later(text: validation.Message, **more: Any) -> str:
    return f"{text} {more}"


_SEND: Callable[..., str] = validation.arguments("the message")(_sent)
_SEND_LATER: Callable[..., Any] = validation.arguments("the message")(_sent_later)


@pytest.mark.parametrize(
    ("given", "named", "words"),
    [
        ((" ",), {}, "the message: text must be a message, not empty, not ' '"),
        ((), {"text": 7}, "the message: text must be a message, not empty, not 7"),
        (("a", "b\n"), {}, "id must be one line of 1 to 200 visible characters, or None, not"),
        (("a",), {"mode": "three"}, "the message: mode must be 'one' or 'two', not 'three'"),
    ],
)
def test_argument_that_its_annotation_does_not_accept_is_refused(
    given: tuple[Any, ...], named: dict[str, Any], words: str
) -> None:
    """By its name, however it is given."""
    with pytest.raises(errors.InvalidRequestError) as refused:
        _SEND(*given, **named)

    assert words in refused.value.message


def test_arguments_without_annotated_types_are_left_alone() -> None:
    """And a call that Python refuses is refused by Python."""
    sent = _SEND("a", "b", mode="two", more=object)
    with pytest.raises(
        TypeError, match=r"_sent\(\) missing 1 required positional argument: 'text'"
    ):
        _SEND()

    assert sent == f"a b two {object}"


async def test_arguments_of_a_coroutine_function_are_validated_when_it_is_awaited() -> None:
    """As the rest of the function."""
    coroutine = _SEND_LATER("")
    with pytest.raises(errors.InvalidRequestError, match="the message: text must be a message"):
        await coroutine

    assert await _SEND_LATER("a", more=1) == "a {'more': 1}"
