"""What `--json` prints: one value a line, and nothing else on standard output.

A turn is told as its events, each with `turn`, `cursor`, `at`, `kind` and `fact`, and then as its
`report`. A command that fails says why in a last line of kind `error`, whatever it is about.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from perdure.clients.aloud import Aloud
from perdure.clients.cli.screen import put
from perdure.clients.cli.tree import Followed, Reach
from perdure.clients.events import VERSION
from perdure.clients.speech import Said
from perdure.clients.tool_progress import ToolProgress
from perdure.clients.turn import Turn
from perdure.errors import OutputInvalidError, PerdureError
from perdure.text import exact
from perdure.values.reports import AgentReport


class Told:
    """Tells one turn as lines of JSON."""

    def __init__(self, *, streams: bool = False) -> None:
        self._streams = streams

    def start(self, turn: Turn[Any]) -> None:
        """Every line says which turn it is."""

    async def follow(self, turn: Turn[Any], _: Reach) -> None:
        """Its events to its end, and with `streams` what its model says."""
        followed: Followed = Aloud(turn, lambda said: say(turn.id, said)) if self._streams else turn
        async for event in followed.events():
            tell(event.to_json())

    async def result(self, turn: Turn[Any]) -> AgentReport[Any]:
        """The answer as JSON values where the turn has a type; as text where that is cut off."""
        try:
            return await turn.result()
        except OutputInvalidError:
            return await turn.typed(str).result()

    def close(self, report: AgentReport[Any]) -> None:
        """The report."""
        tell({"turn": report.turn_id, "kind": "report", "report": report})

    def fail(self, report: AgentReport[Any]) -> None:
        """The error that ends the command holds it."""


def tell(value: object) -> None:
    """Print a line. What a terminal would obey is escaped, which changes no value."""
    put(exact(to_json(value).decode()))


def tell_error(error: PerdureError) -> None:
    """Print why a command failed."""
    turn = {"turn": error.report.turn_id} if error.report is not None else {}
    tell(
        {
            **turn,
            "kind": "error",
            "class": type(error).__name__,
            **error.to_dict(),
            "report": error.report,
        }
    )


def say(turn_id: str, said: Said | ToolProgress) -> None:
    """Print what is said in a turn right now."""
    told = {"v": VERSION, "kind": "text", "text": said} if isinstance(said, str) else said.to_json()
    tell({"v": VERSION, "turn": turn_id, **told})
