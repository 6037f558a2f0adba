"""A tool whose runs are visible: with `JOB_TOOL_S` set, it writes a line with the time, and takes
this number of seconds.
"""

from __future__ import annotations

import os
import time

TOOL_S = os.environ.get("JOB_TOOL_S")


def effect(number: int, size: int) -> str:
    """Return this number of bytes, after the delay."""
    if TOOL_S is not None:
        print(f"ran {number} {time.time()}", flush=True)
        time.sleep(float(TOOL_S))
    return "x" * size
