"""The screens of `perdure run`, `show`, `list` and `approvals` on a real terminal, as complete text
without times.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from ..support.e2e.command_line import CommandLine, beside_a_worker, wait_until
from ..support.e2e.terminal import Terminal, terminal

AGENTS = r'''
import asyncio
from pathlib import Path
from perdure import Agent, Price, Usage, tool
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker import AgentWorker

async def appears(path):
    while not Path(path).exists():
        await asyncio.sleep(0.02)

@tool
async def search(query: str) -> str:
    """Search the handbook."""
    return "Section 4: the notice period is 30 days, whoever gives it and for whatever reason."

@tool
def look() -> str:
    """Look at what is not there."""
    raise ValueError("no such file")

@tool
async def hold(path: str) -> str:
    """Wait until a file appears."""
    await appears(path)
    return "it is there"

@tool(requires_approval=True)
def refund(ticket: str, euros: int, note: str = "") -> str:
    """Give money back."""
    return f"{euros} euros"

NOTE = "Dear Jo,\n\x1b[2K請求"
USED = Usage(input_tokens=1200, output_tokens=80)
ANSWER = says("The notice period is 30 days.", usage=USED)

def script(name, task):
    return {
        "handbook": [calls(call("search", query="notice"), call("look"), usage=USED), ANSWER],
        "holder": [calls(call("hold", path=task), usage=USED), ANSWER],
        "refunder": [
            calls(
                call("refund", ticket="2", euros=300),
                call("refund", ticket="3", euros=80, note=NOTE),
                usage=USED,
            ),
            ANSWER,
        ],
        "editor": [calls(call("delegate_to_agent", agent="holder", task=task), usage=USED), ANSWER],
        "chief": [
            calls(call("delegate_to_agent", agent="refunder", task=task), usage=USED),
            ANSWER,
        ],
        "hostile": [says("fine \x1b[2J\x1b]0;owned\x07\u202e", usage=USED)],
    }[name]

class Model:
    async def complete(self, request):
        task = request.messages[0].parts[0].text
        answers = sum(message.role == "assistant" for message in request.messages)
        if request.model == "holder" and answers:
            await appears(task + ".answer")
        replies = script(request.model, task)
        return await ScriptedModel(replies[min(answers, len(replies) - 1)]).complete(request)

    async def close(self):
        pass

tools = [search, look, hold, refund]
agents = [
    Agent(name=name, model=f"stub:{name}", tools=tools, on_exhausted="pause")
    for name in ("handbook", "holder", "refunder", "hostile")
]
agents.append(Agent(name="editor", model="stub:editor", delegates=["holder"]))
agents.append(Agent(name="chief", model="stub:chief", delegates=["refunder"]))
app = AgentWorker(agents, providers={"stub": Model()}, prices={"stub:*": Price(input=3, output=15)})
'''

ADVICE = "start a worker with `perdure worker module:name`"
See = Callable[..., Terminal]


@pytest.fixture(scope="module")
def perdure(perdure_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line beside a worker; it needs no connection options."""
    with beside_a_worker(AGENTS, tmp_path_factory.mktemp("screens"), perdure_server) as here:
        yield here


@pytest.fixture
def see(perdure: CommandLine) -> Iterator[See]:
    """Runs a command on a terminal."""
    with ExitStack() as stack:

        def begin(
            *arguments: str, columns: int = 80, lines: int = 24, **environment: str
        ) -> Terminal:
            command = [sys.executable, "-m", "perdure", *arguments]
            made: AbstractContextManager[Terminal] = terminal(
                command,
                perdure.folder,
                {**perdure.environment, **environment},
                columns=columns,
                lines=lines,
            )
            return stack.enter_context(made)

        yield begin


def screen(text: str) -> str:
    """An expected screen in this file, with each line between bars."""
    return "\n".join(line.strip().removeprefix("|").rstrip() for line in text.strip().splitlines())


def an_id(name: str) -> str:
    return f"{name}-{secrets.token_hex(3)}"


@pytest.mark.slow
@pytest.mark.accepts("G20")
def test_run_shows_what_happened_and_the_answer(see: See) -> None:
    """A line for each event, cut at the width of the terminal; no drawn line is left over; markup
    is text.
    """
    turn = an_id("ticket")
    watched = see(
        "run", "handbook", "How long is the [red]notice[/red] period :smile:?", "--id", turn
    )
    code = watched.end()

    assert code == 0
    assert watched.steady.replace(turn, "TURN") == screen("""
        |turn TURN
        |   N.N s  handbook: How long is the [red]notice[/red] period :smile:?
        |   N.N s  asks stub:handbook, 4 tools
        |   N.N s  step-1  search {"query": "notice"}, look {}
        |   N.N s  step-1.call-1  → Section 4: the notice period is 30 days, whoever giv…
        |   N.N s  step-1.call-2  → look failed: ValueError: no such file
        |   N.N s  step-2  answers
        |   N.N s  completed
        |
        |The notice period is 30 days.
        |
        |2 steps · 2560 tokens · cost $0.0096 · N.N s
        """)


@pytest.mark.slow
@pytest.mark.accepts("P5", "D61")
def test_last_line_counts_what_happens_now_and_what_is_spent(
    see: See, perdure: CommandLine, tmp_path: Path
) -> None:
    """It is there during tool and model calls until the next line comes; after Ctrl-C the turn
    continues, and the output says how to follow it again.
    """
    turn, held = an_id("held"), tmp_path / "held"
    watched = see(
        "run", "holder", str(held), "--id", turn, "--usd", "0.5", "--model-calls", "9", columns=120
    )
    watched.wait_for(r"runs hold, [1-9]\d* s")
    at_the_tool = watched.steady.splitlines()[-1]
    listed = wait_until(
        lambda: re.findall(rf"(?m)^{turn} .*$", perdure("list", "--limit", "50").stdout),
        "it is listed",
    )
    held.touch()
    watched.wait_for(r"asks stub:holder, \d+ s")
    at_the_model = watched.steady.splitlines()[-2:]
    watched.type("\x03")
    code = watched.end()
    followed = see("show", turn)
    followed.wait_for("asks stub:holder,")
    held.with_name("held.answer").touch()

    assert (
        at_the_tool
        == "   N.N s  step-1.call-1  runs hold, N s  spent $0.0048 of $0.50, 1 of 9 model calls"
    )
    assert listed[0].split()[1:5] == ["holder", "running", "0", "$0.0048"]
    assert at_the_model == [
        "   N.N s  step-1.call-1  → it is there",
        "   N.N s  step-2  asks stub:holder, N s  spent $0.0048 of $0.50, 1 of 9 model calls",
    ]
    assert code == 130
    assert watched.steady.splitlines()[-4:] == [
        "   N.N s  step-1.call-1  → it is there",
        f"turn {turn} goes on; to follow it again:",
        f"  perdure show {turn}",
        "perdure: interrupted",
    ]
    assert followed.end() == 0
    assert "asks stub:holder," not in followed.text.replace("asks stub:holder, 4 tools", "")


@pytest.mark.slow
@pytest.mark.accepts("P5")
def test_no_color_has_the_last_line_without_escape_sequences(see: See, tmp_path: Path) -> None:
    """One line, which is gone when the next one comes."""
    turn, held = an_id("plain"), tmp_path / "held"
    watched = see(
        "run", "holder", str(held), "--id", turn, "--usd", "0.5", columns=60, NO_COLOR="1"
    )
    watched.wait_for(r"runs hold, [1-9]\d* s  spent")
    held.touch()
    held.with_name("held.answer").touch()

    assert watched.end() == 0
    assert b"\x1b" not in watched.raw
    assert "runs hold" not in watched.text


@pytest.mark.accepts("P5")
@pytest.mark.slow
def test_turn_that_waits_says_what_a_person_can_do(see: See, perdure: CommandLine) -> None:
    """The command is printed as it has to be typed, on a terminal and in a pipe."""
    turn = an_id("refund")
    watched = see("run", "refunder", "Pay them back.", "--id", turn)
    watched.wait_for(r"waits for approval, [1-9]\d* s")
    with perdure.started("show", turn) as piped:
        piped.wait_for(rf"^ +perdure approvals {turn}\n")
        said = piped.stderr
    shown = watched.steady.replace(turn, "TURN")
    perdure("approvals", turn, "--deny", "call_1_1", "--deny", "call_1_2")

    assert shown == screen("""
        |turn TURN
        |   N.N s  refunder: Pay them back.
        |   N.N s  asks stub:refunder, 4 tools
        |   N.N s  step-1  refund {"ticket": "2", "euros": 300}, refund {"ticket": "3", …
        |   N.N s  waits for approval: somebody has to approve or deny refund (call_1_1),
        |          refund (call_1_2)
        |          perdure approvals TURN
        |   N.N s  waits for approval, N s
        """)
    assert said == f"          perdure approvals {turn}\n"
    assert watched.end() == 0
    assert "waits for approval, " not in watched.text


@pytest.mark.slow
def test_turn_that_is_paused_says_what_can_be_added(see: See, perdure: CommandLine) -> None:
    """With the options for the limits that it has; on a narrow terminal the spending has its own
    line.
    """
    turn = an_id("p")
    watched = see(
        "run",
        "handbook",
        "How long?",
        "--id",
        turn,
        "--model-calls",
        "1",
        "--time",
        "10m",
        "--usd",
        "0.5",
    )
    watched.wait_for(r"waits for budget, [1-9]\d* s")
    shown = watched.steady.replace(turn, "TURN").splitlines()[-6:]
    added = perdure("add-budget", turn, "--model-calls", "5", "--json")

    assert (
        shown
        == screen("""
        |   N.N s  waits for budget: the next call may cost 1 model call and 0 model
        |          calls are left of 1 model call; raise the budget, or go on after the
        |          end with turn.resume(Budget(…))
        |          perdure add-budget TURN --usd AMOUNT --time TIME --model-calls N
        |   N.N s  waits for budget, N s
        |          spent $0.0048 of $0.50, 1 of 1 model call, N s of 10 min
        """).splitlines()
    )
    assert added.returncode == 0
    assert watched.end() == 0


@pytest.mark.slow
def test_tree_is_drawn_above_what_happens_now(see: See, tmp_path: Path) -> None:
    """While a delegate works, and once more at the end."""
    turn, held = an_id("page"), tmp_path / "held"
    watched = see("run", "editor", str(held), "--id", turn, columns=200)
    watched.wait_for(r"1 delegate at work, [1-9]\d* s")
    meanwhile = [
        line.rstrip() for line in watched.steady.replace(str(held), "TASK").splitlines()[-3:]
    ]
    held.touch()
    held.with_name("held.answer").touch()

    assert [re.sub(r" {2,}", "  ", line) for line in meanwhile] == [
        "editor  running  0 steps  $0.0096  N.N s  TASK",
        "└─ holder-1  running  0 steps  $0.0048  N.N s  TASK",
        "  N.N s  1 delegate at work, N s",
    ]
    assert watched.end() == 0
    assert watched.text.count("└─ holder-1") == 1


@pytest.mark.slow
def test_delegate_that_waits_is_named_with_what_a_person_can_do(
    see: See, perdure: CommandLine
) -> None:
    """By its own id, while the parent turn is followed."""
    turn = an_id("chief")
    watched = see("run", "chief", "Pay them back.", "--id", turn, columns=100)
    watched.wait_for(rf"\n +perdure approvals {turn}/refunder-1\n")
    watched.wait_for(r"└─ refunder-1 +waits for approval")
    decided = perdure(
        "approvals", f"{turn}/refunder-1", "--approve", "call_1_1", "--approve", "call_1_2"
    )

    assert decided.returncode == 0
    assert watched.end() == 0
    assert "└─ refunder-1  completed" in watched.text


@pytest.mark.slow
def test_turn_that_nobody_serves_says_so_above_the_last_line(see: See) -> None:
    """The note replaces what was drawn, and no text is lost or left over."""
    turn = an_id("nobody")
    watched = see(
        "run", "absent", "How long?", "--id", turn, "--task-queue", "no-queue", columns=200
    )
    watched.wait_for(r"no worker polls it(.|\n)*waits for a worker, \d+ s")
    shown = watched.steady.replace(turn, "TURN")
    watched.type("\x03")

    assert watched.end() == 130
    assert shown.splitlines() == [
        "turn TURN",
        "   N.N s  absent: How long?",
        (
            "nothing has happened in turn TURN for N s: the task queue 'no-queue' has work and no"
            f" worker polls it; {ADVICE}"
        ),
        "   N.N s  waits for a worker, N s",
    ]


@pytest.mark.slow
def test_narrow_terminal_and_one_that_changes_break_nothing(see: See, tmp_path: Path) -> None:
    """At 40 columns every line fits; after a resize, drawing uses the new size."""
    turn, held = an_id("held"), tmp_path / ("漢字" * 20)
    watched = see("run", "holder", str(held), "--id", turn, "--usd", "0.5", columns=40)
    watched.wait_for(r"runs hold, \d+ s")
    narrow = watched.text
    watched.resize(100, 24)
    watched.wait_for(r"runs hold, \d+ s  spent")
    watched.resize(30, 10)
    held.touch()
    (tmp_path / f"{held.name}.answer").touch()

    assert watched.end() == 0
    assert [line for line in narrow.splitlines() if len(line) > 40] == []
    assert "The notice period is 30 days." in watched.text
    assert "Traceback" not in watched.text


@pytest.mark.slow
def test_answer_cannot_drive_the_terminal(see: See, perdure: CommandLine) -> None:
    """Escape sequences in a model's text are shown escaped; in a pipe the answer is unchanged."""
    turn = an_id("hostile")
    shown = see("run", "hostile", "Hi.", "--id", turn)
    code = shown.end()
    piped = perdure("run", "hostile", "Hi.", "--id", turn)

    assert code == 0
    assert r"fine \u001b[2J\u001b]0;owned\u0007\u202e" in shown.text
    assert piped.stdout == "fine \x1b[2J\x1b]0;owned\x07\u202e\n"


@pytest.mark.slow
@pytest.mark.accepts("P5")
def test_colours_are_for_terminals_and_no_color_is_respected(
    see: See, perdure: CommandLine
) -> None:
    """On a terminal, unless NO_COLOR is set; never in a pipe. The text is the same."""
    turn = an_id("colours")
    perdure("run", "handbook", "How long?", "--id", turn)
    coloured, plain = see("show", turn, columns=150), see("show", turn, columns=150, NO_COLOR="1")
    codes = (coloured.end(), plain.end())
    piped = perdure("show", turn)

    assert codes == (0, 0)
    assert (
        b"\x1b[32mcompleted" in coloured.raw,
        b"\x1b" in plain.raw,
        "\x1b" in piped.stdout + piped.stderr,
    ) == (True, False, False)
    assert coloured.text == plain.text
    assert plain.text == f"{piped.stdout}{piped.stderr}".rstrip()


@pytest.mark.slow
def test_list_fits_the_terminal(see: See, perdure: CommandLine) -> None:
    """The task is cut; on a narrow terminal columns are left out, but never the ids."""
    turn = an_id("listed")
    perdure(
        "run",
        "handbook",
        "How long is the notice period, and who may give it to whom?",
        "--id",
        turn,
        "--usd",
        "1",
    )
    wait_until(
        lambda: (
            turn
            in perdure(
                "list", "--agent", "handbook", "--outcome", "completed", "--limit", "1"
            ).stdout
        ),
        "it is listed",
    )
    wide, narrow = (
        see("list", "--agent", "handbook", "--limit", "1"),
        see("list", "--agent", "handbook", "--limit", "1", columns=40),
    )

    assert (wide.end(), narrow.end()) == (0, 0)
    lines = [
        re.sub(r" {2,}", "  ", line.replace(turn, "TURN")) for line in wide.steady.splitlines()
    ]
    assert lines[0] == "ID  AGENT  STATE  STEPS  SPENT  STARTED  TASK"
    assert re.fullmatch(
        r"TURN  handbook  completed  2  \$0\.0096  N s ago  How long is the n.*…", lines[1]
    )
    assert max(map(len, wide.text.splitlines())) == 80
    assert narrow.text.splitlines()[0].split() == ["ID", "STATE", "TASK"]
    assert re.fullmatch(rf"{turn}  completed  How long is.*…", narrow.text.splitlines()[1])


@pytest.mark.slow
@pytest.mark.accepts("D61")
def test_approvals_are_shown_with_all_arguments(see: See, perdure: CommandLine) -> None:
    """A model's text does not move the cursor; the commands that decide can be copied."""
    turn = an_id("asked")
    with perdure.started("run", "refunder", "Pay them back.", "--id", turn) as waiting:
        waiting.wait_for("perdure approvals")
        looked, listed = see("approvals", turn), see("approvals")
        wide = see("approvals", columns=200)
        codes = (looked.end(), listed.end(), wide.end())
    perdure("cancel", turn)

    assert codes == (0, 0, 0)
    assert re.sub(r"\d+ h \d+ min", "H", looked.text).replace(turn, "TURN") == screen(r"""
        |call_1_1  refund  expires in H
        |    {
        |      "ticket": "2",
        |      "euros": 300
        |    }
        |call_1_2  refund  expires in H
        |    {
        |      "ticket": "3",
        |      "euros": 80,
        |      "note": "Dear Jo,\n\u001b[2K請求"
        |    }
        |
        |perdure approvals TURN --approve call_1_1
        |perdure approvals TURN --deny call_1_1 --reason …
        """)
    rows = re.sub(r"\s+", " ", listed.text)
    assert rows.startswith("TURN CALL TOOL ")
    assert f"{turn} call_1_2 refund " in rows
    assert '{"ticket": "3", "euros": 80, "note": "Dear Jo,\\n\\u001b[2K請求"}' in rows
    columns = re.sub(r"\d+ h \d+ min", "H", re.sub(r" +", " ", wide.text)).splitlines()
    assert columns[0].strip() == "TURN CALL TOOL AGENT EXPIRES TASK ARGUMENTS"
    row = f'{turn} call_1_1 refund refunder in H Pay them back. {{"ticket": "2", "euros": 300}}'
    assert row in [line.strip() for line in columns]


@pytest.mark.accepts("E39")
@pytest.mark.slow
def test_fork_asks_before_calls_happen_again(
    see: See, perdure: CommandLine, tmp_path: Path
) -> None:
    """Whoever does not agree starts nothing; a Ctrl-C at the question neither."""
    turn, held = an_id("f"), tmp_path / "held"
    held.touch()
    held.with_name("held.answer").touch()
    assert perdure("run", "holder", str(held), "--id", turn).returncode == 0
    question = r"they may happen again; start\? \[y/N\]"

    no = see("fork", turn, "--at-step", "0", columns=200)
    no.wait_for(question)
    no.type("n\n")
    refused = no.end()
    gone = see("fork", turn, "--at-step", "0", columns=200)
    gone.wait_for(question)
    gone.type("\x03")
    interrupted = gone.end()
    yes = see("fork", turn, "--at-step", "0", columns=200)
    yes.wait_for(question)
    yes.type("y\n")

    assert yes.end() == 0
    assert (refused, interrupted) == (2, 130)
    assert f"after step 0 of turn {turn}, step 1 called: hold (not read-only)" in no.text
    assert "perdure: nothing was started" in no.text
    assert f"turn {turn}~1" in yes.text
