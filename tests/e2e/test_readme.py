"""Every Python block of the README runs or type-checks as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
FIRST, DEFINE, TREE, BACKEND, TEST = BLOCKS


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python to its end."""
    environment = {**os.environ, "MYPYPATH": str(ROOT)}  # mypy does not see an editable installation
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the README's files, as a reader would have them."""
    folder = tmp_path_factory.mktemp("reader")
    for name, text in {"first.py": FIRST, "support.py": DEFINE, "tree.py": TREE, "backend.py": BACKEND, "test_support.py": TEST}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.accepts("L20")
def test_first_program_runs_a_turn(project: Path) -> None:
    """At most 12 lines, run as they are in a folder with documents."""
    done = python(str(project / "first.py"), cwd=ROOT)

    assert len(FIRST.splitlines()) <= 12
    assert done.returncode == 0, done.stderr
    assert "Source: " in done.stdout


@pytest.mark.accepts("L20")
def test_programs_type_check(project: Path) -> None:
    """Under mypy strict, but for what needs no annotation in prose."""
    done = python("-m", "mypy", "--strict", "--allow-untyped-defs", "--cache-dir", str(ROOT / ".mypy_cache"), ".", cwd=project)

    assert done.returncode == 0, done.stdout


def test_test_of_an_agent_passes(project: Path) -> None:
    """The README's own test of the README's own agent, by pytest."""
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "test_support.py", cwd=project)

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_tree_of_the_readme_is_one(project: Path) -> None:
    """The agents that it declares can be built."""
    done = python("-c", "import tree; print(*[item.name for item in tree.editor.delegates])", cwd=project)

    assert done.stdout == "researcher writer\n", done.stderr


def test_example_is_the_readmes_agent() -> None:
    """`examples/support.py` and the README show the same program."""
    example = (ROOT / "examples/support.py").read_text(encoding="utf-8")

    assert example.split('"""\n\n', 1)[1] == DEFINE.split("\n", 1)[1]
