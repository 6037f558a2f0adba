"""The cost of replaying a history, in a separate process: `python -m benchmarks.replay MODULE FILE`
prints milliseconds, three times.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from temporalio.client import WorkflowHistory

from benchmarks.job import load


async def main(module: str, history: WorkflowHistory) -> None:
    loop = load(module)
    for _ in range(3):
        replayer = loop.replayer()
        began = time.perf_counter()
        await replayer.replay_workflow(history)
        print(f"replayed {1000 * (time.perf_counter() - began)}", flush=True)


if __name__ == "__main__":
    asyncio.run(
        main(
            sys.argv[1],
            WorkflowHistory.from_json("replayed", Path(sys.argv[2]).read_text(encoding="utf-8")),
        )
    )
