"""A payment in each fault mode of a service: `make -C benchmarks effects`, two minutes.

`tests/support/faulty_payments.py` says what the columns are, and what a cell is. With `--keep` the
cells become those of `docs/proof.md`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path

from benchmarks.run import versions, write
from tests.support.docs.measured import PAYMENTS
from tests.support.faulty_payments import measured, table

OUT = Path(__file__).parent / "out" / "effects.json"


async def main() -> None:
    """Print the table and write it."""
    logging.getLogger("perdure").setLevel(logging.CRITICAL)  # every error of a tool is wanted
    cells = await measured()
    by_case: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        by_case.setdefault(cell.case, {})[cell.fault] = [*cell.pair]
    figures = {"date": time.strftime("%Y-%m-%d"), "versions": versions("httpx"), "cells": by_case}
    write(PAYMENTS if "--keep" in sys.argv else OUT, figures)
    print(table(cells))
    print(f"{figures['date']}  {figures['versions']}")


if __name__ == "__main__":
    asyncio.run(main())
