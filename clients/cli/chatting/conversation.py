"""The turns of a session on a terminal: the text, the calls, and what a turn waits for."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

from rich.text import Text

from perdure.clients.cli.drawing.hints import CommandHints
from perdure.clients.cli.drawing.margin import Margin
from perdure.clients.cli.drawing.progress import Progress, figures
from perdure.clients.cli.drawing.screen import Live, fail, note, put, wrapped
from perdure.clients.cli.drawing.tree import Reach, Tree
from perdure.clients.reading.events import Event
from perdure.clients.reading.live_text import Piece, TextBegins, TextVoid
from perdure.clients.reading.tool_progress import ToolProgress
from perdure.clients.reading.tree import Node
from perdure.clients.turns.handle import Turn
from perdure.clients.turns.live_turn import Aloud
from perdure.errors import PerdureError
from perdure.text import harmless, one_line, word
from perdure.values.reports import AgentReport, Outcome

_INDENT = 2


class ConversationView:
    """Shows one turn after the other.

    Text of models has a margin. Everything else begins at the left edge. Answers go to standard
    output, and everything else to standard error.
    """

    def __init__(self, commands: CommandHints) -> None:
        self._commands = commands
        self._text = Margin(sys.stdout)
        self._prints_pieces = sys.stdout.isatty()
        self._progress = Progress(sys.stderr, brief=True)
        self._root: Node | None = None
        self._helped: set[tuple[str, datetime | None]] = set()

    async def show(self, turn: Turn[Any], reach: Reach) -> None:
        """Show a turn until it is over."""
        self._progress = Progress(sys.stderr, brief=True)
        tree = Tree(Aloud(turn, self._print), reach, self._changed)
        self._root = tree.root
        async with Live(sys.stderr).ticking(self._help):
            await tree.follow()
        self._text.end()
        try:
            self._close(await turn.typed(str).result())
        except PerdureError as error:
            self._fail(turn.id, error)

    def typed(self) -> None:
        """Note that a line was typed, so that the cursor is at the left edge."""
        self._text.at_left_edge()

    def typed_ahead(self, line: str) -> None:
        """Print a line that was typed while something else was written, apart from that."""
        self._text.interrupted()
        put(Text.assemble(("> ", "bold"), harmless(line)), sys.stderr)

    def _close(self, report: AgentReport[Any]) -> None:
        answer = str(report.output)
        if not self._prints_pieces:
            put(answer)
        elif answer != self._progress.said:
            self._text.write(answer)
            self._text.end()
        note(Text(figures(report), "dim"))

    def _fail(self, turn_id: str, error: PerdureError) -> None:
        report = error.report
        if report is None or report.outcome is not Outcome.CANCELLED:
            fail(word(turn_id), error.message)

    def _print(self, piece: Piece | ToolProgress) -> None:
        match piece:
            case TextBegins():
                self._progress.said = ""
            case TextVoid():
                self._progress.said = ""
                self._text.end()
                note(Text("what was said does not count", "yellow"))
            case str():
                self._progress.said += piece
                if self._prints_pieces:
                    self._text.write(piece)

    def _changed(self, node: Node, event: Event) -> None:
        if node is self._root:
            self._text.end()
            self._progress.show(event)

    def _help(self) -> None:
        """Print the commands for calls and limits that wait for a person, once."""
        for node in self._root.all() if self._root and not self._root.ended else ():
            wait = (node.turn_id, node.since)
            if node.state.waits_for_people and wait not in self._helped:
                self._helped.add(wait)
                self._text.end()
                note(self._commands.that_help(node.turn_id, node.state))


def remark(name: str, text: str, max_characters: int) -> None:
    """Print what a person or an agent has said, in short."""
    line = Text.assemble((f"{word(name)}: ", "bold"), one_line(text, max_characters))
    note(wrapped(line, sys.stderr, _INDENT))
