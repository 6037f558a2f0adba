"""A worker process that has a supervisor: it writes down what it holds, and takes orders.

The process manager may signal the supervisor, or every process, as systemd does. So a signal to a
supervised process only ever begins to drain it. The order to stop at once comes through a pipe,
which also shows that the supervisor has died.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Plugin,
    ReplayerConfig,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkerConfig,
    WorkflowInstance,
    WorkflowInstanceDetails,
    WorkflowRunner,
)

from perdure.worker.supervision.held_runs import HeldRuns, WorkerConnection
from perdure.worker.wrapped_workflow import WrappedRunner, WrappedWorkflow

_PULSE_S = 1.0
_SENT_S = 2.0
"""The time after which the end of an activity has arrived at the server."""


class Supervised:
    """The side of the worker process.

    Args:
        held: The file descriptor of the list of runs.
        orders: The read end of the supervisor's pipe.
        processes: The number of processes of the supervisor.

    Attributes:
        identity: The worker's name in Temporal. No other process has it, also where containers
            have the same host name and process number.
        held: The list of runs.
        has_others: Whether the supervisor has several processes.
    """

    def __init__(self, held: int, orders: int, processes: int) -> None:
        self.identity = f"{os.getpid()}@{socket.gethostname()}.{secrets.token_hex(2)}"
        self.held = HeldRuns(held)
        self.has_others = processes > 1
        self._orders = orders
        for file in (held, orders):
            os.set_inheritable(file, False)

    def serve(self, client: Client) -> None:
        """Record that the worker takes work."""
        threading.Thread(target=self._beat, name="perdure-pulse", daemon=True).start()
        self.held.serve(WorkerConnection(self.identity, client.namespace))

    def _beat(self) -> None:
        """Show the supervisor that this process runs.

        A thread is late on a starved machine, and never waits for the event loop.
        """
        for count in itertools.count(1):
            self.held.beat(count)
            time.sleep(_PULSE_S)

    @contextlib.asynccontextmanager
    async def orders(self, stopped: asyncio.Event, cut_short: asyncio.Event) -> AsyncIterator[None]:
        """Set the events when the worker is to drain, and to stop at once."""
        loop = asyncio.get_running_loop()

        def on_order() -> None:
            if os.read(self._orders, 64):
                cut_short.set()
            else:  # the supervisor has died
                loop.remove_reader(self._orders)
            drain()

        def drain() -> None:
            self.held.drain()
            stopped.set()

        loop.add_reader(self._orders, on_order)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, drain)
        try:
            yield
        finally:
            loop.remove_reader(self._orders)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


class HeldRunsPlugin(Plugin):
    """Has a Temporal worker write down the runs that it holds."""

    def __init__(self, held: HeldRuns) -> None:
        self._held = held

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Watch activities and workflows."""
        config["interceptors"] = [_RunWatch(self._held), *config.get("interceptors", [])]
        inner = config.get("unsandboxed_workflow_runner") or UnsandboxedWorkflowRunner()
        config["unsandboxed_workflow_runner"] = _WatchedRunner(inner, self._held)
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:  # noqa: A002 - the SDK's name
        """Run the worker."""
        await next(worker)

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Change nothing."""
        return config

    def run_replayer(self, replayer: Any, histories: Any, next: Any) -> Any:  # noqa: A002 - the SDK's name
        """Change nothing."""
        return next(replayer, histories)


class _RunWatch(Interceptor):
    def __init__(self, held: HeldRuns) -> None:
        self._held = held

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Watch every activity of the worker."""
        return _WatchedActivity(next, self._held)


class _WatchedActivity(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, held: HeldRuns) -> None:
        super().__init__(inner)
        self._held = held

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        info = activity.info()
        if info.workflow_id is None or info.workflow_run_id is None:
            return await super().execute_activity(input)
        self._held.begin(info.workflow_id, info.workflow_run_id)
        try:
            return await super().execute_activity(input)
        finally:  # its result is sent after this
            asyncio.get_running_loop().call_later(_SENT_S, self._held.end, info.workflow_run_id)


class _WatchedRunner(WrappedRunner):
    def __init__(self, inner: WorkflowRunner, held: HeldRuns) -> None:
        super().__init__(inner)
        self._held = held

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        self._held.keep(det.info.workflow_id, det.info.run_id)
        return _WatchedWorkflow(self._inner.create_instance(det), self._held)


class _WatchedWorkflow(WrappedWorkflow):
    def __init__(self, inner: WorkflowInstance, held: HeldRuns) -> None:
        super().__init__(inner)
        self._held = held

    def activate(self, act: Any) -> Any:
        info = self._inner.get_info()
        self._held.begin(info.workflow_id, info.run_id)
        try:
            return self._inner.activate(act)
        finally:
            self._held.end(info.run_id)
            if any(job.HasField("remove_from_cache") for job in act.jobs):
                self._held.drop(info.run_id)
