"""The faults. Each is made once in a job, and returns the evidence that it was really made.

- `kill`: SIGKILL of the worker process. Its supervisor starts another one.
- `stop`: SIGSTOP of the worker process that worked last, beside another one, for longer than
  heartbeats may be late; then SIGCONT.
- `drain`: SIGTERM of the supervisor, while another one starts.
- `machine`: SIGKILL of the supervisor and its worker. Another one starts.
- `server`: SIGKILL of the Temporal server, which starts again on the same file.
- `gateway`: SIGKILL of the gateway that the people use. They go on with another one.
- `cut`: the connections between worker and server are broken, and refused for a while.
- `disk`: the disk of the server is full for a while.
- `deploy`: a worker of another build takes over, with other instructions and one more tool.
- `reset`: the turn is reset to the end of its last workflow task, as an operator does.
- `carry`: the turn continues as new once it has so many events.

Others are aimed at a moment, instead of an event: a kill before or after an effect, while its tool
is at work, and a decision about a call that a reset has replaced by another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from benchmarks.matrix import app
from benchmarks.matrix.site import LOST_S
from perdure.temporal.names import CALL_MODEL
from tests.support.e2e.stories import kill_all
from tests.support.resets import reset_to, task_ends

if TYPE_CHECKING:
    from benchmarks.matrix.jobs import Job

Strike = Callable[["Job"], Awaitable[str]]

PATIENCE_S = 240.0
REVIEW_S = 0.3
STOPPED_S = LOST_S + 2
OUTAGE_S = 2.0
LARGE = b"\0" * 2**20
_CONTINUED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW


async def nothing(job: Job) -> str:
    """Do nothing."""
    return ""


async def kill(job: Job) -> str:
    """Kill the worker process."""
    pids = await _working(job)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    await _until(lambda: not any(map(_is_running, pids)))
    return f"processes {pids} are gone"


async def stop(job: Job) -> str:
    """Stop the worker process that worked last."""
    pid = await _last(job)
    os.kill(pid, signal.SIGSTOP)
    await _until(lambda: _state(pid) == "T")
    await asyncio.sleep(STOPPED_S)
    was_stopped = _state(pid) == "T"
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    return f"process {pid} was stopped for {STOPPED_S:g} s" if was_stopped else ""


async def drain(job: Job, **environment: str) -> str:
    """Drain the worker, while another one starts."""
    worker = job.crew.workers[-1]
    worker.send_signal(signal.SIGTERM)
    _, code = await asyncio.gather(job.crew.start(**environment), worker.wait())
    return f"process {worker.pid} ended with code {code}"


async def machine(job: Job) -> str:
    """Kill the supervisor and its worker."""
    worker = job.crew.workers[-1]
    children = job.crew.children()
    await kill_all(worker)
    await _until(lambda: not any(map(_is_running, children)))
    await job.crew.start()
    return f"processes {[worker.pid, *children]} are gone"


async def server(job: Job) -> str:
    """Kill the server, and start it again."""
    pid = job.site.server.pid
    await job.site.server.kill()
    was_running = _is_running(pid)
    await asyncio.sleep(OUTAGE_S)
    await job.site.server.restart()
    return "" if was_running else f"server {pid} was gone for {OUTAGE_S:g} s"


async def gateway(job: Job) -> str:
    """Kill the first gateway."""
    pid = job.site.gateways[0].pid
    os.kill(pid, signal.SIGKILL)
    await _until(lambda: not _is_running(pid))
    return f"gateway {pid} is gone"


async def cut(job: Job) -> str:
    """Break the connections of the worker."""
    broken = job.crew.proxy.cut()
    await asyncio.sleep(STOPPED_S)
    job.crew.proxy.mend()
    return f"{broken} connections were broken" if broken else ""


async def disk(job: Job) -> str:
    """Fill the disk of the server."""
    state = job.site.folder / "state"
    log = state / "server.log"
    before = len(log.read_bytes())
    filler = Path(f"/proc/{job.site.server.pid}/root{state}/filler")
    await asyncio.to_thread(_fill, filler)
    await asyncio.sleep(STOPPED_S)
    times = log.read_bytes()[before:].count(b"full")
    await asyncio.to_thread(filler.unlink)
    return f"the server logged {times} times that it is full" if times else ""


def _fill(filler: Path) -> None:
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        size = len(LARGE)
        while size:
            size = size if file.write(LARGE[:size]) else size // 2


async def deploy(job: Job) -> str:
    """Let a worker of another build take over."""
    return await drain(job, **{app.BUILD: "2"})


async def reset(job: Job) -> str:
    """Reset the turn to the end of its last workflow task."""
    temporal = job.site.client.temporal
    history = await temporal.get_workflow_handle(job.name).fetch_history()
    ends = task_ends(history)
    if not ends:
        return ""
    run = await reset_to(temporal, job.name, history.run_id, ends[-1])
    return f"run {history.run_id} was reset to event {ends[-1]} as run {run}"


async def replace_call(job: Job) -> str:
    """Reset the turn, while a person reviews a call, so that its model asks for another one."""
    await job.until("decision", "wire")
    temporal = job.site.client.temporal
    history = await temporal.get_workflow_handle(job.name).fetch_history()
    asked = [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    end = max(
        call.workflow_task_completed_event_id
        for call in asked
        if call.activity_type.name == CALL_MODEL
    )
    run = await reset_to(temporal, job.name, history.run_id, end)
    return f"run {history.run_id} was reset to event {end} as run {run}"


async def carry(job: Job) -> str:
    """The workflow does it by itself."""
    return "the history has the event"


def at_event(event: HistoryEvent, count: int, wanted: int) -> bool:
    """Return whether the fault is to be made now."""
    return count >= wanted


def at_next_run(event: HistoryEvent, count: int, wanted: int) -> bool:
    """Return whether the turn continues as new, with at least so many events."""
    return event.event_type == _CONTINUED and count >= wanted


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault.

    Attributes:
        name: Its name; empty for nothing.
        strike: Makes it, and returns the evidence; empty if it was not made.
        is_awaited: Whether it is to be made, by an event, the number of events, and that number.
        gateways: How many gateways the job needs.
        has_own_server: Whether other jobs must not be on the same server.
        has_small_disk: Whether the server has a disk of its own.
        resets: How often it resets the turn.
        variables: What the environment of the workers has.
        first: The first event at which it can be made.
        is_aimed: Whether it chooses its moment by itself.
        review_s: How long the decider looks at a call.
        patience_s: After this time the job counts as stuck.
    """

    name: str
    strike: Strike
    is_awaited: Callable[[HistoryEvent, int, int], bool] = at_event
    gateways: int = 1
    has_own_server: bool = False
    has_small_disk: bool = False
    resets: int = 0
    variables: Mapping[str, str] = field(default_factory=dict)
    first: int = 1
    is_aimed: bool = False
    review_s: float = REVIEW_S
    patience_s: float = PATIENCE_S

    def environment(self, event: int) -> dict[str, str]:
        """The environment of the workers."""
        return {name: value.format(event=event) for name, value in self.variables.items()}


def at_work(name: str, kind: str, what: str, strike: Strike) -> Fault:
    """Return a fault that waits for a line of the witness about a tool that is slow.

    There is evidence only if that attempt of the tool has not come to its end.
    """

    async def strike_then(job: Job) -> str:
        await job.until(kind, what)
        evidence = await strike(job)
        counts = Counter(line["kind"] for line in job.lines() if line.get("what") == what)
        return evidence if counts["begun"] > counts["ended"] else ""

    return Fault(name=name, strike=strike_then, is_aimed=True, variables={app.SLOW: what})


NOTHING = Fault(name="", strike=nothing, is_awaited=lambda *_: False)
FAULTS = {
    fault.name: fault
    for fault in (
        Fault(name="kill", strike=kill),
        Fault(name="stop", strike=stop, variables={"PERDURE_PROCESSES": "2"}),
        Fault(name="drain", strike=drain),
        Fault(name="machine", strike=machine),
        Fault(name="server", strike=server, has_own_server=True),
        Fault(name="gateway", strike=gateway, has_own_server=True, gateways=2),
        Fault(name="cut", strike=cut),
        Fault(name="disk", strike=disk, has_own_server=True, has_small_disk=True),
        Fault(name="deploy", strike=deploy),
        Fault(name="reset", strike=reset, resets=1, first=4),
        Fault(
            name="carry",
            strike=carry,
            is_awaited=at_next_run,
            variables={app.RUN_EVENTS: "{event}"},
            first=10,
        ),
        at_work("kill before charge", "begun", "charge", kill),
        at_work("kill in charge", "effect", "charge", kill),
        at_work("kill in book", "effect", "book", kill),
        at_work("machine in charge", "effect", "charge", machine),
        Fault(
            name="replaced call",
            strike=replace_call,
            has_own_server=True,
            resets=1,
            is_aimed=True,
            review_s=6,
        ),
    )
}
"""All faults, by their names."""


async def _working(job: Job) -> list[int]:
    """The worker processes, once there is one."""
    await _until(lambda: bool(job.crew.children()))
    return job.crew.children()


async def _last(job: Job) -> int:
    """The worker process that wrote last into the history; any, if none has yet."""
    pids = await _working(job)
    history = await job.site.client.temporal.get_workflow_handle(job.name).fetch_history()
    for event in reversed(history.events):
        attributes = event.WhichOneof("attributes")
        identity = getattr(getattr(event, attributes or "", None), "identity", "")
        if (found := identity.partition("@")[0]).isdigit() and int(found) in pids:
            return int(found)
    return pids[0]


def _is_running(pid: int) -> bool:
    return _state(pid) not in ("", "Z")


def _state(pid: int) -> str:
    """Return the state of a process, such as T for a stopped one; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - other processes say so
            await asyncio.sleep(0.01)
