"""Commands of the pages that start everything they need: a server, workers, and a folder of
documents.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.testing.stub_provider import StubProvider

from ..support.docs.commands import Command, Terminal, commands
from ..support.docs.pages import BLOCKS, README, ROOT

pytestmark = pytest.mark.slow
ASKS = [
    one
    for block in BLOCKS
    if block.language == "console"
    for one in commands(block)
    if one.words[:2] == ["perdure", "ask"]
]


@pytest.mark.parametrize("command", ASKS, ids=lambda command: command.text)
async def test_question_about_a_folder_is_answered(command: Command, tmp_path: Path) -> None:
    """With the folder on the page; a stub replaces the reader's own model."""
    (tmp_path / "handbook").mkdir()
    (tmp_path / "handbook/notice.md").write_text(
        "# Notice\n\nThe notice period is 30 days.\n", encoding="utf-8"
    )
    with StubProvider([{"text": "30 days, says notice.md:3."}]) as stub:
        address = command.text.replace("http://127.0.0.1:11434/v1", stub.base_url)
        await Terminal(tmp_path, "").run(
            Command(command.where, address, command.shown or "…\n…30 days…\n…\n")
        )


async def test_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    """The steps, the kill, and the checks, on the documents of this repository."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    block = next(block for block in README.blocks if block.language == "text")
    await Terminal(tmp_path, "").run(Command(block, "perdure demo", f"…\n{block.text}…\n"))
