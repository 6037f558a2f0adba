"""What Perdure promises about jobs: calls whose result comes later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NoReturn

from temporalio.common import RawValue

from perdure.temporal.names import FINISH_CALL
from perdure.temporal.payloads import unpack
from perdure.testing.simulation.observations import Simulated, chain, last_runs
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun, UpdateResponse
from perdure.testing.simulation.server.server import BrokenError, SimulatedServer
from perdure.turn import call_tokens, call_waits, unsettled
from perdure.turn.facts import (
    CallFinished,
    ChildTold,
    FromOutside,
    JobStopped,
    Polled,
    Recorded,
    Scheduled,
    TaskBegan,
    ToolReturned,
    WaitBegan,
    WaitEnded,
)
from perdure.turn.fold import apply
from perdure.turn.job_values import FinishCall
from perdure.turn.keys import StopKey, ToolKey, parse_key
from perdure.turn.open_step import OpenCall
from perdure.turn.state import TurnState
from perdure.turn.wire import ToolOutput

ONE_RESULT, ENDS, CHARGES = "jobs have one result", "jobs are cancelled", "jobs are charged once"

Answers = Mapping[str, set[UpdateResponse]]
Contents = Mapping[str, str]
_REFUSED = {UpdateResponse.REJECTED, UpdateResponse.FAILED}


def jobs_have_one_result(simulated: Simulated) -> None:
    """A job has one result: the first that its sender knows to be taken, or that a poll has found.

    It counts also if it came before the tool was lost. A refused result leaves no trace, and so
    does one with a token that is not that of a call of the turn.
    """
    tokens = simulated.world.client_tokens | {job.token for job in simulated.world.jobs.started}
    if not tokens:
        return
    _check_tokens(simulated.server, tokens)
    answers = _answers(simulated.server)
    for last in last_runs(simulated.server):
        _Jobs(chain(simulated.server, last), _contents(simulated.server)).check_results()
    refused = [content for content, of in answers.items() if of <= _REFUSED]
    for run in simulated.server.runs:
        steps = str(run.read.all_steps)
        if content := next((content for content in refused if content in steps), ""):
            raise BrokenError(ONE_RESULT, f"{content!r} was refused, and a model reads it", run)


def jobs_are_cancelled(simulated: Simulated) -> None:
    """A job without a result, whose call is over, is cancelled if its tool can; no other job is.

    If its turn has ended meanwhile, the report names it. A terminated turn cancels nothing.
    """
    tools = {job.handle: job.tool for job in simulated.world.jobs.started}
    contents = _contents(simulated.server) if tools else {}
    for last in last_runs(simulated.server) if tools else ():
        _Jobs(chain(simulated.server, last), contents).check_ends(tools)


def jobs_are_charged_once(simulated: Simulated) -> None:
    """A call that starts a job is charged when it does, and its wait and its result are free.

    A call of the client is charged when it begins to wait.
    """
    has_jobs = simulated.world.jobs.started or simulated.world.client_tokens
    for last in last_runs(simulated.server) if has_jobs else ():
        for run in chain(simulated.server, last):
            state = TurnState()
            for fact in run.facts:
                charged, before = _charge_of(fact, state), _spent(state)
                state = apply(state, fact)
                if charged is not None and _spent(state) - before != charged:
                    message = f"{_spent(state) - before} tool calls are charged for {fact}"
                    raise BrokenError(CHARGES, message, run)


def _spent(state: TurnState) -> int:
    return state.accounts.ledger.spent.tool_calls


def _charge_of(fact: Recorded, before: TurnState) -> int | None:
    """Return how many tool calls a fact about a job costs; None for other facts."""
    match fact:
        case ToolReturned(output=output) if output.handle is not None:
            return 1
        case CallFinished() | Polled() | JobStopped():
            return 0
        case WaitBegan(calls=(_, *_) as waits) if all(wait.is_job for wait in waits):
            begun = {wait.key for wait in call_waits.open_waits(before)}
            return sum(wait.is_of_client and wait.key not in begun for wait in waits)
        case _:
            return None


def _check_tokens(server: SimulatedServer, tokens: Set[str]) -> None:
    """Check that each result which was taken has the token of a job of its turn."""
    for run, finish, answer in _sent(server):
        if answer not in (UpdateResponse.ACCEPTED, UpdateResponse.COMPLETED):
            continue
        if finish.token not in tokens or call_tokens.parse(finish.token).turn_id != run.id:
            raise BrokenError(ONE_RESULT, f"{finish.content!r} has not the token of a call", run)


def _answers(server: SimulatedServer) -> Answers:
    """Return what the senders of results were answered, by the content of the result."""
    found: dict[str, set[UpdateResponse]] = {}
    for _, finish, answer in _sent(server):
        found.setdefault(finish.content, set()).add(answer)
    return found


def _contents(server: SimulatedServer) -> Contents:
    """Return the results that were sent, by the ids of their updates."""
    return {
        update.id: unpack(RawValue(update.request.input.args.payloads[0]), FinishCall).content
        for run in server.runs
        for update in run.updates.values()
        if update.request.input.name == FINISH_CALL
    }


def _refused_in(run: SimulatedRun, contents: Contents) -> set[str]:
    """Return the results that a run has accepted and then refused, as its history says."""
    completed = (
        attributes(event)
        for event in run.history.events
        if name_of(event) == "WORKFLOW_EXECUTION_UPDATE_COMPLETED"
    )
    failed = (one.meta.update_id for one in completed if one.outcome.HasField("failure"))
    return {contents[update_id] for update_id in failed if update_id in contents}


def _sent(server: SimulatedServer) -> Iterator[tuple[SimulatedRun, FinishCall, UpdateResponse]]:
    """Yield each result that was sent, with the run that got it, and its answer."""
    for run in server.runs:
        for update in run.updates.values():
            if update.request.input.name == FINISH_CALL:
                [payload] = update.request.input.args.payloads
                yield run, unpack(RawValue(payload), FinishCall), update.answer


def _as_learned(facts: Iterable[Recorded]) -> Iterator[Recorded]:
    """Yield the facts of a run as its workflow learned of them.

    What callers and delegates have sent comes before everything else of its workflow task.
    """
    others: list[Recorded] = []
    for fact in facts:
        if isinstance(fact, TaskBegan):
            yield from others
            others = []
        elif isinstance(fact, FromOutside | ChildTold):
            yield fact
        else:
            others.append(fact)
    yield from others


class _Jobs:
    """The jobs of a turn, in all of its runs.

    Attributes:
        handles: The handles of the jobs that it knows, by the keys of their calls.
        first: The first result of each call that was taken or found while the call was open.
        stopped: The calls whose jobs were cancelled.
        needless: The first call whose job was cancelled although it had a result; None without one.
    """

    def __init__(self, runs: list[SimulatedRun], contents: Contents) -> None:
        self.handles: dict[ToolKey, str] = {}
        self.first: dict[ToolKey, str] = {}
        self.stopped: set[ToolKey] = set()
        self.needless: ToolKey | None = None
        self._runs = runs
        self._last = runs[-1]
        self._over: set[ToolKey] = set()
        for run in runs:
            refused = _refused_in(run, contents)
            for fact in _as_learned(run.facts):
                self._see(fact, refused)

    def _see(self, fact: Recorded, refused: Set[str]) -> None:
        match fact:
            case ToolReturned(key, output) if output.handle is not None:
                self.handles[ToolKey(key.step, key.call)] = output.handle
            case CallFinished(key, output) if output.content not in refused:
                self._finish(key, output)
            case Polled(poll, ToolOutput(inquiry=None) as output):
                self._finish(ToolKey(poll.step, poll.call), output)
            case WaitEnded(woken=ends):
                parsed = [parse_key(end.key) for end in ends]
                self._over |= {one for one in parsed if isinstance(one, ToolKey)}
            case Scheduled(StopKey(step, position)):
                self._stop(ToolKey(step, position))

    def _stop(self, key: ToolKey) -> None:
        self.stopped.add(key)
        if key in self.first:
            self.needless = self.needless or key

    def _finish(self, key: ToolKey, output: ToolOutput) -> None:
        if key not in self._over:
            self.first.setdefault(key, output.content)

    def _broken(self, promise: str, message: str) -> NoReturn:
        raise BrokenError(promise, message, self._last)

    def check_results(self) -> None:
        """Each call has the first result that was taken or found."""
        results = self._results()
        for key, content in self.first.items():
            open_call = self._open_call(key)
            if open_call is not None and open_call.result is None:
                job = open_call.job
                found = job.output.content if job is not None and job.output is not None else ""
            else:
                found = results.get(key, content)
            if content not in found:
                self._broken(ONE_RESULT, f"{key} has {found!r}, and {content!r} was taken")

    def _results(self) -> dict[ToolKey, str]:
        """Return the results of all calls that are known, as the model reads them."""
        found: dict[ToolKey, str] = {}
        for run in self._runs:
            for step in run.read.steps:
                texts = {result.call_id: result.content for result in step.results}
                for position, call in enumerate(step.message.calls, 1):
                    found[ToolKey(step.number, position)] = texts.get(call.id, "")
        read = self._last.read
        for position, open_call in enumerate(read.open_step.calls, 1):
            if open_call.result is not None:
                found[ToolKey(read.step_count + 1, position)] = open_call.result.content
        return found

    def _open_call(self, key: ToolKey) -> OpenCall | None:
        """Return a call of the open step of the last run; None for any other call."""
        read = self._last.read
        return read.open_step.find(key.call) if key.step == read.step_count + 1 else None

    def check_ends(self, tools: Mapping[str, str]) -> None:
        """Check what becomes of the jobs without a result. `tools` has their tools by handles."""
        if self.needless is not None:
            self._broken(ENDS, f"{self.needless} is cancelled although it has a result")
        last = self._last
        agent, is_over = last.read.agent, last.read.ended is not None and last.closed
        if agent is None or not is_over or last.is_replaced:
            return
        named = {(call.step, call.call_id) for call in unsettled.calls(last.read)}
        for key, handle in self.handles.items():
            tool, open_call = agent.tool(tools[handle]), self._open_call(key)
            if key in self.first or tool is None or tool.job is None:
                continue
            if tool.job.can_cancel and key not in self.stopped:
                self._broken(ENDS, f"{handle} of {key} has no result, and is not cancelled")
            is_open = open_call is not None and open_call.result is None
            if open_call is not None and is_open and (key.step, open_call.edited.id) not in named:
                self._broken(ENDS, f"the report does not name {handle} of {key}")


AT_THE_END = (jobs_have_one_result, jobs_are_cancelled, jobs_are_charged_once)
