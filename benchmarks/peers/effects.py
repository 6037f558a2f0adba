"""A tool that can be seen to run: it writes a line with the time, and takes as long as `JOB_TOOL_S` says."""

from __future__ import annotations

import os
import time

TOOL_S = float(os.environ.get("JOB_TOOL_S", "0"))


def effect(number: int, size: int) -> str:
    """So many bytes, after a while."""
    if TOOL_S:
        print(f"ran {number} {time.time()}", flush=True)
        time.sleep(TOOL_S)
    return "x" * size
