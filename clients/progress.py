"""A turn in the terminal, line by line, from its events."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from typing import TextIO
from urllib.parse import quote

from perdure.clients.feed import Event
from perdure.facts import AgentResolved, CallFailed, CancelRequested, Key, ModelAnswered, ToolLost, ToolReturned, TurnEnded, TurnStarted
from perdure.fold import TurnState, apply
from perdure.reports import AgentReport
from perdure.tasks import headline
from perdure.text import one_line

_STYLES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Paint:
    """Colours where they are wanted: on a terminal, unless NO_COLOR is set."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._on = out.isatty() and not os.environ.get("NO_COLOR")

    def __call__(self, style: str, text: str) -> str:
        """`text` in a style, or as it is."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._on else text


class Progress:
    """Prints what happens in a turn as its events come in."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
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
            seconds = (event.at - self._began).total_seconds()
            print(f"{self._paint('dim', f'{seconds:6.1f} s')}  {text}", file=self._out, flush=True)

    def _text(self, event: Event) -> str:
        paint = self._paint
        match event.fact:
            case TurnStarted(request):
                return f"{paint('bold', request.agent)}: {headline(request.task)}"
            case AgentResolved(_, agent):
                return paint("dim", f"asks {agent.model}, {len(agent.tools)} tools")
            case ModelAnswered(key, answer):
                return self._answered(key, answer.message.text)
            case CallFailed(key, error, lost):
                return paint("yellow", f"{key}  {'its worker was lost; it is tried again' if lost else error.message}")
            case ToolReturned(key, output):
                return f"{key}  {paint('red' if output.is_error else 'dim', '→ ' + one_line(output.content, 90))}"
            case ToolLost(key, loss, _):
                return paint("yellow", f"{key}  {loss.value.replace('_', ' ')}")
            case CancelRequested(reason):
                return paint("yellow", f"cancel requested{': ' + reason if reason else ''}")
            case TurnEnded(outcome):
                return paint("green" if outcome == "completed" else "red", outcome.value)
            case _:
                return ""

    def _answered(self, key: Key, text: str) -> str:
        calls = self._state.calls or (self._state.steps[-1].message.calls if self._state.steps else ())
        if not calls:
            return f"{key}  {self._paint('dim', 'answers')}"
        asked = ", ".join(f"{call.name} {one_line(call.arguments, 70)}" for call in calls)
        return f"{key}  {self._paint('cyan', asked)}" + (f"  {self._paint('dim', one_line(text, 60))}" if text else "")


def figures(report: AgentReport) -> str:
    """Steps, tokens, cost and time in one line."""
    tokens = report.usage.input_tokens + report.usage.output_tokens
    cost = "–" if report.cost is None else f"${report.cost}"
    return f"{len(report.steps)} steps · {tokens} tokens · cost {cost} · {report.duration.total_seconds():.1f} s"


def address_in_ui(ui: str, namespace: str, turn_id: str) -> str:
    """Where the web UI shows a turn."""
    return f"{ui}/namespaces/{quote(namespace, safe='')}/workflows/{quote(turn_id, safe='')}"
