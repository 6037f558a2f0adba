"""The view of a turn for people.

It prints a line for each event. The end of the screen shows the current activity with its duration
and cost.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from rich.text import Text

from perdure.clients.cli.drawing.delegate_text import DelegateText
from perdure.clients.cli.drawing.hints import CommandHints, spent
from perdure.clients.cli.drawing.progress import Progress, figures
from perdure.clients.cli.drawing.screen import Live, Screen, note, put
from perdure.clients.cli.drawing.tree import Followed, Reach, Tree, lines, rows
from perdure.clients.reading.current_activity import doing
from perdure.clients.reading.events import Event
from perdure.clients.reading.live_text import Piece
from perdure.clients.reading.tool_progress import ToolProgress
from perdure.clients.reading.tree import Node
from perdure.clients.reading.tree_text import TurnText
from perdure.clients.turns.handle import Turn
from perdure.clients.turns.live_turn import Aloud
from perdure.text import counted, one_line, word
from perdure.values.moments import period_in_words
from perdure.values.reports import AgentReport, Outcome


class TerminalFollower:
    """Shows one turn, and the tree below it, on a terminal or in a pipe.

    Lines go to `out`; the answer goes to standard output, and notes to standard error.
    """

    def __init__(
        self,
        out: TextIO,
        commands: CommandHints,
        *,
        streams: bool = False,
        full: bool = False,
        may_resume: bool = True,
    ) -> None:
        self._out = out
        self._commands = commands
        self._streams = streams
        self._may_resume = may_resume
        self._live = Live(out)
        self._progress = Progress(out, full=full)
        self._below: DelegateText | None = None
        self._root: Node | None = None
        self._told: set[tuple[str, datetime | None]] = set()

    def start(self, turn: Turn[Any]) -> None:
        """Print which turn it is."""
        note(f"turn {word(turn.id)}")

    async def follow(self, turn: Turn[Any], reach: Reach) -> None:
        """Show the turn until it is over."""
        followed: Followed = turn
        if self._streams:
            self._below = DelegateText(turn.id, self._out)
            followed = Aloud(turn, self._say, self._say_below)
        tree = Tree(followed, reach, self._changed)
        self._root = tree.root
        async with self._live.ticking(self._tick):
            await tree.follow()
        if tree.root.children:
            self._live.last([Text(), *lines(rows(tree.root), self._out)])

    async def result(self, turn: Turn[Any]) -> AgentReport[Any]:
        """Return the report, with the answer as the model wrote it."""
        return await turn.typed(str).result()

    def close(self, report: AgentReport[Any]) -> None:
        """Print the answer, if it is not yet on standard output, and the figures."""
        is_apart = self._out is not sys.stdout
        was_said = report.output == self._progress.said and not (
            is_apart and not (self._out.isatty() and sys.stdout.isatty())
        )
        is_alone = is_apart and not sys.stdout.isatty()
        answer = str(report.output)
        if is_alone:
            put(answer)
        else:
            put("" if was_said else f"\n{answer}\n")
        self.fail(report)

    def fail(self, report: AgentReport[Any]) -> None:
        """Print the figures, and the command that resumes the turn."""
        note(Text(figures(report), "dim"))
        for message in report.unread:
            note(Text(f"not read: {one_line(message.brief, 200)}", "yellow"))
        for call in report.unsettled:
            told = one_line(f"{call.tool} {call.arguments}", 150)
            note(Text(f"outcome unknown: {told} (step {call.step})", "yellow"))
            note(Text(f"to settle it: {self._commands.to_settle(report.turn_id, call)}", "dim"))
        for child in report.children:
            if child.unsettled:
                told = counted(child.unsettled, "call")
                note(Text(f"outcome unknown: {told} of turn {word(child.turn_id)}", "yellow"))
        if report.undoable and report.outcome is not Outcome.COMPLETED:
            undo = self._commands.of("undo", report.turn_id)
            note(Text(f"{counted(len(report.undoable), 'call')} can be undone: {undo}", "dim"))
        command = self._commands.to_resume(report.turn_id, self._progress.state)
        if command and self._may_resume:
            note(Text(f"to go on: {command}", "dim"))

    def _changed(self, node: Node, event: Event) -> None:
        if node is self._root:
            self._make_room()
            self._progress.show(event)

    def _say(self, piece: Piece | ToolProgress) -> None:
        # a line for each update would push everything else off the screen
        if isinstance(piece, ToolProgress):
            return
        self._make_room()
        self._progress.say(piece)

    def _say_below(self, text: TurnText) -> None:
        if self._below is not None:
            self._live.erase()
            self._progress.end_text()
            self._below.say(text)

    def _make_room(self) -> None:
        """Begin a line of the turn itself."""
        self._live.erase()
        if self._below is not None:
            self._below.flush()

    def _tick(self) -> None:
        """Draw the current state, unless a line is being written; print hints for people once."""
        root = self._root
        if self._below is not None:
            self._below.tick()
        is_writing = self._progress.is_speaking or (self._below and self._below.has_line)
        if root is None or root.ended or is_writing:
            return
        for node in root.all():
            self._help(node)
        self._live.draw(
            [
                *(lines(rows(root), self._out) if root.children else ()),
                *self._now(root, datetime.now(UTC)),
            ]
        )

    def _help(self, node: Node) -> None:
        wait = (node.turn_id, node.since)
        if not node.state.waits_for_people or wait in self._told:
            return
        self._told.add(wait)
        self._live.erase()
        note(f"          {self._commands.that_help(node.turn_id, node.state)}")

    def _now(self, root: Node, now: datetime) -> list[Text]:
        """Return one line, or two if the terminal is narrow."""
        since = period_in_words(now - root.since) if root.since else ""
        activity = self._progress.now(
            now, f"{doing(root.state)}, {since}" if since else doing(root.state)
        )
        money = spent(root.state, root.spent, root.elapsed(now))
        if not money:
            return [activity]
        together = Text.assemble(activity, (f"  {money}", "dim"))
        if self._live.is_one_line or together.cell_len <= Screen(self._out).width:
            return [together]
        return [activity, Text(f"          {money}", "dim")]
