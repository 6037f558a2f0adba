"""A turn in the terminal, line by line, from its events."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from textwrap import indent
from typing import TextIO
from urllib.parse import quote

from rich.text import Text

from perdure.clients.cli.drawing import amounts
from perdure.clients.cli.drawing.screen import Screen, cut, put, shown, wrapped
from perdure.clients.reading.events import Event
from perdure.clients.reading.live_text import Piece, TextBegins, TextVoid
from perdure.text import (
    arguments_exactly,
    arguments_in_brief,
    arguments_indented,
    counted,
    harmless,
    money,
    one_line,
    word,
)
from perdure.turn.facts import (
    AgentResolved,
    ApprovalNeeded,
    BudgetAdded,
    CallFailed,
    CallFinished,
    CancelRequested,
    ChildEnded,
    ChildScheduled,
    ChildTold,
    Decided,
    Emitted,
    Fact,
    HandedOver,
    JobStopped,
    ModelAnswered,
    PolicyAnswered,
    Polled,
    Resumed,
    Said,
    ToolLost,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    Verified,
    WaitBegan,
    WaitEnded,
)
from perdure.turn.keys import ModelKey
from perdure.turn.state import TurnState
from perdure.turn.wait_values import Woken
from perdure.turn.waiting import Waiting
from perdure.turn.wire import Summary, ToolOutput
from perdure.values.approvals import Decision
from perdure.values.budgets import Remaining
from perdure.values.inquiries import Inquiry
from perdure.values.moments import in_words, period_in_words
from perdure.values.reports import AgentReport, Outcome
from perdure.values.tasks import headline

COLOURS: dict[str, str] = {
    Outcome.COMPLETED: "green",
    Outcome.TRUNCATED: "yellow",
    Outcome.CANCELLED: "yellow",
}
"""The colours of outcomes; the others are red."""
_INDENT = len("   0.0 s  ")
_ASKS = "the MCP server {server!r} asks people"
_IN_SHORT = (
    TurnStarted
    | AgentResolved
    | HandedOver
    | ModelAnswered
    | ToolReturned
    | ChildScheduled
    | ChildEnded
)
"""Facts whose line is cut at the width of the terminal.

The reasons of waits and failures are printed in full.
"""


class Progress:
    """Prints the events of a turn as they come in, and the text of its model.

    With `full`, the complete text is printed below each line. With `brief`, lines have no time and
    begin at the left edge, and there are none for the task, the answer and the end of a turn that
    has an answer.

    Attributes:
        said: The last text that was printed.
        is_speaking: Whether text is being printed, which another line would interrupt.
    """

    def __init__(
        self, out: TextIO | None = None, *, full: bool = False, brief: bool = False
    ) -> None:
        out = out or sys.stdout
        self._full = full
        self._is_brief = brief
        self.said = ""
        self.is_speaking = False
        self._out = out
        self._state = TurnState()
        self._began: datetime | None = None

    @property
    def state(self) -> TurnState:
        """The fold of the events so far."""
        return self._state

    def show(self, event: Event) -> None:
        """Print the line of an event, if it has one."""
        self._began = self._began or event.at
        self._state = event.onto(self._state)
        text = _text(event.fact, self._answered)
        if text and not (self._is_brief and _is_plain(event.fact)):
            self.end_text()
            self._print(
                text if self._is_brief else Text.assemble(self._time(event.at), "  ", text),
                is_short=isinstance(event.fact, _IN_SHORT),
            )
        for full_text in _full_texts(event.fact) if self._full else ():
            put(indent(shown(full_text, self._out).rstrip(), " " * _INDENT), self._out)

    def now(self, at: datetime, activity: str) -> Text:
        """Return a line with this time."""
        return Text.assemble(self._time(at), "  ", activity, style="dim")

    def say(self, piece: Piece) -> None:
        """Print a piece of the model's text."""
        match piece:
            case TextBegins(step, attempt):
                self.end_text()
                self.said, self.is_speaking = "", True
                put(Text(f"{ModelKey(step, attempt)}  ", "dim"), self._out, end="")
            case TextVoid(step, attempt):
                self.end_text()
                self.said = ""
                put(
                    Text(f"{ModelKey(step, attempt)}  what was said does not count", "yellow"),
                    self._out,
                )
            case str():
                self.said += piece
                put(piece, self._out, end="")

    @property
    def _indent(self) -> int:
        return 2 if self._is_brief else _INDENT

    def _time(self, at: datetime) -> Text:
        seconds = max((at - (self._began or at)).total_seconds(), 0)
        return Text(f"{seconds:6.1f} s", "dim")

    def _print(self, line: Text, *, is_short: bool) -> None:
        columns = Screen(self._out).width
        put(
            (
                cut(line, columns)
                if is_short
                else wrapped(line, self._out, min(self._indent, columns // 3))
            ),
            self._out,
        )

    def end_text(self) -> None:
        """End the line of text that is being printed, if there is one."""
        if self.is_speaking:
            put("", self._out)
        self.is_speaking = False

    def _answered(self, key: ModelKey, text: str) -> Text:
        calls = [pending.call for pending in self._state.open_step.calls] or (
            self._state.steps[-1].message.calls if self._state.steps else ()
        )
        if not calls:
            return Text.assemble(f"{key}  ", ("answers", "dim"))
        requests = ", ".join(
            f"{word(call.name)} {arguments_in_brief(call.arguments)}" for call in calls
        )
        comment = ("", "") if text in ("", self.said) else (f"  {one_line(text, 60)}", "dim")
        return Text.assemble(f"{key}  ", (requests, "cyan"), comment)


def _is_plain(fact: Fact) -> bool:
    """Whether a reader of the conversation knows the fact without a line for it."""
    match fact:
        case ModelAnswered(_, answer):
            return not answer.message.calls
        case TurnEnded(outcome):
            return outcome is Outcome.COMPLETED
        case _:
            return isinstance(fact, TurnStarted | AgentResolved)


def _text(fact: Fact, answered: Callable[[ModelKey, str], Text]) -> Text:
    """Return the line of a fact; empty if it has none."""
    match fact:
        case TurnStarted(request):
            return Text.assemble(
                (agents(request.agent, request.handed_to or ""), "bold"),
                _origin(fact),
                ": ",
                headline(request.task),
            )
        case AgentResolved() | HandedOver():
            return _agent(fact)
        case ModelAnswered(key, answer):
            return answered(key, answer.message.text)
        case CallFailed(key, error, lost):
            why = "its worker was lost; it is tried again" if lost else _all(error.message)
            return Text(f"{key}  {why}", "yellow")
        case ToolReturned() | ApprovalNeeded() | ToolLost() | Verified():
            return _tool(fact)
        case Polled() | JobStopped() | CallFinished():
            return _job(fact)
        case ChildScheduled() | ChildEnded():
            return _child(fact)
        case _:
            return _waits(fact)


def _tool(fact: ToolReturned | ApprovalNeeded | ToolLost | Verified) -> Text:
    """Return the line of a tool call that has ended, was looked up, or needs an approval."""
    match fact:
        case ToolReturned(key, output) if output.known is not None:
            told = "done before" if output.known == "done" else "may have been done before"
            return Text.assemble(f"{key}  ", (f"→ {told}", "dim"))
        case ToolReturned(key, output) if output.handle is not None:
            return Text.assemble(f"{key}  ", (f"→ the job {_all(output.handle)} runs", "dim"))
        case ToolReturned(key, output) if output.inquiry is not None:
            return Text(f"{key}  {_ASKS.format(server=output.inquiry.server)}", "yellow")
        case ToolReturned(key, output):
            return Text.assemble(
                f"{key}  ",
                (f"→ {one_line(output.content, 90)}", "red" if output.is_error else "dim"),
            )
        case Verified(key, found):
            colour = {"found": "green", "absent": "yellow", "unreadable": "red"}[found.verdict]
            told = f": {one_line(found.content, 90)}" if found.content else ""
            return Text.assemble(f"{key}  ", (f"{found.verdict}{told}", colour))
        case ApprovalNeeded(key, reason):
            return Text(f"{key}  {one_line(reason, 200)}", "yellow")
        case ToolLost(key, loss, _):
            return Text(f"{key}  {loss.value.replace('_', ' ')}", "yellow")


def _job(fact: Polled | JobStopped | CallFinished) -> Text:
    """Return the line of a job that has a result, has none, or was to be cancelled."""
    match fact:
        case Polled(key, ToolOutput(inquiry=Inquiry(server=server))):
            return Text(f"{key}  {_ASKS.format(server=server)}", "yellow")
        case Polled(key, output):
            found = Text("no result yet", "dim") if output is None else _of_job(output, None)
            return Text.assemble(f"{key}  ", found)
        case CallFinished(key, output, by=by):
            return Text.assemble(f"{key}  ", _of_job(output, by))
        case JobStopped(key, problem):
            told = f"could not be cancelled: {_all(problem)}" if problem else "was cancelled"
            return Text(f"{key}  the job {told}", "yellow")


def _of_job(output: ToolOutput, by: str | None) -> Text:
    told = f"{'the job has failed' if output.is_error else 'result of the job'}{_from(by)}"
    content = f": {_all(one_line(output.content, 200))}" if output.content else ""
    return Text.assemble((told, "red" if output.is_error else "green"), content)


def _child(fact: ChildScheduled | ChildEnded) -> Text:
    """Return the line of a delegate's turn that begins or has ended."""
    if isinstance(fact, ChildScheduled):
        begins = f"{word(fact.turn_id)} begins:"
        return Text.assemble(f"{fact.key}  ", (begins, "cyan"), f" {headline(fact.request.task)}")
    end = _end_of(fact.summary) if fact.summary else fact.reason
    return Text.assemble(f"{fact.key}  ", (f"→ {_all(end)}", "dim"))


def _agent(fact: AgentResolved | HandedOver) -> Text:
    """Return the line of an agent that has the turn from now on."""
    asks = f"asks {word(fact.agent.model)}{_and_tools(len(fact.agent.tools))}"
    if isinstance(fact, AgentResolved):
        return Text(asks, "dim")
    to = (f"→ handed over to {word(fact.agent.name)}", "cyan")
    return Text.assemble(f"{fact.key}  ", to, (f", {asks}", "dim"))


def _origin(fact: TurnStarted) -> Text:
    """Return from where a fork continues, or the slot of a schedule; empty for other turns."""
    origin, slot, schedule = fact.request.forked_from, fact.slot, fact.request.schedule
    if origin is not None:
        return Text(f", from step {origin.step} of {word(origin.turn_id)}", "dim")
    if slot is None or schedule is None:
        return Text()
    how = "started by hand on" if slot.is_by_hand else "scheduled for"
    return Text(f", {how} {harmless(schedule.in_words(slot.at))}", "dim")


def _end_of(summary: Summary) -> str:
    """Return the outcome of a turn and, if it has one, the beginning of its answer."""
    output = one_line(summary.output, 60)
    return f"{summary.outcome.value}: {output}" if output else summary.outcome.value


def _waits(fact: Fact) -> Text:
    match fact:
        case CancelRequested(reason, by):
            why = f": {_all(reason)}" if reason else ""
            return Text(f"cancel requested{_from(by)}{why}", "yellow")
        case WaitBegan():
            return Text(_begun(fact), "yellow")
        case ChildTold(key, news) if news.waits_for:
            return Text(f"{key}  waits for {_all(news.waits_for)}: {_all(news.reason)}", "yellow")
        case WaitEnded(woken=ends):
            why = "; ".join(f"{end.key}: {_why(end)}" for end in ends)
            return Text(f"goes on: {why}" if why else "goes on", "dim")
        case PolicyAnswered(key, ruling):
            return Text(f"{key}  {ruling.verdict.kind.replace('_', ' ')}", "dim")
        case Decided() | BudgetAdded() | Resumed() | Said() | Emitted():
            return _told(fact)
        case TurnEnded(outcome):
            return Text(outcome.value, COLOURS.get(outcome, "red"))
        case _:
            return Text()


def _begun(fact: WaitBegan) -> str:
    """Return what a wait that begins is for."""
    match fact:
        case WaitBegan("delay", until=datetime() as until):
            return f"begins at {in_words(until)}"
        case WaitBegan(kind, reason, until=datetime() as until, calls=(_, *_)):
            what = Waiting(kind, reason).of_calls_in_words
            return f"{what} until {in_words(until)}: {_all(reason)}"
        case WaitBegan(until=datetime() as until):
            moment = in_words(until) if fact.limit else f"{until:%H:%M:%S} UTC"
            return f"waits for provider: attempt {fact.attempt} at {moment}"
        case _:
            return f"waits for {_all(fact.kind)}: {_all(fact.reason)}"


def _why(end: Woken) -> str:
    """Return why a wait of a call is over."""
    waited = period_in_words(timedelta(seconds=end.waited_s))
    match end.by:
        case "refused":
            return f"nothing was waited for: {_all(end.reason)}"
        case "time":
            return f"waited {waited}"
        case by:
            return f"{by} after {waited}"


def _told(fact: Decided | BudgetAdded | Resumed | Said | Emitted) -> Text:
    """Return the line of a person's decision or other input."""
    match fact:
        case Emitted(event, by):
            text = event.refusal or event.body
            body = f": {_all(one_line(text, 200))}" if text else ""
            name = f"{event.name} of {event.key}" if event.key else event.name
            return Text.assemble((f"event {_all(name)}{_from(by)}", "green"), body)
        case Said(_, text, by=by):
            return Text.assemble((f"{_all(by) if by else 'the user'} says: ", "green"), _all(text))
        case Decided(decision):
            return Text(
                f"{word(decision.call_id)} {_decided(decision)}",
                "green" if decision.approve else "yellow",
            )
        case Resumed(by):
            return Text(f"resumed{_from(by)}", "green")
        case BudgetAdded(more, by, iterations):
            added = Remaining(**dict(more or ()), iterations=iterations)
            noun = "budget" if more else "iterations"
            return Text(f"{noun} added{_from(by)}: {amounts.in_words(added)}", "green")


def _from(by: str | None) -> str:
    """Return who asked for something, if that is known."""
    return f" by {_all(by)}" if by else ""


def _decided(decision: Decision) -> str:
    """Format a decision with its author, its arguments and its reason."""
    text = decision.in_words
    if decision.arguments is not None:
        text += f", with other arguments: {arguments_exactly(decision.arguments)}"
    if decision.answer is not None:
        text += f": {arguments_exactly(decision.answer)}"
    if decision.reason:
        text += f": {_all(decision.reason)}"
    return text


def _full_texts(fact: Fact) -> Iterator[str]:
    """Yield the full texts of a fact: the task, calls with the text before them, and results.

    The last answer is not among them: it is printed at the end.
    """
    match fact:
        case TurnStarted(request):
            yield request.task.brief
            if request.origin is not None and request.origin.say:
                yield request.origin.say
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


def agents(started: str, last: str) -> str:
    """Return the agent of a turn, and the agent that it was last handed over to, if another."""
    return " → ".join(word(name) for name in dict.fromkeys((started, last)) if name)


def _and_tools(count: int) -> str:
    return f", {count} tool{'s' * (count > 1)}" if count else ""


def _all(text: str) -> str:
    """Return a complete text as one line, safe to print."""
    return harmless(" ".join(text.split()))


def figures(report: AgentReport) -> str:
    """Format steps, tokens, cost and time in one line."""
    tokens = report.usage.input_tokens + report.usage.output_tokens
    cost = "–" if report.cost is None else money(report.cost)
    counts = f"{counted(len(report.steps), 'step')} · {counted(tokens, 'token')}"
    return f"{counts} · cost {cost} · {report.duration.total_seconds():.1f} s"


def address_in_ui(ui: str, namespace: str, turn_id: str) -> str:
    """Return the address of a turn in the web UI."""
    return f"{ui}/namespaces/{quote(namespace, safe='')}/workflows/{quote(turn_id, safe='')}"
