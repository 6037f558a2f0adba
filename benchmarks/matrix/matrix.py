"""The runs: jobs with faults, several at a time, on servers that they share where they can."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from benchmarks.matrix import deciders, jobs, witness
from benchmarks.matrix.faults import NOTHING, Fault
from benchmarks.matrix.judge import Verdict
from benchmarks.matrix.site import ROOT, Record, Site, opened


class Matrix:
    """A witness, and a server for all jobs that do not need one of their own.

    Args:
        folder: Keeps the lines of the witness, the logs of workers, and the data of servers.
        at_once: How many jobs run at a time.
    """

    def __init__(self, folder: Path, at_once: int) -> None:
        self._folder = folder
        self._places = asyncio.Semaphore(at_once)
        self._stack = AsyncExitStack()
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        addresses = await self._stack.enter_async_context(witness.running(self._folder))
        self._record = Record(self._folder, addresses)
        self._shared = await self._stack.enter_async_context(
            opened(self._record, self.folder_for("shared"), gateways=2)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def folder_for(self, name: str) -> Path:
        """Return a new folder."""
        folder = self._folder / f"{name}-{next(self._numbers)}"
        folder.mkdir()
        return folder

    async def undisturbed(self) -> int:
        """Run a job to which nothing is done, and return the number of its events.

        Raises:
            RuntimeError: It breaks a check, so the others would show nothing.
        """
        name = "first"
        verdict = await jobs.run(name, self._shared)
        if verdict.broken or not verdict.exactly_once:
            raise RuntimeError(f"nothing was done to this job, and it is broken: {verdict}")
        return await jobs.events_of(name, self._shared)

    async def all(
        self, faults: Sequence[Fault], events: Sequence[int], counts: Sequence[int]
    ) -> list[Verdict]:
        """Run a job for each fault at each event, and one for each number of deciders."""
        work: list[Coroutine[Any, Any, Verdict]] = [self.run(NOTHING, 0) for _ in range(3)]
        work += [
            self.run(fault, event)
            for fault in faults
            for event in ([0] if fault.is_aimed else events)
            if fault.is_aimed or event >= fault.first
        ]
        work += [self.decided(count) for count in counts]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
        verdicts = [task.result() for task in tasks]
        order = ["", *(fault.name for fault in faults)]
        return sorted(
            verdicts, key=lambda one: order.index(one.fault) if one.fault in order else len(order)
        )

    async def run(self, fault: Fault, event: int, root: Path = ROOT) -> Verdict:
        """Run a job with a fault, with the product at `root`."""
        async with self._places, AsyncExitStack() as stack:
            name = self._name(f"{fault.name or 'none'}-{event}")
            site = await stack.enter_async_context(self._site(name, fault, root))
            verdict = await jobs.run(name, site, fault, event, root)
            _say(verdict)
            return verdict

    async def decided(self, count: int, root: Path = ROOT) -> Verdict:
        """Run a job whose call is decided by so many at once."""
        fault = deciders.fault(count)
        async with self._places, AsyncExitStack() as stack:
            name = self._name(f"deciders-{count}")
            site = await stack.enter_async_context(self._site(name, fault, root))
            verdict = await deciders.run(name, site, fault, count, root)
            _say(verdict)
            return verdict

    def _name(self, what: str) -> str:
        """Return the name of another job."""
        return f"{what}-{next(self._numbers)}".replace(" ", "-")

    @contextlib.asynccontextmanager
    async def _site(self, name: str, fault: Fault, root: Path) -> AsyncIterator[Site]:
        """Yield the site of a job: its own for a fault that needs one, and for another build.

        The histories of another build may be readable by its own gateways alone.
        """
        if root == ROOT and not fault.has_own_server:
            yield self._shared
            return
        folder = self.folder_for(name)
        async with opened(
            self._record,
            folder,
            gateways=fault.gateways,
            has_small_disk=fault.has_small_disk,
            root=root,
        ) as site:
            yield site


def _say(verdict: Verdict) -> None:
    words = ", ".join(verdict.broken) or ("ok" if verdict.landed else "did not land")
    print(f"{verdict.job}: {words}", flush=True)
