"""Faults to plant into a copy of the product: the checks of the simulator have to find them.

Each is a replacement in one file. The copy is a folder of its own, in which a process of its own
simulates; nothing of the code here is patched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("activities", "clients", "workflows", "worker")


@dataclass(frozen=True)
class Planted:
    """A fault.

    Attributes:
        name: What is wrong then.
        file: The file, from the root.
        before: The text that is replaced; it is there once.
        after: The text instead.
        promises: The promises of which one is broken.
        seeds: In how many seeds it has to be found: as many as the product itself passes.
        kind: What is simulated.
        also: Other replacements that belong to it: file, text before and after.
        focus: What the simulations have, of features and aims; empty for some features of all. A
            fault with a focus is found in the same seeds when another feature is added.
        space: The arguments of the exhaustive search that finds it, too; empty without one.
    """

    name: str
    file: str
    before: str
    after: str
    promises: tuple[str, ...]
    seeds: int = 100
    kind: str = "turn"
    also: tuple[tuple[str, str, str], ...] = ()
    space: tuple[str, ...] = ()
    focus: tuple[str, ...] = ()


FOLD, REPLAYS = "fold is state", "every history replays"
MESSAGES = "session messages once, in order"
BACK = "effects are taken back once"
JOBS, CANCELLED = "jobs have one result", "jobs are cancelled"

PLANTED = (
    Planted(
        "a result that arrives with a cancel is lost",
        "workflows/ends.py",
        "    for _ in range(_TASKS_TO_A_RESULT):",
        "    for _ in range(0):",
        (FOLD,),
    ),
    Planted(
        "the time until an approval expires depends on the machine's clock",
        "workflows/turn/waits.py",
        "            time_left = max(approval.expires_at - workflow.now(), timedelta())",
        "            import time\n"
        "            time_left = max(approval.expires_at - workflow.now(), timedelta())\n"
        "            time_left += timedelta(microseconds=time.time_ns() // 1000 % 10**6)",
        (REPLAYS,),
    ),
    Planted(
        "an addition to the budget of a root is not noted",
        "workflows/turn/agent_turn.py",
        "        if is_root:\n            self._board.note(added)",
        "        if is_root and self._board.state.waiting is not None:\n"
        "            self._board.note(added)",
        (FOLD,),
    ),
    Planted(
        "calls of one answer run in an order that differs between processes",
        "workflows/turn/moves.py",
        "for call_move in moves])",
        "for call_move in sorted(moves, key=id)])",
        (REPLAYS, FOLD),
    ),
    Planted(
        "the news of a delegate is not noted",
        "workflows/turn/children.py",
        "        self._board.note(fact)\n        self._heard += 1",
        "        self._heard += 1",
        (FOLD, "bill within limit"),
    ),
    Planted(
        "a call that never left the workflow counts as scheduled",
        "workflows/turn/calls.py",
        "                    self._board.withdraw(scheduled)\n",
        "",
        (FOLD,),
    ),
    Planted(
        "an update that the run before has answered takes effect again",
        "workflows/turn/runs.py",
        "        return update is not None and update.id in self._answered",
        "        return False",
        (FOLD, "messages once, in order"),
    ),
    Planted(
        "a tool that may not be repeated is, after its worker was lost",
        "perdure/turn/steps.py",
        "tool is not None and tool.is_idempotent",
        "tool is not None",
        ("effects at most once", "effects once", BACK),
        space=("--interference", "message", "--kills", "1", "--detours", "0"),
        seeds=100,
        focus=("losses",),
    ),
    Planted(
        "a delegate that tells of its wait forgets a cancellation",
        "workflows/ancestors.py",
        "    if not workflow.patched(_APART):",
        "    if True:",
        ("nothing is stuck",),
        focus=("teams", "cancels"),
    ),
    Planted(
        "readers fold the news of a workflow task in the order of history",
        "perdure/temporal/histories/turn_history.py",
        "        return (TaskBegan(), *facts) if facts and self._tasks.begins() else facts",
        "        return facts",
        (FOLD,),
        seeds=350,
    ),
    Planted(
        "an update that waits for the run before is not answered at the end",
        "workflows/turn/agent_turn.py",
        "        if self._waiting_updates and workflow.patched(_REFUSES_WAITING):",
        "        if False:",
        ("updates are answered",),
        seeds=260,
    ),
    Planted(
        "readers do not know the updates that a reset delivers again",
        "perdure/temporal/histories/turn_history.py",
        "        update = self._admitted.pop(update_id, accepted.accepted_request.input)",
        "        update = accepted.accepted_request.input",
        (FOLD,),
        seeds=100,
    ),
    Planted(
        "a fork with another budget loses the other limits of the caller",
        "perdure/temporal/start_request.py",
        '        fields["budget"] = budget.over(request.budget)',
        '        fields["budget"] = budget',
        ("limits of the caller hold",),
        seeds=50,
    ),
    Planted(
        "a fork of a turn that was handed over has the rules of the other agent",
        "clients/turns/forks.py",
        'update={"handed_to": state.other_agent or None, "model": None}',
        'update={"agent": state.last_agent, "handed_to": None, "model": None}',
        ("limits of the caller hold",),
        seeds=100,
        focus=("teams", "branches"),
    ),
    Planted(
        "a model is told what is deployed, and not what its turn is pinned to",
        "activities/call_model.py",
        "        system=state.agent.instructions,",
        '        system="Do it in another way.",',
        ("definition is pinned",),
        seeds=50,
    ),
    Planted(
        "an answer that a guardrail has refused is the answer of the turn",
        "workflows/turn/middleware.py",
        "        if ended.error is not None:\n            raise errors.from_info(ended.error)",
        '        if ended.error is not None and call.moment != "after":\n'
        "            raise errors.from_info(ended.error)",
        (FOLD, "refused text leaves by no door", "nothing raises"),
        seeds=100,
        kind="session",
    ),
    Planted(
        "a session does not know which messages its earlier runs have taken in",
        "workflows/session/agent_session.py",
        "{answered.id: answered.receipt for answered in fact.snapshot.answered}",
        "{}",
        (FOLD, MESSAGES),
        seeds=300,
        kind="session",
    ),
    Planted(
        "what a turn of a session has left unread is forgotten",
        "perdure/session/state.py",
        "        queue=(*unread, *state.queue),",
        "        queue=state.queue,",
        (MESSAGES,),
        seeds=300,
        kind="session",
    ),
    Planted(
        "each turn of a session may spend the whole budget of the session",
        "perdure/session/state.py",
        "        return None if self.ledger.budget is None else self.ledger.rest",
        "        return self.ledger.budget",
        ("bill within limit", FOLD),
        seeds=300,
        kind="session",
    ),
    Planted(
        "the record of a session has refused answers",
        "perdure/temporal/histories/turn_records.py",
        "    state = withheld.shown(state)\n",
        "",
        ("refused text leaves by no door",),
        seeds=300,
        kind="session",
    ),
    Planted(
        "a session that is cancelled leaves updates without an answer",
        "workflows/session/agent_session.py",
        "        if not workflow.all_handlers_finished() and"
        " workflow.patched(patches.ANSWERS_AT_CANCEL):",
        "        if False:",
        ("updates are answered",),
        seeds=100,
        kind="session",
    ),
    Planted(
        "what is in flight when a worker is lost is never tried again, so a session loses a turn",
        "workflows/session/recording.py",
        "retry_policy=RetryPolicy(maximum_interval=limits.BENCH)",
        "retry_policy=RetryPolicy(maximum_attempts=1)",
        (MESSAGES,),
        seeds=50,
        kind="session",
    ),
    Planted(
        "a session that is closed while it records a turn does not name what that has left unread",
        "workflows/session/agent_session.py",
        "            if turn is not None and await has_ended(turn) and"
        " workflow.patched(patches.CLOSE_LAST):",
        "            if False:",
        (MESSAGES,),
        seeds=300,
        kind="session",
    ),
    Planted(
        "a message that comes too late for the running turn is not queued again",
        "workflows/session/agent_session.py",
        "            self._notes.note_result(SteeringFailed(message_id))\n            return False",
        "            return False",
        (FOLD, MESSAGES),
        seeds=100,
        kind="session",
    ),
    Planted(
        "what a session hears of a turn comes after the updates of the same workflow task",
        "workflows/session/notes.py",
        "len(self._news) > self._results and workflow.patched(patch)",
        "False",
        (FOLD,),
        seeds=150,
        kind="session",
    ),
    Planted(
        "a cancel that comes while a session records a turn is lost",
        "workflows/session/recording.py",
        "if is_cancelled_exception(error) and workflow.patched(CANCELLED_RECORDING):",
        "if False:",
        ("nothing is stuck", FOLD, REPLAYS),
        seeds=200,
        kind="session",
    ),
    Planted(
        "a message right after a cancelled turn of a session is not read",
        "perdure/session/state.py",
        'if_busy == "interrupt" or state.is_interrupted or state.is_over',
        'if_busy == "interrupt" or state.is_interrupted',
        (MESSAGES,),
        seeds=200,
        kind="session",
    ),
    Planted(
        "the next turn of a session has the rules of the agent that was handed the turn before",
        "perdure/session/state.py",
        "if chosen else (self.named, self.agent)",
        "if chosen else (self.agent, self.agent)",
        ("limits of the caller hold",),
        seeds=200,
        kind="session",
        focus=("teams",),
    ),
    Planted(
        "what a guarded delegate said last is told to its parent when it fails",
        "perdure/turn/state.py",
        "        if self.agent is None or not self.agent.answer_checks:\n            return True",
        "        if True:\n            return True",
        ("refused text leaves by no door",),
        seeds=250,
        kind="session",
    ),
    Planted(
        "the second id of a delegate is made from the id of the run",
        "workflows/second_ids.py",
        "    if workflow.patched(_REPEATED):",
        "    if False:",
        (REPLAYS, JOBS),
        seeds=100,
        focus=("teams", "resets"),
    ),
    Planted(
        "a session goes on in a new run before its updates are answered",
        "workflows/session/agent_session.py",
        "        await self._update_answers.before_next_run(moves=self._moves_on)\n",
        "",
        ("updates are answered", MESSAGES, FOLD),
        seeds=50,
        kind="session",
    ),
    Planted(
        "an answer before the last one, which nobody has checked, is told once the last has passed",
        "perdure/turn/withheld.py",
        "        return [answer for answer in answers if answer != steps[-1].message]",
        "        return []",
        ("refused text leaves by no door",),
        kind="session",
        seeds=100,
        focus=("guards",),
    ),
    Planted(
        "two messages that come too late for a turn are read in the order of their news",
        "perdure/session/state.py",
        "    before = sum(message.id in earlier for message in state.queue)",
        "    before = 0 * len(earlier)",
        (FOLD, MESSAGES),
        seeds=50,
        kind="session",
    ),
    Planted(
        "a last answer is asked for although its time is up",
        "workflows/turn/calls.py",
        "        if has_deadline and time_left is not None and time_left <= timedelta():",
        "        if has_deadline and not _is_last(key) and time_left == timedelta():",
        (FOLD,),
        seeds=100,
        focus=("deadlines",),
    ),
    Planted(
        "effects are taken back in the order in which they were made",
        "perdure/turn/undo.py",
        "    return tuple(record for record in reversed([*own]) if",
        "    return tuple(record for record in [*own] if",
        (BACK,),
        seeds=300,
    ),
    Planted(
        "a turn that takes an effect back forgets the next one",
        "workflows/turn/undoing.py",
        "undo.chained(record, records[number:],",
        "undo.chained(record, records[number + 1:],",
        (BACK,),
        seeds=300,
    ),
    Planted(
        "a second result of a job takes the place of the first",
        "perdure/turn/jobs.py",
        "    if job is not None and job.output is not None:\n        return state\n",
        "",
        (JOBS, CANCELLED),
        also=(
            (
                "perdure/turn/jobs.py",
                "return job is not None and job.output is None and bool(job.proof)",
                "return job is not None and bool(job.proof)",
            ),
        ),
        seeds=200,
    ),
    Planted(
        "the token of a job is not proven",
        "perdure/turn/jobs.py",
        "    if not token.is_made_with(secret):",
        "    if False:",
        (JOBS,),
        also=(
            (
                "perdure/turn/jobs.py",
                "bool(job.proof) and job.proof == fact.proof",
                "bool(job.proof)",
            ),
        ),
        seeds=100,
        focus=("jobs", "forgeries"),
    ),
    Planted(
        "a new run of a turn forgets its jobs",
        "perdure/turn/carry.py",
        "jobs=_if_any(tuple(call.job for call in step.calls))",
        "jobs=()",
        (FOLD, JOBS, CANCELLED, "recorded once", "effects at most once"),
    ),
    Planted(
        "a call is charged again when it waits for its job",
        "perdure/turn/call_waits.py",
        "        state = state if open_call.is_begun else _charged(state)\n",
        "        state = _charged(state)\n",
        ("jobs are charged once",),
    ),
    Planted(
        "a result that came before its tool was lost is forgotten",
        "perdure/turn/calls.py",
        "    if job is not None and job.output is not None:  # it came before the tool failed",
        "    if job is not None and job.output is not None and isinstance(fact, ToolReturned):",
        (JOBS,),
        seeds=300,
    ),
    Planted(
        "a result that came before its tool failed is forgotten",
        "perdure/turn/calls.py",
        "    if job is not None and job.output is not None:  # it came before the tool failed",
        "    if job is not None and job.output is not None and isinstance(fact, ToolLost):",
        (JOBS,),
        seeds=200,
        focus=("jobs",),
    ),
    Planted(
        "the jobs of a cancelled turn go on",
        "workflows/turn/agent_turn.py",
        "        await self._moves.stop_jobs()\n        await self._observe_end(outcome)",
        "        await self._observe_end(outcome)",
        (CANCELLED,),
        seeds=200,
        focus=("jobs",),
    ),
)

BATCHES = (
    Planted(
        "a batch counts each place twice that a part gives back",
        "perdure/batch/wire.py",
        "        return max(self.order.slots - self.news.freed, 0)",
        "        return max(self.order.slots - 2 * self.news.freed, 0)",
        ("turns at once within limit",),
        seeds=50,
        kind="batch",
    ),
    Planted(
        "a batch gives away the money that its parts hold",
        "perdure/batch/plan.py",
        "    gone = spent_of(request, progress) + total(\n"
        "        _kept(account) for account in progress.active.values()\n    )",
        "    gone = spent_of(request, progress)",
        ("bill within limit", FOLD),
        seeds=50,
        kind="batch",
    ),
    Planted(
        "a part that is cancelled leaves its turns",
        "workflows/batch/agent_batch_part.py",
        "            if part.is_cancelled:\n"
        "                await self._cancel(part.cancel_reason)\n            ended",
        "            ended",
        ("a cancel reaches each task", FOLD),
        seeds=50,
        kind="batch",
    ),
    Planted(
        "a part that is cancelled leaves its turns while clocks are wrong",
        "workflows/batch/agent_batch_part.py",
        "            if part.is_cancelled:\n"
        "                await self._cancel(part.cancel_reason)\n            ended",
        "            ended",
        ("a cancel reaches each task",),
        seeds=50,
        kind="batch",
        focus=("clocks",),
    ),
    Planted(
        "a batch forgets in a new run which parts have begun",
        "workflows/batch/agent_batch.py",
        '{"progress": self._progress}',
        '{"progress": self._progress.model_copy(update={"active": {}})}',
        ("a batch ends last", "turns at once within limit", FOLD, "tasks end once"),
        seeds=50,
        kind="batch",
    ),
    Planted(
        "a part does not book what its turns have spent",
        "perdure/batch/part.py",
        "        self._spent += spent\n",
        "",
        (FOLD, "bill within limit"),
        seeds=50,
        kind="batch",
    ),
    Planted(
        "a retry runs tasks again that have an answer",
        "clients/batches/handle.py",
        "                if result.state != TaskState.DONE:",
        "                if result.state:",
        ("tasks end once",),
        seeds=50,
        kind="batch",
    ),
    Planted(
        "a webhook has another id than its delivery",
        "workflows/delivery/agent_webhook.py",
        "    sent = Notification(id=call.id,",
        '    sent = Notification(id=f"msg_{workflow.uuid4().hex}",',
        ("webhooks are delivered or recorded",),
        seeds=50,
        kind="batch",
    ),
    Planted(
        "a batch does not wake up for the news of its parts",
        "workflows/batch/agent_batch.py",
        "            await workflow.wait_condition(lambda: self._changed or bool(self._news))",
        "            await workflow.wait_condition(lambda: self._changed)",
        (FOLD, "nothing is stuck"),
        seeds=50,
        kind="batch",
    ),
    Planted(
        "a turn that is cancelled while it fails has no end",
        "workflows/turn/agent_turn.py",
        "            if not workflow.patched(_CANCELLED_LATE):",
        "            if True:",
        ("tasks end once",),
        seeds=50,
        kind="batch",
    ),
    Planted(
        "what a call returns that was given up at a cancel is forgotten",
        "workflows/turn/calls.py",
        "        else:  # the turn may still tell of its end, which takes further workflow tasks",
        "        elif self._board.is_too_late:",
        (FOLD,),
        seeds=200,
        kind="batch",
    ),
    Planted(
        "what is added to a turn of a batch before it begins is not noted",
        "workflows/turn/agent_turn.py",
        "                    if not is_root and self._board.state.agent is None and "
        "workflow.patched(_NOTED):",
        "                    if False:",
        (FOLD,),
        seeds=50,
        kind="batch",
    ),
)


def plant(fault: Planted, folder: Path) -> None:
    """Copy the product to a folder, with the fault."""
    shutil.copytree(
        ROOT / "perdure",
        folder / "perdure",
        symlinks=True,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    for file, before, after in ((fault.file, fault.before, fault.after), *fault.also):
        path = folder / file
        text = path.read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{fault.name}: the code has changed, plant it anew"
        path.write_text(text.replace(before, after), encoding="utf-8")


def found(fault: Planted, folder: Path) -> tuple[int, str]:
    """Simulate with the fault; return the first seed that breaks a promise, and the promise."""
    said = _simulated(
        folder,
        *("perdure.testing.simulation", "--seeds", str(fault.seeds), "--until-broken"),
        *("--kinds", fault.kind),
        *(("--focus", *fault.focus) if fault.focus else ()),
    )
    seed = re.search(r"seed (\d+) of a \w+ breaks a promise: ([^:]+):", said)
    return (int(seed[1]), seed[2]) if seed else (-1, said[-4000:])


def found_in_every_order(fault: Planted, folder: Path) -> str:
    """Search all orders of a small turn with the fault; return the promise that is broken."""
    said = _simulated(folder, "perdure.testing.simulation.exhaustive", *fault.space)
    broken = re.search(r"an interleaving breaks a promise: ([^:]+):", said)
    return broken[1] if broken else said[-4000:]


def _simulated(folder: Path, module: str, *arguments: str) -> str:
    """Return what a module says that runs with the code in a folder."""
    ran = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    return ran.stdout + ran.stderr
