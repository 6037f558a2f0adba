"""The text of a turn's model.

It comes in pieces while the model generates it, if the turn was started with `live=True`, and
otherwise when the answer is recorded.

History is authoritative: the live text of a call is the beginning of its recorded answer, or it is
voided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from perdure.clients.reading.events import VERSION
from perdure.clients.reading.live_output import Heard
from perdure.turn.facts import CallFailed, Fact, ModelAnswered, Scheduled, TurnEnded, TurnStarted
from perdure.turn.keys import ModelKey


@dataclass(frozen=True, slots=True)
class TextBegins:
    """A mark before the text of a step, from this attempt. Both numbers count from 1."""

    step: int
    attempt: int = 1

    def to_json(self) -> dict[str, JsonValue]:
        """Return the mark as JSON values."""
        return {"v": VERSION, "kind": "text_begins", "step": self.step, "attempt": self.attempt}


@dataclass(frozen=True, slots=True)
class TextVoid:
    """A mark that voids the text of this attempt.

    The attempt failed, was lost or abandoned, or was recorded with another text.
    """

    step: int
    attempt: int = 1

    def to_json(self) -> dict[str, JsonValue]:
        """Return the mark as JSON values."""
        return {"v": VERSION, "kind": "text_void", "step": self.step, "attempt": self.attempt}


Piece = str | TextBegins | TextVoid


class Speech:
    """The live text of the model call in flight.

    Pure: its input is recorded facts and live text.
    """

    def __init__(self) -> None:
        self._is_live = False
        self._key: ModelKey | None = None
        self._said = ""

    @property
    def key(self) -> ModelKey | None:
        """The model call whose live text may come; None if none may."""
        return self._key if self._is_live else None

    def see(self, fact: Fact) -> Iterator[Piece]:
        """Yield the text and marks that follow from another fact."""
        match fact:
            case TurnStarted(request):
                self._is_live = request.live
            case Scheduled(ModelKey() as key):
                yield from self._void()
                self._key = key
            case ModelAnswered(key, answer) if key == self._key:
                if not answer.message.text.startswith(self._said):
                    yield from self._void()
                yield from self._say(answer.message.text[len(self._said) :])
                self._key, self._said = None, ""
            case CallFailed(key) if key == self._key:
                yield from self._void()
                self._key = None
            case TurnEnded():
                yield from self._void()

    def hear(self, heard: Heard) -> Iterator[Piece]:
        """Yield the new text.

        If text in between is missing, nothing more is yielded until the answer is recorded.
        """
        known = len(self._said) - heard.offset
        if heard.key == self._key and known >= 0:
            yield from self._say(heard.text[known:])

    def _say(self, text: str) -> Iterator[Piece]:
        if text and not self._said and self._key is not None:
            yield TextBegins(self._key.step, self._key.attempt)
        if text:
            self._said += text
            yield text

    def _void(self) -> Iterator[Piece]:
        if self._said and self._key is not None:
            yield TextVoid(self._key.step, self._key.attempt)
        self._said = ""
