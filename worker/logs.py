"""The worker's log, as text lines or JSON."""

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
    """Formats a record as JSON: time, level, logger, message, and the fields of a turn's record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
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
    """Formats a record as text.

    The first line has time, level and message; further lines are indented, so that only the first
    can be taken for a record.

    Args:
        dated: Whether the first line begins with time and level, as in a worker's log. Interactive
            commands leave them out.
    """

    def __init__(self, *, dated: bool = True) -> None:
        super().__init__()
        self._dated = dated

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines."""
        first, *more = super().format(record).splitlines() or [""]
        begin = f"{_time(record)} {record.levelname:<{_LEVEL}} " if self._dated else ""
        return "\n".join([begin + exact(first), *(f"{_BELOW}{exact(line)}" for line in more)])


def _time(record: logging.LogRecord) -> str:
    """Return the time in UTC, in ISO 8601 with milliseconds."""
    return (
        datetime.fromtimestamp(record.created, tz=UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def configure(style: str, out: TextIO = sys.stderr) -> None:
    """Log the records of turns, and all warnings, in the `style` `lines` or `json`."""
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonLines() if style == "json" else Lines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("perdure").setLevel(logging.INFO)
