"""A payment in each fault mode of a service: `make -C benchmarks effects`, two minutes.

`tests/support/faulty_payments.py` says what the columns are, and what a cell is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from benchmarks.run import versions, write
from tests.support.faulty_payments import counted, measured, table

OUT = Path(__file__).parent / "out" / "effects.json"


async def main() -> None:
    """Print the table and write it."""
    logging.getLogger("perdure").setLevel(logging.CRITICAL)  # every error of a tool is wanted
    cells = await measured()
    figures = {
        "date": time.strftime("%Y-%m-%d"),
        "versions": versions("httpx"),
        "cells": {f"{cell.fault}, {cell.case}": [cell.did, cell.says] for cell in cells},
        "counts": counted(cells),
    }
    write(OUT, figures)
    print(table(cells))
    print(f"{figures['date']}  {figures['versions']}")


if __name__ == "__main__":
    asyncio.run(main())
