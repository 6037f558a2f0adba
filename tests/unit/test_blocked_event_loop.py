"""An async tool that blocks the event loop of the async tools."""

import logging
import threading
import time

import pytest

from perdure.activities.tool_loop import ToolLoop

QUICKLY_S = 0.1


class Seen(logging.Handler):
    """Blocks a tool until the log has a record about it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record and release the tool."""
        self.records.append(record)
        self.event.set()


@pytest.mark.accepts("O22")
async def test_async_tool_that_blocks_is_reported_once_with_its_name_and_line() -> None:
    """For any duration; another tool that blocks is reported separately."""
    seen, loop = Seen(), ToolLoop(blocked_s=QUICKLY_S)

    async def block(longer_s: float) -> None:
        seen.event.wait(30)
        time.sleep(longer_s)  # noqa: ASYNC251 - this is what it shows

    logging.getLogger("perdure").addHandler(seen)
    await loop.open()
    try:
        await loop.run(block(5 * QUICKLY_S), "tool 'slow'")
        seen.event.clear()
        await loop.run(block(0), "tool 'slower'")
    finally:
        await loop.close()
        logging.getLogger("perdure").removeHandler(seen)

    line = block.__code__.co_firstlineno + 1
    said = [record.getMessage() for record in seen.records]
    assert [words.partition("; ")[0] for words in said] == [
        f"the tool '{name}' has blocked the event loop of the async tools for 0.1 s"
        f" (test_blocked_event_loop.py:{line} in block)"
        for name in ("slow", "slower")
    ]
    assert all("seen.event.wait(30)" in str(record.exc_text) for record in seen.records)
    assert not any(thread.name == "perdure-tools-watch" for thread in threading.enumerate())
