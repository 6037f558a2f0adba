"""Runs worker processes, starts them again, and reports what a dead process had in flight.

A supervisor knows at once that its child has died. Temporal would wait for a heartbeat timeout, or
for the timeout of a workflow task.

It imports little: its memory comes on top of the workers' memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.worker.supervision import held_runs

if TYPE_CHECKING:
    from temporalio.service import ServiceClient

logger = logging.getLogger("perdure")

STOP_NOW = b"!"
"""The order to stop without waiting for work in flight."""

_STEADY_S = 10.0
"""A process that dies sooner after its start, or never served, is one more death in a row."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_REPORT_S = 20.0
_LOOK_S = 1.0
_FROZEN_LOOKS = 15
"""How often in a row a process shows nothing before it counts as frozen.

Looks are counted, not seconds: while this process is frozen too, it does not look. On a starved
machine a pulse is late by a second or two, and the looks are late as well.
"""


@dataclass
class _WorkerProcess:
    """A worker process. `orders` is the pipe to it, `held` the list of the runs that it holds."""

    process: subprocess.Popen[bytes]
    held: int
    orders: int
    began: float
    ended: asyncio.Future[int]

    @property
    def pid(self) -> int:
        return self.process.pid

    def close(self) -> None:
        os.close(self.held)
        os.close(self.orders)


@dataclass(frozen=True, slots=True)
class _End:
    """How a worker process ended. `state` is what it had written down about itself."""

    code: int
    state: int
    lasted_s: float

    @property
    def has_served(self) -> bool:
        return self.state == held_runs.SERVING

    @property
    def has_died(self) -> bool:
        return self.code < 0 or self.has_served

    @property
    def may_have_lost(self) -> bool:
        """Whether it may have left something in flight.

        A drained process has lost what was sent to it while it interrupted its polls.
        """
        return self.state in (held_runs.SERVING, held_runs.LEFT)

    @property
    def is_killed_early(self) -> bool:
        return self.state == held_runs.STARTING and self.code == -signal.SIGTERM

    @property
    def is_steady(self) -> bool:
        return self.has_served and self.lasted_s >= _STEADY_S


class Supervisor:
    """Runs worker processes with one command, until SIGTERM or SIGINT, or until a process gives up.

    Args:
        command: The command of a worker process, without the option `--supervised`.
        processes: The number of processes.
        address: The address of Temporal; by default from the environment, as for the processes.
    """

    def __init__(
        self, command: Sequence[str], processes: int = 1, address: str | None = None
    ) -> None:
        self._command = command
        self._processes = processes
        self._address = address
        self._children: dict[int, _WorkerProcess] = {}
        self._reports: set[asyncio.Task[None]] = set()
        self._stops = 0
        self._knows_the_server = False
        self._service: ServiceClient | None = None

    async def run(self) -> int:
        """Run until all processes have ended, and return the exit code."""
        self._stopping = asyncio.Event()
        with self._signals():
            keeping = [asyncio.create_task(self._keep()) for _ in range(self._processes)]
            await asyncio.wait(keeping, return_when=asyncio.FIRST_COMPLETED)
            first = next(task.result() for task in keeping if task.done())
            if not self._stops:
                self._stop()
            codes = [first, *await asyncio.gather(*keeping)]
            if self._reports:
                await asyncio.wait(self._reports)
        return next((code for code in codes if code), 0)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGTERM: self._stop,
            signal.SIGINT: self._stop,
            signal.SIGCHLD: self._reap,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        """Have the processes drain; the second time, have them stop at once."""
        self._stops += 1
        self._stopping.set()
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError, BrokenPipeError):
                if self._stops == 1:
                    os.kill(child.pid, signal.SIGTERM)
                else:
                    os.write(child.orders, STOP_NOW)

    def _reap(self) -> None:
        """Take note of processes that have ended.

        Orphans become children of the first process of a container, and are reaped too.
        """
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                child = self._children.pop(ended[0], None)
                if child is not None:
                    child.process.returncode = os.waitstatus_to_exitcode(ended[1])
                    child.ended.set_result(child.process.returncode)

    async def _keep(self) -> int:
        """Keep one process running, and return the exit code of the last process."""
        deaths = 0
        while True:
            child = self._start()
            end = await _end_of(child)
            self._note_the_server(child)
            is_waiting = end.state == held_runs.NO_SERVER and self._knows_the_server
            self._clean_up(child, end)
            if self._stopping.is_set():
                return 0 if end.is_killed_early or is_waiting else _exit_code(end.code)
            if not end.has_died and end.code != 0 and not is_waiting:
                return end.code
            deaths = deaths + 1 if (end.has_died and not end.is_steady) or is_waiting else 0
            if await self._pause(child, end.code, deaths):
                return 0

    def _note_the_server(self, ended: _WorkerProcess) -> None:
        """Note whether any process has ever taken work: a server that does not answer is away."""
        children = (ended, *self._children.values())
        self._knows_the_server |= any(held_runs.has_served(child.held) for child in children)

    def _start(self) -> _WorkerProcess:
        held = held_runs.create()
        obeyed, orders = os.pipe()
        process = subprocess.Popen(  # noqa: S603 - the command of this program
            [*self._command, "--supervised", f"{held},{obeyed},{self._processes}"],
            pass_fds=(held, obeyed),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in a terminal reaches it through this process alone
        )
        os.close(obeyed)
        ended = asyncio.get_running_loop().create_future()
        child = _WorkerProcess(process, held, orders, time.monotonic(), ended)
        self._children[process.pid] = child
        return child

    async def _pause(self, child: _WorkerProcess, code: int, deaths: int) -> bool:
        """Say that a process has ended, and wait before the next start if it dies again and again.

        Returns whether the supervisor is to stop.
        """
        pause = 0.0 if deaths < 2 else min(_FIRST_PAUSE_S * 2 ** (deaths - 2), _LONGEST_PAUSE_S)
        logger.warning(
            "worker process %d %s; %s",
            child.pid,
            _how(code),
            f"it is started again in {pause:g} s" if pause else "it is started again",
        )
        if pause:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
        return self._stopping.is_set()

    def _clean_up(self, child: _WorkerProcess, end: _End) -> None:
        """End what a dead process has started, and report what it had in flight."""
        if end.has_died:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
        if not end.may_have_lost or (
            end.state == held_runs.LEFT and not held_runs.read(child.held)
        ):
            child.close()
            return
        report = asyncio.create_task(self._report(child))
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    async def _report(self, child: _WorkerProcess) -> None:
        try:
            async with asyncio.timeout(_REPORT_S):
                await self._give_back(child)
        except Exception as error:  # noqa: BLE001 - whatever it is, Temporal's own timeouts do the rest
            logger.warning(
                "what worker process %d had in flight could not be reported (%s: %s); Temporal"
                " notices by itself within seconds",
                child.pid,
                type(error).__name__,
                error,
            )
        finally:
            child.close()

    async def _give_back(self, child: _WorkerProcess) -> None:
        from perdure.worker.supervision import lost_work

        worker, runs = held_runs.connection(child.held), held_runs.read(child.held)
        if self._service is None:
            self._service = await lost_work.connect(self._address)
        lost = await lost_work.give_back(self._service, worker, runs)
        if held_runs.state(child.held) == held_runs.LEFT and lost == lost_work.Lost():
            return
        logger.warning(
            "what worker process %d had in flight is reported to Temporal as lost: activities=%d"
            " workflow_tasks=%d",
            child.pid,
            lost.activities,
            lost.tasks,
        )


async def _end_of(child: _WorkerProcess) -> _End:
    watch = asyncio.create_task(_kill_if_frozen(child))
    code = await child.ended
    watch.cancel()
    return _End(code, held_runs.state(child.held), time.monotonic() - child.began)


async def _kill_if_frozen(child: _WorkerProcess) -> None:
    """End a process that serves and shows nothing any more: it was stopped, or it hangs."""
    last, looks = 0, 0
    while looks < _FROZEN_LOOKS:
        await asyncio.sleep(_LOOK_S)
        pulse = held_runs.pulse(child.held)
        is_silent = pulse == last and held_runs.state(child.held) == held_runs.SERVING
        last, looks = pulse, looks + 1 if is_silent else 0
    logger.warning(
        "worker process %d has not run for %g s; it is killed", child.pid, _LOOK_S * _FROZEN_LOOKS
    )
    child.process.kill()


def _exit_code(code: int) -> int:
    """The exit code of a program for the exit code of its child, as a shell has it."""
    return code if code >= 0 else 128 - code


def _how(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def command(arguments: Sequence[str]) -> list[str]:
    """Return the command of this program in a new process.

    A console script does not have the current folder on its import path until the agents are
    loaded; `python -m perdure` has.
    """
    is_module = sys.path[:1] in ([""], [str(Path.cwd())])
    return [sys.executable, *([] if is_module else ["-P"]), "-m", "perdure", *arguments]
