"""A turn in the terminal, line by line, from its events."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from textwrap import indent
from typing import TextIO
from urllib.parse import quote

from perdure.clients.cli import amounts
from perdure.clients.cli.screen import Paint, columns_of, put, shown
from perdure.clients.cli.widths import cut, wrapped
from perdure.clients.events import Event
from perdure.clients.speech import Said, TextBegins, TextVoid
from perdure.text import (
    arguments_exactly,
    arguments_in_brief,
    arguments_indented,
    harmless,
    one_line,
    word,
)
from perdure.turn.facts import (
    AgentResolved,
    ApprovalNeeded,
    BudgetAdded,
    CallFailed,
    CancelRequested,
    ChildEnded,
    ChildScheduled,
    ChildTold,
    Decided,
    Fact,
    ModelAnswered,
    PolicyAnswered,
    Resumed,
    ToolLost,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    WaitBegan,
    WaitEnded,
)
from perdure.turn.fold import apply
from perdure.turn.keys import ModelKey
from perdure.turn.state import TurnState
from perdure.values.approvals import Decision
from perdure.values.budgets import Remaining
from perdure.values.reports import AgentReport, Outcome
from perdure.values.tasks import headline

COLOURS = {Outcome.COMPLETED: "green", Outcome.TRUNCATED: "yellow", Outcome.CANCELLED: "yellow"}
"""Of how a turn ended; red for the others."""
_INDENT = len("   0.0 s  ")
_IN_SHORT = TurnStarted | AgentResolved | ModelAnswered | ToolReturned | ChildScheduled | ChildEnded
"""What is told in one line, cut where the terminal ends.

Why a turn waits or a call failed is told in full.
"""


class Progress:
    """Prints what happens in a turn as its events come in, and what its model says.

    With `full` all that was said, below each line.

    Attributes:
        said: The last text that was printed.
        is_speaking: Whether a text is being printed, which another line would cut in two.
    """

    def __init__(self, out: TextIO | None = None, *, full: bool = False) -> None:
        out = out or sys.stdout
        self._full = full
        self.said = ""
        self.is_speaking = False
        self._out = out
        self._paint = Paint(out)
        self._state = TurnState()
        self._began: datetime | None = None

    @property
    def state(self) -> TurnState:
        """The fold of the events so far."""
        return self._state

    def show(self, event: Event) -> None:
        """Print the line of an event, if it has one."""
        self._began = self._began or event.at
        self._state = apply(self._state, event.fact)
        text = self._text(event)
        if text:
            self._end_text()
            self._print(
                f"{self._time(event.at)}  {text}", is_short=isinstance(event.fact, _IN_SHORT)
            )
        for whole in _whole(event.fact) if self._full else ():
            put(indent(shown(whole, self._out).rstrip(), " " * _INDENT), self._out)

    def now(self, at: datetime, words: str) -> str:
        """A line about this moment."""
        return self._paint("dim", f"{self._time(at)}  {words}")

    def say(self, said: Said) -> None:
        """Print a piece of what the model says."""
        match said:
            case TextBegins(step, attempt):
                self._end_text()
                self.said, self.is_speaking = "", True
                put(f"{self._paint('dim', str(ModelKey(step, attempt)))}  ", self._out, end="")
            case TextVoid(step, attempt):
                self._end_text()
                self.said = ""
                put(
                    self._paint(
                        "yellow", f"{ModelKey(step, attempt)}  what was said does not count"
                    ),
                    self._out,
                )
            case str():
                self.said += said
                put(shown(said, self._out), self._out, end="")

    def _time(self, at: datetime) -> str:
        seconds = max((at - (self._began or at)).total_seconds(), 0)
        return self._paint("dim", f"{seconds:6.1f} s")

    def _print(self, line: str, *, is_short: bool) -> None:
        columns = columns_of(self._out)
        if columns is not None:
            line = (
                cut(line, columns)
                if is_short
                else wrapped(line, columns, min(_INDENT, columns // 3))
            )
        put(line, self._out)

    def _end_text(self) -> None:
        if self.is_speaking:
            put("", self._out)
        self.is_speaking = False

    def _text(self, event: Event) -> str:
        paint = self._paint
        match event.fact:
            case TurnStarted(request):
                return f"{paint('bold', word(request.agent))}: {headline(request.task)}"
            case AgentResolved(_, agent):
                return paint("dim", f"asks {word(agent.model)}{_and_tools(len(agent.tools))}")
            case ModelAnswered(key, answer):
                return self._answered(key, answer.message.text)
            case CallFailed(key, error, lost):
                return paint(
                    "yellow",
                    f"{key} "
                    f" {'its worker was lost; it is tried again' if lost else _all(error.message)}",
                )
            case ToolReturned(key, output):
                return (
                    f"{key} "
                    f" {paint('red' if output.is_error else 'dim', '→ ' + one_line(output.content, 90))}"
                )
            case ApprovalNeeded(key, reason):
                return paint("yellow", f"{key}  {one_line(reason, 200)}")
            case ToolLost(key, loss, _):
                return paint("yellow", f"{key}  {loss.value.replace('_', ' ')}")
            case ChildScheduled(key, turn_id, request):
                return (
                    f"{key}  {paint('cyan', f'{word(turn_id)} begins:')} {headline(request.task)}"
                )
            case ChildEnded(key, summary, reason):
                said = (
                    ": ".join(filter(None, (summary.outcome.value, one_line(summary.output, 60))))
                    if summary
                    else reason
                )
                return f"{key}  {paint('dim', '→ ' + _all(said))}"
            case _:
                return self._waits(event.fact)

    def _waits(self, fact: Fact) -> str:
        paint = self._paint
        match fact:
            case CancelRequested(reason):
                return paint("yellow", f"cancel requested{': ' + _all(reason) if reason else ''}")
            case WaitBegan(until=datetime() as until):
                return paint(
                    "yellow", f"waits for provider: attempt {fact.attempt} at {until:%H:%M:%S} UTC"
                )
            case WaitBegan(kind, reason):
                return paint("yellow", f"waits for {_all(kind)}: {_all(reason)}")
            case ChildTold(key, news) if news.waits_for:
                return paint(
                    "yellow", f"{key}  waits for {_all(news.waits_for)}: {_all(news.reason)}"
                )
            case WaitEnded():
                return paint("dim", "goes on")
            case PolicyAnswered(key, ruling):
                return paint("dim", f"{key}  {ruling.verdict.kind.replace('_', ' ')}")
            case Decided() | BudgetAdded() | Resumed():
                return self._said(fact)
            case TurnEnded(outcome):
                return paint(COLOURS.get(outcome, "red"), outcome.value)
            case _:
                return ""

    def _said(self, fact: Decided | BudgetAdded | Resumed) -> str:
        """What a person told the turn."""
        paint = self._paint
        match fact:
            case Decided(decision):
                return paint(
                    "green" if decision.approve else "yellow",
                    f"{word(decision.call_id)} {_decided(decision)}",
                )
            case Resumed():
                return paint("green", "resumed")
            case BudgetAdded(more, by, iterations):
                added = Remaining(**dict(more or ()), iterations=iterations)
                what = "budget" if more else "iterations"
                return paint(
                    "green",
                    f"{what} added{f' by {_all(by)}' if by else ''}: {amounts.in_words(added)}",
                )

    def _answered(self, key: ModelKey, text: str) -> str:
        calls = [one.call for one in self._state.open_step.calls] or (
            self._state.steps[-1].message.calls if self._state.steps else ()
        )
        if not calls:
            return f"{key}  {self._paint('dim', 'answers')}"
        asked = ", ".join(
            f"{word(call.name)} {arguments_in_brief(call.arguments)}" for call in calls
        )
        return f"{key}  {self._paint('cyan', asked)}" + (
            f"  {self._paint('dim', one_line(text, 60))}" if text not in ("", self.said) else ""
        )


def _decided(decision: Decision) -> str:
    """What was decided, by whom, with which arguments and why."""
    edited = (
        ""
        if decision.arguments is None
        else f", with other arguments: {arguments_exactly(decision.arguments)}"
    )
    return f"{decision.in_words}{edited}" + (
        f": {_all(decision.reason)}" if decision.reason else ""
    )


def _whole(fact: Fact) -> Iterator[str]:
    """What the line of a fact may cut: the task, calls with what was said before them, and results.

    The last answer is printed at the end.
    """
    match fact:
        case TurnStarted(request):
            yield request.task.text
        case ModelAnswered(_, answer) if answer.message.calls:
            yield from filter(str.strip, (answer.message.text,))
            for call in answer.message.calls:
                yield f"{word(call.name)} {arguments_indented(call.arguments)}"
        case ToolReturned(_, output):
            yield output.content
        case ChildEnded(_, summary, reason):
            yield summary.output if summary else reason
        case _:
            return


def _and_tools(count: int) -> str:
    return f", {count} tool{'s' * (count > 1)}" if count else ""


def _all(text: str) -> str:
    """A text whole, as one line that cannot hurt."""
    return harmless(" ".join(text.split()))


def figures(report: AgentReport) -> str:
    """Steps, tokens, cost and time in one line."""
    tokens = report.usage.input_tokens + report.usage.output_tokens
    cost = "–" if report.cost is None else f"${report.cost}"
    steps = "1 step" if len(report.steps) == 1 else f"{len(report.steps)} steps"
    return f"{steps} · {tokens} tokens · cost {cost} · {report.duration.total_seconds():.1f} s"


def address_in_ui(ui: str, namespace: str, turn_id: str) -> str:
    """Where the web UI shows a turn."""
    return f"{ui}/namespaces/{quote(namespace, safe='')}/workflows/{quote(turn_id, safe='')}"
