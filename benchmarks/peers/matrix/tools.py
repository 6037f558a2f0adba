"""The effects of the job, for all systems; the witness is `benchmarks.matrix.witness`."""

from __future__ import annotations

import os
import time

from benchmarks.matrix import witness

MODEL, SERVICE = "MATRIX_MODEL", "MATRIX_SERVICE"
"""The variables with the addresses of the witness."""
ANSWER_S, PAUSE_S = 1.0, 1.5
"""How long the model takes, and a tool after its effect, so that a kill finds them at work."""
CLERK = "clerk"
PROMPT = "Do as told."
UNKNOWN = "contact with the worker was lost; the outcome is unknown"
"""What the model gets where a setting allows one attempt, and it was lost."""


def effect(job: str, tool: str, what: str, key: str = "") -> str:
    """Have an effect, and return its receipt."""
    fields = {"job": job, "what": what, "tool": tool, "key": key, "arguments": {}}
    answer = witness.post(os.environ[SERVICE], "/effects", fields)
    time.sleep(PAUSE_S)
    return f"{what}: {answer['receipt']}"
