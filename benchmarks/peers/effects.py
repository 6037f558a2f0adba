"""A tool that can be seen to run: where `JOB_TOOL_S` is set, it writes a line with the time, and
takes so many seconds.
"""

from __future__ import annotations

import os
import time

TOOL_S = os.environ.get("JOB_TOOL_S")


def effect(number: int, size: int) -> str:
    """So many bytes, after a while."""
    if TOOL_S is not None:
        print(f"ran {number} {time.time()}", flush=True)
        time.sleep(float(TOOL_S))
    return "x" * size
