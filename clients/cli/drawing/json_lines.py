"""The output of `--json`: one value per line, and nothing else on standard output.

For a turn, there is a line for each event, with `turn`, `cursor`, `at`, `kind` and `fact`, and then
one for its `report`. Every command that fails prints the error in a last line of kind `error`.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from perdure.clients.cli.drawing.screen import put
from perdure.clients.cli.drawing.tree import Followed, Reach
from perdure.clients.reading.events import VERSION
from perdure.clients.reading.live_text import Piece
from perdure.clients.reading.tool_progress import ToolProgress
from perdure.clients.turns.handle import Turn
from perdure.clients.turns.live_turn import Aloud
from perdure.errors import OutputInvalidError, PerdureError
from perdure.text import exact
from perdure.values.messages import ToolResult, without_data, without_media_data
from perdure.values.reports import AgentReport


class JsonFollower:
    """Prints a turn as lines of JSON."""

    def __init__(self, *, streams: bool = False) -> None:
        self._streams = streams

    def start(self, turn: Turn[Any]) -> None:
        """Print nothing: every line contains the id of the turn."""

    async def follow(self, turn: Turn[Any], _: Reach) -> None:
        """Print its events until it is over, and with `streams` its text and its delegates'."""
        followed: Followed = (
            Aloud(turn, lambda piece: say(turn.id, piece), lambda text: tell(text.to_json()))
            if self._streams
            else turn
        )
        async for event in followed.events():
            tell(event.to_json())

    async def result(self, turn: Turn[Any]) -> AgentReport[Any]:
        """Return the report, with a typed answer as JSON values, or as text if it is cut off."""
        try:
            return await turn.result()
        except OutputInvalidError:
            return await turn.typed(str).result()

    def close(self, report: AgentReport[Any]) -> None:
        """Print the report."""
        tell({"turn": report.turn_id, "kind": "report", "report": _printed(report)})

    def fail(self, report: AgentReport[Any]) -> None:
        """Print nothing: the error that ends the command contains the report."""


def tell(value: object) -> None:
    """Print a line. Control characters are escaped, which changes no value."""
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
            "report": None if error.report is None else _printed(error.report),
        }
    )


def _printed(report: AgentReport[Any]) -> AgentReport[Any]:
    """Return the report without the data of images and files."""
    steps = (
        step.model_copy(update={"results": tuple(map(_brief, step.results))})
        for step in report.steps
    )
    changes = {
        "steps": tuple(steps),
        "messages": tuple(map(without_media_data, report.messages)),
        "unread": tuple(map(without_media_data, report.unread)),
    }
    return report.model_copy(update=changes)


def _brief(result: ToolResult) -> ToolResult:
    if not result.media:
        return result
    return result.model_copy(update={"media": without_data(result.media)})


def say(turn_id: str, piece: Piece | ToolProgress) -> None:
    """Print live output of a turn."""
    value = {"kind": "text", "text": piece} if isinstance(piece, str) else piece.to_json()
    tell({"v": VERSION, "turn": turn_id, **value})
