"""The people around a turn: they approve, deny, add, write, resume and cancel, at any moment.

Their client sends an update again, with the same id, if the run has ended before it was answered,
as a real client does; and at times although it was answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pydantic import BaseModel

from perdure.temporal import failures
from perdure.temporal.names import ADD_BUDGET, CALL_MODEL, DECIDE, EMIT, RESUME, STEER, TURN
from perdure.temporal.payloads import pack
from perdure.testing.simulation.calls.servers import some_decisions
from perdure.testing.simulation.choices import GUARDS, INPUTS, UNWELCOME, Choices
from perdure.testing.simulation.server.history import attributes, name_of
from perdure.testing.simulation.server.runs import SimulatedRun, Update, UpdateResponse
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.turn import call_waits, questions
from perdure.turn.wait_values import Emit
from perdure.turn.wire import Steer
from perdure.values.approvals import Decision, PendingApproval
from perdure.values.budgets import BudgetUpdate
from perdure.values.questions import Question

MOMENTS = "moments"
"""The sequence of what people do at the moments at which it matters most."""

PATIENCE = 60
"""After so many looks at a turn, somebody cancels it."""

_PAUSES_S = (10, 1, 0.2, 100)
_TELLS = "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED"
_CANCELS = 40


@dataclass(eq=False)
class SentRequest:
    """An update that somebody has sent, with its copies in later runs.

    Attributes:
        workflow_id: The workflow that it was sent to.
        id: Its id in each run.
        name: The name of the update.
        content: Its input.
        last: The copy in the last run that had it.
    """

    workflow_id: str
    id: str
    name: str
    content: BaseModel
    last: Update

    @property
    def is_answered(self) -> bool:
        """Whether the sender need not send it again."""
        match self.last.answer:
            case UpdateResponse.REJECTED | UpdateResponse.FAILED:
                assert self.last.failure is not None
                return self.last.failure.application_failure_info.type != failures.RUN_ENDS
            case answer:
                return answer is UpdateResponse.COMPLETED


class Empty(BaseModel):
    """The input of an update that needs none."""


class People:
    """Everybody who has to do with one tree of turns.

    Attributes:
        sent: What they have sent.
        cancelled: Whether they have cancelled the turn at the root.
        adds_to_turns: Whether they add to the budgets of single turns.
        sees_moments: Whether they write while a guarded agent answers.
        texts: The texts of the messages to a session, by their ids.
    """

    adds_to_turns = True
    sees_moments = True

    def __init__(self, server: SimulatedServer, workflow_id: str) -> None:
        self.sent: list[SentRequest] = []
        self.cancelled = False
        self.texts: dict[str, str] = {}
        self._server = server
        self._choices: Choices = server.choices
        self.workflow_id = workflow_id
        self._is_looking = True
        self._looks = 0
        server.on_event.append(self._watch)
        server.clock.later(self._choices.pick((1, 0, 0.05)), self.look)

    @property
    def _runs(self) -> list[SimulatedRun]:
        """The open runs of the tree, with delegates of a run that was reset."""
        return [
            run
            for run in self._server.runs
            if not run.closed and run.begun.type == TURN and self._is_of_tree(run)
        ]

    def _is_of_tree(self, run: SimulatedRun) -> bool:
        """Return whether a turn is that of these people, or one of its delegates."""
        root = run.root
        is_left = run.is_left or not root.closed or run.takes_back
        return is_left and root.id == self.workflow_id

    def come_back(self) -> None:
        """Look at the turns again, after somebody has begun what was over."""
        self._looks = 0
        if not self._is_looking:
            self._is_looking = True
            self._server.clock.later(self._choices.pick(_PAUSES_S), self.look)

    def look(self) -> None:
        """Look at the turns, do what they wait for, and come again."""
        root = self._server.run_of(self.workflow_id)
        if root is None and not self._runs:
            self._is_looking = False
            return
        self._looks += 1
        for one in self.sent:
            self._repeat(one)
        for run in self._runs:
            if not self._choices.happens(6):
                self._help(run)
        if self._looks > PATIENCE or self._choices.happens(_CANCELS):
            self._cancel(root)
        self._server.clock.later(self._pause_s(root), self.look)

    def _cancel(self, root: SimulatedRun | None) -> None:
        """Cancel the turn, and the delegates that a reset has left."""
        if root is not None:
            self.cancelled = self._server.cancel(root, "enough") or self.cancelled
        for run in self._runs:
            if run.is_left:
                self._server.cancel(run, "not needed")

    def _watch(self, run: SimulatedRun) -> None:
        """Do something in the very moment of some events."""
        if run.begun.type == TURN and self._choices.happens(60):
            self._server.clock.later(0, lambda: self._interfere(run))
        if (
            self.sees_moments
            and _asks_guarded_model(run)
            and self._choices.happens(2 if self._choices.aims_at(GUARDS) else 6, beside=MOMENTS)
        ):
            self._server.clock.later(0, lambda: self._say(run))
        if _tells_parent(run) and self._choices.has("cancels"):
            self._server.clock.later(0, lambda: self._cancel_delegate(run))

    def _cancel_delegate(self, run: SimulatedRun) -> None:
        self._server.cancel(run, "meanwhile")

    def _interfere(self, run: SimulatedRun) -> None:
        if run.closed:
            return
        match self._choices.pick(("say", "say", "add", "resume", "cancel", "decide")):
            case "say":
                self._say(run)
            case "add":
                self.add(run)
            case "resume":
                self._send(run, RESUME, Empty())
            case "decide":
                self._decide(run)
            case _:
                root = self._server.run_of(self.workflow_id)
                target = root if root and self._choices.happens(2) else run
                self.cancelled |= self._server.cancel(target, "now") and target is root

    def _help(self, run: SimulatedRun) -> None:
        waiting = run.read.waiting
        kind = waiting.kind if waiting else ""
        if kind == "approval":
            self._decide(run)
        elif kind in ("budget", "iterations"):
            self.add(run)
        elif kind in ("resume", "provider") and not self._choices.happens(3):
            self._send(run, RESUME, Empty())
        elif self._choices.happens(8):
            self._say(run)
        if run.read.agent and call_waits.waits_for_events(run.read.agent):
            self._emit(run)

    def _emit(self, run: SimulatedRun) -> None:
        """Send one of the events that its model may wait for; mostly none."""
        names = ("", "", "", "built", "tested")
        if name := names[self._choices.about_waits(len(names))]:
            self._send(run, EMIT, Emit(name=name, body="1"))

    def _pause_s(self, root: SimulatedRun | None) -> float:
        """Return when people look again: while calls wait, at times not before these end."""
        pause_s = self._choices.pick(_PAUSES_S)
        waiting = root.read.waiting if root is not None else None
        if waiting is None or waiting.since is None or waiting.until is None:
            return pause_s
        is_long = waiting.is_of_calls and self._choices.about_waits(2) == 1
        return (waiting.until - waiting.since).total_seconds() + 1 if is_long else pause_s

    def _decide(self, run: SimulatedRun) -> None:
        waiting = run.read.waiting
        for approval in waiting.pending if waiting else ():
            if approval.is_question:
                question = questions.question_of(run.read, approval.call_id)
                if question is not None and question.server:
                    self._answer_server(run, approval, question)
                else:
                    self._answer(run, approval)
                continue
            says = self._choices.pick(
                ("approve", "approve", "approve", "deny", "edit", "wrong", "-")
            )
            if says == "-":
                continue
            decision = Decision(
                call_id=approval.call_id,
                digest="another" if says == "wrong" else approval.digest,
                approve=says != "deny",
                arguments="{}" if says == "edit" else None,
            )
            self._send(run, DECIDE, decision)

    def _answer(self, run: SimulatedRun, question: PendingApproval) -> None:
        """Answer a question: rightly, twice, wrongly, or as if it were no question."""
        says = self._choices.pick(("right", "right", "twice", "wrong", "deny", "approve", "-"))
        answers = {
            "right": ['"red"', '{"n": 1}'],
            "twice": ['"red"', '"green"', '{"n": 1}', '{"n": 2}'],
            "wrong": ['""', '{"n": "one"}', "5"],
        }
        for answer in answers.get(says, [None] if says != "-" else []):
            decision = Decision(
                call_id=question.call_id,
                digest=question.digest,
                approve=says != "deny",
                answer=answer,
                by=f"person {len(self.sent)}",
            )
            self._send(run, DECIDE, decision)

    def _answer_server(
        self, run: SimulatedRun, approval: PendingApproval, question: Question
    ) -> None:
        """Answer what a server asks during a call, or deny it."""
        for approve, answer in some_decisions(self._choices, question, len(self.sent)):
            decision = Decision(
                call_id=approval.call_id,
                digest=approval.digest,
                approve=approve,
                answer=answer,
                by=f"person {len(self.sent)}",
            )
            self._send(run, DECIDE, decision)

    def add(self, run: SimulatedRun) -> None:
        """Add to the limits of a turn."""
        budget = run.read.accounts.ledger.budget
        limits: dict[str, object] = {
            name: timedelta(seconds=60) if name == "time" else 5000
            for name, value in (budget or ())
            if value is not None
        }
        is_about_steps = run.read.waiting is not None and run.read.waiting.kind == "iterations"
        if is_about_steps or not limits or self._choices.happens(5):
            limits["iterations"] = 3
        self._send(run, ADD_BUDGET, BudgetUpdate.model_validate(limits))

    def nudge(self, run: SimulatedRun) -> None:
        """Send an update that changes little, as one of many."""
        self._send(run, ADD_BUDGET, BudgetUpdate(iterations=1))

    def _say(self, run: SimulatedRun) -> None:
        if run.closed:
            return
        text = f"{self._word()} {len(self.sent)}"
        steer = Steer(
            text=text, now=self._choices.happens(3), deny_pending=self._choices.happens(3)
        )
        self._send(run, STEER, steer)

    def _word(self) -> str:
        """Return the beginning of a message, which an input guardrail may refuse."""
        is_aim = self._choices.aims_at(INPUTS)
        return UNWELCOME if is_aim and self._choices.happens(3, beside=INPUTS) else "message"

    def _send(self, run: SimulatedRun, name: str, content: BaseModel) -> None:
        update_id = f"update-{len(self.sent)}"
        update = self._server.update(run, update_id, name, pack(content))
        self.sent.append(SentRequest(run.id, update_id, name, content, update))

    def _repeat(self, one: SentRequest) -> None:
        """Send an update again, if its run has ended without an answer, or just so."""
        run = self._server.run_of(one.workflow_id)
        if run is not None and (not one.is_answered or self._choices.happens(30)):
            one.last = self._server.update(run, one.id, one.name, pack(one.content))


def _asks_guarded_model(run: SimulatedRun) -> bool:
    """Return whether a guarded agent has begun to ask a model.

    A message that comes now is read after the answer, which is not the last one then.
    """
    event = run.history.events[-1]
    agent = run.read.agent
    return (
        name_of(event) == "ACTIVITY_TASK_SCHEDULED"
        and attributes(event).activity_type.name == CALL_MODEL
        and agent is not None
        and agent.answer_checks > 0
    )


def _tells_parent(run: SimulatedRun) -> bool:
    """Return whether a delegate has begun to tell the turns above it something.

    A cancel that comes now must not be forgotten while it waits for that.
    """
    return run.is_delegate and name_of(run.history.events[-1]) == _TELLS
