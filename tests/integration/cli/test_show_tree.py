"""A tree of agents in the terminal: `perdure show`, and the data it draws."""

import asyncio
import io
from datetime import timedelta

import pytest

from perdure import Budget
from perdure.clients.cli.drawing.progress import Progress
from perdure.clients.cli.drawing.tree import Row, Tree, lines, rows
from perdure.testing import ByTask, ScriptedModel, says
from perdure.worker import AgentWorker

from ...conftest import Runtime, eventually
from ...support.delegating import PRICED, delegate, editor, researcher, spawn, used, writer


class Gate(ScriptedModel):
    """A model that answers when it is released."""

    def __init__(self, *replies: object) -> None:
        super().__init__(*replies)  # type: ignore[arg-type]
        self.let_go = asyncio.Event()

    async def complete(self, request):  # type: ignore[no-untyped-def]
        answer = await super().complete(request)
        await self.let_go.wait()
        return answer


def plain(drawn: list[Row]) -> list[tuple[str, str, int, str, str]]:
    """The rows without their times."""
    return [
        (row.branch + row.agent, row.status, row.steps, f"{row.cost}", row.task) for row in drawn
    ]


@pytest.mark.slow
@pytest.mark.accepts("O2")
async def test_tree_is_followed_live_and_shows_state_steps_cost_and_task(runtime: Runtime) -> None:
    """While a grandchild still works, its reservation does not count as spent; at the end the
    root's cost is that of the whole tree.
    """
    held = Gate(says("checked", usage=used(1_000)))
    scripts = {
        "A page": ScriptedModel(
            spawn(("writer", "Write it"), ("researcher", "Find it"), usage=used(1_000)),
            says("done", usage=used(1_000)),
        ),
        "Write it": ScriptedModel(
            delegate("researcher", "Check it", usage=used(2_000)), says("text", usage=used(2_000))
        ),
        "Find it": ScriptedModel(says("found", usage=used(3_000))),
        "Check it": held,
    }
    meanwhile = [
        ("editor", "running", 0, "6", "A page"),
        ("├─ writer-1", "running", 0, "2", "Write it"),
        ("│  └─ researcher-1", "running", 0, "0", "Check it"),
        ("└─ researcher-2", "completed", 1, "3", "Find it"),
    ]
    worker = AgentWorker([editor(), researcher(), writer(delegates=["researcher"])], prices=PRICED)
    async with runtime(worker, model=ByTask(scripts)) as client:
        turn = await client.start("editor", "A page", id="drawn", budget=Budget(usd="200"))
        printed = io.StringIO()
        progress = Progress(printed)
        tree = Tree(
            turn,
            client.turn,
            lambda node, event: progress.show(event) if node is tree.root else None,
        )
        following = asyncio.create_task(tree.follow())
        await eventually(
            lambda: bool(held.requests) and len(plain(rows(tree.root))) == 4,
            "the grandchild is seen",
        )
        await eventually(lambda: plain(rows(tree.root)) == meanwhile, "the quick child is over")
        held.let_go.set()
        await following
    assert plain(rows(tree.root)) == [
        ("editor", "completed", 2, "10", "A page"),
        ("├─ writer-1", "completed", 2, "5", "Write it"),
        ("│  └─ researcher-1", "completed", 1, "1", "Check it"),
        ("└─ researcher-2", "completed", 1, "3", "Find it"),
    ]
    said = printed.getvalue()
    assert "step-1.call-1.child-2  drawn/researcher-2 begins: Find it" in said
    assert "step-1.call-1.child-2  → completed: found" in said


def test_lines_are_aligned() -> None:
    """Agent, state, steps, cost, time, task."""
    drawn = [
        Row("", "editor", "running", 2, None, timedelta(seconds=12.34), "A page"),
        Row("└─ ", "writer-1", "waits for approval", 1, None, timedelta(seconds=2), "Write it"),
    ]

    assert [line.plain for line in lines(drawn)] == [
        "editor       running             2 steps  –  12.3 s  A page",
        "└─ writer-1  waits for approval   1 step  –   2.0 s  Write it",
    ]
