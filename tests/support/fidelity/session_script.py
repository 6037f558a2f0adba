"""What happens in the session of a seed: what people do, and all that happens in its turns."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from pydantic import BaseModel

from perdure.session.state import SessionState
from perdure.session.wire import (
    ForgetReminder,
    IfBusy,
    Remind,
    Say,
    SessionReason,
    SessionRequest,
    Unqueue,
)
from perdure.temporal.names import (
    ADD_BUDGET,
    CLOSE,
    FORGET_REMINDER,
    INTERRUPT,
    REMIND,
    RESUME,
    SAY,
    UNQUEUE,
)
from perdure.testing.simulation.agents import some_budget
from perdure.testing.simulation.choices import Choices
from perdure.values.budgets import BudgetUpdate

from .acts import CANCEL, FILL, REASON, TERMINATE, Act, Empty, Scene
from .script import Script, relative, without_time

_WISHES: tuple[IfBusy, ...] = ("queue", "queue", "queue", "steer", "steer", "interrupt", "reject")
_WHILE_ASKED = (
    "say",
    "say",
    "say",
    "say",
    "unqueue",
    "again",
    "add",
    "resume",
    "interrupt",
    "fill",
)
_WHILE_IT_WAITS = (*_WHILE_ASKED, "terminate", "cancel the turn")
_WHILE_IDLE = (*("say",) * 5, "unqueue", "again", "add", "resume", "interrupt", "fill")
_FEW, _SOME = 3, 8
"""The fewest and the most things that people do when no turn runs, before they end the session."""
_MOST = 40
IDLE = timedelta(seconds=0.3)
"""Only a session without reminders ends when it is idle, so the time of nothing else matters."""
_REMINDER = "later"


class SessionScript(Script):
    """The script of a session.

    The order of what people do is always known: they do something when nothing else happens, or one
    thing after another while a turn's own model is asked, which does nothing else then.

    Attributes:
        first: What the session is sent with its start; None if nothing is.
    """

    request: SessionRequest

    def __init__(self, seed: int, root: str, now: datetime, *, resets: int = 0) -> None:
        """Make the script of a seed, whose people look at the clock `now`."""
        super().__init__(seed, root, resets=resets)
        self._may_fill = not resets  # a reset delivers it again, and a server writes less at once
        self._may_stop = not resets  # a turn that a reset has left is not stopped with its session
        self._sent: list[Act] = []
        self._done = 0
        self._has_left = False
        draw = self._draw("session")
        self._left = draw.randint(_FEW, _SOME)
        self._end = "leave" if self.request.idle else draw.choice(("close", "close", "cancel"))
        remind = Remind(at=now + timedelta(days=1), text="in vain")
        self.first = Act(self.root, REMIND, _REMINDER, remind) if self.request.idle else None

    def _request(self, choices: Choices) -> SessionRequest:
        budget = without_time(some_budget(choices))
        return SessionRequest(
            agent=self.agents[0].name,
            budget=budget,
            idle=choices.pick((None, None, IDLE)),
            max_iterations=choices.pick((None, None, 4)),
        )

    def _meanwhile(self, draw: random.Random, turn: str, key: str) -> list[Act]:
        is_delegate = turn.count("/") > 1  # others may run beside it
        if is_delegate or draw.random() > 0.3:
            return []
        kinds = [draw.choice(_WHILE_ASKED) for _ in range(draw.choice((1, 1, 2, 3)))]
        acts = [
            self._act(draw, kind, f"{number} at {relative(turn)} {key}")
            for number, kind in enumerate(kinds)
        ]
        how = draw.choice(("close", "cancel" if self._may_stop else "close"))
        ends = [self._ending(how)] if draw.random() < 0.1 else []
        return [*acts, *ends]

    def next_act(self, scene: Scene) -> Act | None:
        waiting, session = scene.waiting, scene.session
        assert session is not None
        if self._has_left:  # a turn that a reset has left may go on
            return self._order(waiting) if waiting else None
        if reset := self._reset(scene):
            return reset
        self._done += 1
        draw = self._draw("people", self._done)
        if self._done > _MOST:
            last = min(waiting, key=relative) if waiting and self._done > _MOST + 1 else self.root
            return Act(last, CANCEL)
        if waiting and (session.closed is not None or draw.random() < 0.6):
            return self._order(waiting)
        if session.running is not None:
            return self._act(draw, draw.choice(_WHILE_IT_WAITS), str(self._done), session)
        if self._left <= 0:
            return self._ending(self._end, session)
        self._left -= 1
        if session.is_spent and draw.random() < 0.7:
            return self._act(draw, "add", str(self._done))
        return self._act(draw, draw.choice(_WHILE_IDLE), str(self._done))

    def _ending(self, how: str, session: SessionState | None = None) -> Act:
        """Return how people end the session, which stays open with what waits."""
        if how == "leave" and session is not None and not session.queue:
            self._has_left = True
            return Act(self.root, FORGET_REMINDER, "forget", ForgetReminder(id=_REMINDER))
        if how == "cancel":
            return Act(self.root, CANCEL)
        return Act(self.root, CLOSE, "close", SessionReason(reason=REASON, by="ann"))

    def _act(
        self, draw: random.Random, kind: str, place: str, session: SessionState | None = None
    ) -> Act:
        may_stop = self._may_stop or session is not None
        if kind == "say":
            return self._say(draw, place, may_stop=may_stop)
        if kind == "interrupt" and not may_stop:
            kind = "resume"
        if kind == "again" and self._sent:
            return draw.choice(self._sent)
        if kind == "fill" and self._may_fill:
            return Act(self.root, FILL)
        if kind in ("terminate", "cancel the turn") and session and session.running:
            name = TERMINATE if kind == "terminate" else CANCEL
            return Act(session.running.turn_id, name)
        name, content = self._asked(draw, kind)
        return Act(self.root, name, f"{kind} {place}", content)

    def _asked(self, draw: random.Random, kind: str) -> tuple[str, BaseModel]:
        match kind:
            case "unqueue":
                ids = [act.id for act in self._sent[-3:]] or ["none"]
                return UNQUEUE, Unqueue(id=draw.choice(ids), by="ann")
            case "add":
                return ADD_BUDGET, self._more()
            case "interrupt":
                return INTERRUPT, SessionReason(reason="stop", by="ann")
            case _:
                return RESUME, Empty()

    def _more(self) -> BudgetUpdate:
        """Return more of each limit, or of one that the session does not have, which it refuses."""
        limits = {name: 5000 for name, value in self.request.budget or () if value is not None}
        return BudgetUpdate.model_validate(limits or {"usd": 1})

    def _say(self, draw: random.Random, place: str, *, may_stop: bool) -> Act:
        wish = draw.choice(_WISHES)
        if wish == "interrupt" and not may_stop:
            wish = "queue"
        agent = draw.choice(self.agents).name if draw.random() < 0.15 else None
        text = f"message {place}"
        act = Act(
            self.root, SAY, f"say {place}", Say(text=text, if_busy=wish, by="ann", agent=agent)
        )
        self._sent.append(act)
        return act
