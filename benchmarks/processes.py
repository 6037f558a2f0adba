"""Processes that are looked at from outside."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """A process of this machine, which runs Linux."""

    pid: int

    def megabytes(self) -> float:
        """Its resident memory."""
        with Path(f"/proc/{self.pid}/status").open(encoding="utf-8") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def cpu(self) -> float:
        """Its CPU time in seconds."""
        with Path(f"/proc/{self.pid}/stat").open(encoding="utf-8") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS
