"""The effects of a turn's calls, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.clients.cli.drawing.json_lines import tell
from perdure.clients.cli.drawing.screen import note, put
from perdure.text import one_line, word
from perdure.values.effects import EffectRecord

_COLUMNS = 100
_STATUS = {
    "done": "done",
    "unknown": "outcome unknown",
    "absent": "not there",
    "undone": "taken back",
}


def show(turn_id: str, known: Sequence[EffectRecord], *, as_json: bool) -> None:
    """Print a line for each call whose effect is known."""
    if as_json:
        for record in known:
            tell(record)
        return
    for line in _lines(turn_id, known):
        put(line)
    if not known:
        note(f"no effect of turn {word(turn_id)} is known")


def _lines(turn_id: str, known: Sequence[EffectRecord]) -> Iterator[str]:
    for record in known:
        of_delegate = "" if record.turn_id in ("", turn_id) else f" of {word(record.turn_id)}"
        can_undo = ", can be undone" if record.undo and record.status == "done" else ""
        called = one_line(f"{record.tool} {record.arguments}", _COLUMNS)
        status = f"{_STATUS[record.status]}{can_undo}"
        yield f"{word(record.call_id)}  step {record.step}{of_delegate}  {called}  {status}"
