"""The asserts of test modules are rewritten before the workers of xdist start.

Pytest rewrites a module when it is imported, and each worker imports all of them: on a fresh clone
each would rewrite everything, for 20 s of CPU time. Here each module is rewritten once.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

ALONE = 20
"""So many modules are left to the workers, because processes would cost more than they save."""


def rewrite_asserts(config: pytest.Config, processes: int) -> None:
    """Put what the import of the test modules of this run would put into `__pycache__`."""
    stale = [path for path in _modules(config.args) if _is_stale(path)]
    if len(stale) <= ALONE:
        return
    forking = multiprocessing.get_context("fork")
    shares = [stale[first::processes] for first in range(processes)]
    started = [forking.Process(target=_write, args=(config, share)) for share in shares]
    for process in started:
        process.start()
    for process in started:
        process.join()


def _modules(arguments: Sequence[str]) -> list[Path]:
    paths = [Path(argument.partition("::")[0]).absolute() for argument in arguments]
    return [path for one in paths for path in sorted(one.rglob("test_*.py"))]


def _cached(path: Path) -> Path:
    return rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)


def _is_stale(path: Path) -> bool:
    return rewrite._read_pyc(path, _cached(path)) is None


def _write(config: pytest.Config, paths: Sequence[Path]) -> None:
    gc.disable()  # of the many nodes of a tree, none is garbage
    for path in paths:
        rewrite.try_makedirs(_cached(path).parent)
        digest, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, digest, _cached(path))
