"""Run the programs on the pages as readers would: each in its own process, in a folder with the
files of its page and with documents in `docs`.

They start their own server and worker, or call a vendor's model, which a stub on loopback replaces.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.testing.stub_provider import StubProvider

from ..support.docs.commands import agrees
from ..support.docs.pages import BLOCKS, README, ROOT, Block, page

PROGRAMS = [block for block in BLOCKS if block.is_program]
TESTS = [block for block in BLOCKS if block.is_test]
QUICK = ("README.md", "docs/custom-providers.md")
"""Pages whose programs are run every time; a process of its own for each of all the others is for
the slow tests.
"""
PRINTS = {
    ("README.md", "The first program"): "…\nSource: …\n",
    ("docs/index.md", "Agents that must finish"): "…\nSource: …\n",
    (
        "docs/mcp.md",
        "Perdure as an MCP client: give an agent the tools of a server",
    ): '…\n…"timezone": "Asia/Tokyo",\n…\n"time_difference": "+…h"\n…\n',
    (
        "docs/custom-providers.md",
        "Call a model without Temporal",
    ): "30 days. 5 0.000105\n30 days.end\n",
    ("docs/testing.md", "A scripted model"): "",
    ("docs/testing.md", "A function as a model"): "",
    ("docs/testing.md", "A service that fails"): "",
    ("docs/testing.md", "Errors"): "failed 1\n",
    ("docs/testing.md", "The stub provider"): "Hello! 1\n",
    ("docs/tools.md", "Lifespan and deps: give tools a database connection"): "3\n",
    ("docs/workers.md", "In an existing Temporal worker"): "Hello, Jo\nI am no language model…\n",
}
"""What programs print where their page does not show it."""


def marked(blocks: list[Block]) -> list[Any]:
    """Blocks as parameters of a test."""
    return [
        block if block.page in QUICK else pytest.param(block, marks=pytest.mark.slow)
        for block in blocks
    ]


def folder_of(block: Block, tmp_path: Path) -> Path:
    """A folder with the files that the page tells readers to create."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    for name, text in {**README.files(), **page(block.page).files()}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def python(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python to its end; a warning is an error."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PERDURE_", "TEMPORAL_", "OPENAI_", "PYTEST_"))
    }
    kept["PATH"] = f"{Path(sys.executable).parent}:{kept['PATH']}"
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.accepts("L20")
@pytest.mark.parametrize("block", marked(PROGRAMS), ids=str)
def test_program_runs_and_prints_what_its_page_says(block: Block, tmp_path: Path) -> None:
    """The output is the one shown on the page, or the one in the table here; a new program must at
    least succeed without a warning.
    """
    folder = folder_of(block, tmp_path)
    (folder / "program.py").write_text(block.text, encoding="utf-8")
    shown = page(block.page).output_of(block)
    expected = PRINTS.get((block.page, block.heading), "…") if shown is None else shown

    with StubProvider([{"text": "30 days."}]) as stub:
        keys = {"ANTHROPIC_BASE_URL": stub.anthropic_url, "ANTHROPIC_API_KEY": "key"}
        done = python("program.py", folder=folder, **keys)

    assert (done.returncode, done.stderr) == (0, "")
    assert agrees(expected, done.stdout), done.stdout


def test_output_is_known_of_programs_that_exist() -> None:
    """A program that is no longer on a page is not in the table either."""
    assert [
        key for key in PRINTS if key not in {(block.page, block.heading) for block in PROGRAMS}
    ] == []


@pytest.mark.accepts("L20")
def test_first_program_is_short() -> None:
    """12 lines at most."""
    first = next(block for block in README.blocks if block.is_program)

    assert len(first.text.splitlines()) <= 12


@pytest.mark.slow
@pytest.mark.accepts("P7")
@pytest.mark.parametrize("block", marked(TESTS), ids=str)
def test_test_passes(block: Block, tmp_path: Path) -> None:
    """With pytest, and with the settings that the pages show."""
    folder = folder_of(block, tmp_path)
    (folder / "test_block.py").write_text(block.text, encoding="utf-8")
    options = [
        "-p",
        "no:cacheprovider",
        "-o",
        "asyncio_mode=auto",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
    ]
    done = python("-m", "pytest", "-q", *options, "test_block.py", folder=folder)

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
