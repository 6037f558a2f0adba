"""The text of delegates on a terminal: whole lines, each named by its delegate."""

from __future__ import annotations

import io

import pytest

from perdure.clients.cli.drawing.delegate_text import DelegateText
from perdure.clients.reading.live_text import Piece, TextBegins, TextVoid
from perdure.clients.reading.tree_text import TurnText


class Screen:
    """What is printed of the delegates of turn `t`."""

    def __init__(self) -> None:
        self.out = io.StringIO()
        self.text = DelegateText("t", self.out)

    def say(self, name: str, *pieces: Piece) -> None:
        """Pieces of a delegate."""
        for piece in pieces:
            self.text.say(TurnText(f"t/{name}", name, piece))

    @property
    def lines(self) -> list[str]:
        """The lines so far."""
        return self.out.getvalue().splitlines()


@pytest.mark.accepts("E193")
def test_piece_is_printed_as_it_comes_and_others_wait_for_the_end_of_the_line() -> None:
    """The lines of both are whole, in turn."""
    screen = Screen()
    screen.say("a", TextBegins(1), "one ")
    at_once = screen.lines
    screen.say("b", TextBegins(1), "un ", "deux\n", "trois")
    waiting = screen.lines
    screen.say("a", "two\nthree")
    screen.text.flush()

    assert at_once == waiting == ["a  one "]
    assert screen.lines == ["a  one two", "b  un deux", "a  three", "b  trois"]


@pytest.mark.accepts("E193")
def test_delegate_that_says_nothing_gives_its_line_away() -> None:
    """To one that waits after a tick; with none that waits, the line ends later."""
    screen = Screen()
    screen.say("a", TextBegins(1), "one ")
    screen.say("b", TextBegins(1), "un")
    screen.text.tick()
    given_away = screen.lines
    for _ in range(4):
        screen.text.tick()

    assert given_away == ["a  one ", "b  un"]
    assert not screen.text.has_line


@pytest.mark.accepts("E193")
def test_text_that_is_void_is_said_to_be() -> None:
    """What waits of it is not printed, and the next text has a line of its own."""
    screen = Screen()
    screen.say("a", TextBegins(1), "one ")
    screen.say("b", TextBegins(1), "un", TextVoid(1), TextBegins(1, 2), "deux")
    screen.text.flush()

    assert screen.lines == ["a  one ", "b  what was said does not count", "b  deux"]
