"""Jobs in a simulation: calls whose result comes later, by a token or by a poll."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from perdure.agents.definitions import AgentDefinition
from perdure.agents.tools import tool
from perdure.errors import PerdureError
from perdure.temporal import failures
from perdure.temporal.payloads import pack, unpack
from perdure.testing.simulation.calls.payments import SETTLED, Payment, find, refund
from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.server.runs import Activity
from perdure.turn import call_tokens
from perdure.turn.wire import ToolOutput, ToolRun
from perdure.values.messages import ToolCall

ABOUT_JOBS = "jobs"
"""The sequence of what happens to jobs."""


@tool(read_only=True)
def outcome(handle: str) -> str | None:
    """Ask for the result of a job; a simulation does that in its own service."""
    return None


@tool
def stop(handle: str) -> None:
    """Cancel a job; a simulation does that in its own service."""


@tool(later=timedelta(seconds=20), cancel=stop)
def build(a: int = 0) -> str:
    """Start a job once, which can be cancelled."""
    return f"build {a}"


@tool(
    later=timedelta(minutes=10),
    poll=outcome,
    poll_every=timedelta(seconds=2),
    cancel=stop,
    idempotent=True,
)
def check(a: int = 0) -> str:
    """Start a job, again if its worker was lost; it is polled, and can be cancelled."""
    return f"check {a}"


@tool(later=timedelta(seconds=60), poll=outcome, poll_every=timedelta(seconds=10))
def train(a: int = 0) -> str:
    """Start a job once, which is polled."""
    return f"training {a}"


@tool(
    effect=["a"],
    verify=find,
    settle=SETTLED,
    undo=refund,
    later=timedelta(seconds=30),
    cancel=stop,
)
def ship(a: int = 0) -> str:
    """Start a job whose effect has a key, and look it up if it has no result."""
    return f"shipment {a}"


JOBS = (build, check, train, ship)

_STARTS = (*("sound",) * 8, "refused", "fails", "raises")
_POLLS = ("found", "nothing", "nothing", "nothing", "fails")
_STOPS = ("sound", "sound", "fails")


@dataclass(frozen=True)
class StartedJob:
    """A job that an attempt of a call has started.

    Attributes:
        tool: The tool that was called.
        token: The token of its call.
        handle: What the tool returned.
        has_effect: Whether its effect has a key.
    """

    activity: Activity
    tool: str
    token: str
    handle: str
    has_effect: bool


class JobService:
    """Runs the jobs.

    Attributes:
        started: All jobs, in order.
        fails: Whether the tool or the results of a job with an effect say that it failed, by its
            token. Both tell the truth.
        on_start: Called with each job, before its tool returns.
    """

    def __init__(self, choices: Choices) -> None:
        self.started: list[StartedJob] = []
        self.fails: dict[str, bool] = {}
        self.on_start: list[Callable[[StartedJob], None]] = []
        self._choices = choices

    def start(self, activity: Activity, run: ToolRun) -> ToolOutput:
        """Start the job of a call, and return its handle, unless its tool fails.

        Raises:
            PerdureError: The activity fails, after it has started the job.
        """
        fate = self._choices.pick(_STARTS, beside=ABOUT_JOBS)
        if fate in ("refused", "fails"):
            self.fails[run.token] = True
        if fate == "refused":
            return ToolOutput(content="no job was started", is_error=True)
        handle = f"job {len(self.started) + 1};"
        name = run.tool or activity.type
        job = StartedJob(activity, name, run.token, handle, has_effect=name == ship.name)
        self.started.append(job)
        for hook in self.on_start:
            hook(job)
        if fate == "fails":
            return ToolOutput(content="the tool failed after its start", is_error=True)
        if fate == "raises":
            raise PerdureError("the tool failed oddly")
        return ToolOutput(content="", handle=handle, proof=call_tokens.proof_of(run.token))

    def start_with_effect(
        self, activity: Activity, run: ToolRun, ledger: list[Payment]
    ) -> ToolOutput:
        """Start a job whose effect is the last of a ledger, and is not there if the job fails.

        Raises:
            PerdureError: The activity fails, after it has started the job.
        """
        payment = ledger.pop()
        try:
            return self.start(activity, run)
        finally:
            if not self.fails.get(run.token):
                ledger.append(payment)

    def poll(self, run: ToolRun) -> ToolOutput:
        """Return the result of a job.

        Raises:
            ApplicationError: There is none yet, or the service is away.
        """
        fate = self._choices.pick(_POLLS, beside=ABOUT_JOBS)
        if fate == "fails":
            raise ApplicationError("away")
        if fate == "nothing":
            raise ApplicationError("the job has no result yet", type=failures.NOT_FINISHED)
        return ToolOutput(content=found_of(run.handle))

    def stop(self) -> None:
        """Cancel a job.

        Raises:
            ApplicationError: The service is away.
        """
        if self._choices.pick(_STOPS, beside=ABOUT_JOBS) == "fails":
            raise ApplicationError("away")


def found_of(handle: str) -> str:
    """Return the result that polls find."""
    return f"found of {handle}"


def some_job(choices: Choices) -> ToolCall:
    """Return a call that starts a job."""
    name = choices.pick(("build", "build", "check", "train", "ship"), beside=ABOUT_JOBS)
    arguments = choices.pick(('{"a": 1}', '{"a": 4}', "{}"), beside=ABOUT_JOBS)
    return ToolCall(id="", name=name, arguments=arguments)


def with_known_secret(result: RawValue, activity: Activity) -> RawValue:
    """Return a definition whose secret for tokens, if it has one, follows from the seed."""
    agent = unpack(result, AgentDefinition)
    if not agent.call_secret:
        return result
    secret = f"{activity.run.begun.run_id} {activity.key} {activity.attempt}"
    return pack(agent.model_copy(update={"call_secret": secret}))
