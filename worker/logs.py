"""The worker's log: lines for people, or JSON for machines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from perdure.text import exact

_BELOW = "    "
_LEVEL = len("WARNING")


class JsonLines(logging.Formatter):
    """A record as a line of JSON: time, level, logger, message, and the fields of a turn's record."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": (
                datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds")
            ),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "perdure", {}),
        }
        if record.exc_text:
            line["exception"] = record.exc_text
        elif record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return exact(json.dumps(line, default=str, ensure_ascii=False))


class Lines(logging.Formatter):
    """A record as lines for people.

    Time, level and message, and below it, indented, what else it says. Only the first can pass for
    a record.

    Args:
        dated: Whether the first line begins with time and level, as in a worker's log. A command
            that a person follows leaves them out.
    """

    def __init__(self, *, dated: bool = True) -> None:
        super().__init__()
        self._dated = dated

    def format(self, record: logging.LogRecord) -> str:
        """The lines."""
        first, *more = super().format(record).splitlines() or [""]
        begin = f"{_time(record)} {record.levelname:<{_LEVEL}} " if self._dated else ""
        return "\n".join([begin + exact(first), *(f"{_BELOW}{exact(line)}" for line in more)])


def _time(record: logging.LogRecord) -> str:
    """In UTC, by ISO 8601, to the millisecond."""
    return (
        datetime.fromtimestamp(record.created, tz=UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def configure(style: str, out: TextIO = sys.stderr) -> None:
    """Show the records of turns, and whatever warns, in the `style` `lines` or `json`."""
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonLines() if style == "json" else Lines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("perdure").setLevel(logging.INFO)
