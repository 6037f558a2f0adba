"""The worker's log as lines of JSON."""

import io
import json
import logging
from decimal import Decimal

from perdure.worker.logs import JsonLines


def written(message: str, **options: object) -> dict[str, object]:
    """What a record becomes."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("mine")
    logger.addHandler(handler)
    logger.error(message, **options)  # type: ignore[arg-type]
    logger.removeHandler(handler)
    [line] = out.getvalue().splitlines()
    return dict(json.loads(line))


def test_record_of_a_turn_has_its_fields_beside_the_line() -> None:
    """An amount is text, so no digit is lost; what is not known is null."""
    line = written("llm_call …", extra={"perdure": {"event": "llm_call", "cost_usd": Decimal("0.10"), "duration_ms": None, "tool": "a\nb"}})

    assert list(line) == ["time", "level", "logger", "message", "event", "cost_usd", "duration_ms", "tool"]
    assert list(line.values())[1:] == ["error", "mine", "llm_call …", "llm_call", "0.10", None, "a\nb"]


def test_record_with_an_exception_is_one_line() -> None:
    """The stack trace stands in it as text."""
    try:
        raise ValueError("no")
    except ValueError:
        line = written("it failed", exc_info=True)

    assert str(line["exception"]).startswith("Traceback (most recent call last):\n")
    assert str(line["exception"]).endswith("\nValueError: no")
