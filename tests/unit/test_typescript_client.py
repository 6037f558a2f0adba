"""The client in TypeScript: its types, its size, what is packed, and the text of several
connections.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ..support.docs import typescript_types
from ..support.gateway.typescript import HERE, PACKAGE, compiled, printed, tool

LINES = 300
BEGINS = {"v": 1, "kind": "text_begins", "step": 1, "attempt": 1}
AGAIN = BEGINS | {"attempt": 2}
VOID = BEGINS | {"kind": "text_void"}
ANSWERED = {"kind": "model_answered", "step": 1, "attempt": 1, "tool": None}
FAILED = ANSWERED | {"kind": "call_failed"}
ENDED = {"kind": "turn_ended", "step": None, "attempt": None}


def text(said: str) -> dict[str, str]:
    return {"kind": "text", "text": said}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the client's module."""
    return compiled(tmp_path_factory.mktemp("client"))


@pytest.mark.accepts("H231")
def test_types_are_those_of_the_document() -> None:
    """`make typescript` updates them; `make test-slow` compares the whole file, with Node.js."""
    with typescript_types.FILE.open(encoding="utf-8") as file:
        assert file.readline() == f"{typescript_types.mark()}\n"


@pytest.mark.slow
@pytest.mark.accepts("H231")
def test_types_are_what_the_generator_writes() -> None:
    """No line was changed by hand."""
    tool("openapi-typescript")
    assert typescript_types.FILE.read_text(encoding="utf-8") == typescript_types.text()


@pytest.mark.accepts("H230")
def test_client_is_small_and_needs_nothing() -> None:
    """Lines of code without those that are blank or comments; the types are generated."""
    sources = set((PACKAGE / "src").glob("*.ts")) - {typescript_types.FILE}
    lines = [
        line.strip()
        for path in sources
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.strip().startswith(("//", "/*", "*"))
    ]
    package = json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))
    project = tomllib.loads((typescript_types.ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert len(lines) <= LINES
    assert not [name for name in package if "ependencies" in name]
    assert package["version"] == project["project"]["version"]


@pytest.mark.slow  # a compiler that checks types
@pytest.mark.accepts("H230", "H231")
def test_package_is_compiled_and_packed(tmp_path: Path) -> None:
    """With strict types; it holds the compiled client and its README, and nothing else."""
    compiler, npm = tool("tsc"), shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    package = shutil.copytree(PACKAGE, tmp_path / "package", ignore=lambda *_: ["dist"])
    calls = shutil.copy(HERE / "typescript_calls.ts", package / "src")
    checked = [compiler, "--project", str(package), "--noEmit"]
    done = subprocess.run(checked, capture_output=True, text=True, check=False)
    Path(calls).unlink()
    subprocess.run([compiler, "--project", str(package), "--noCheck"], check=True)
    packed = subprocess.run(
        [npm, "pack", "--json", "--offline"], cwd=package, capture_output=True, check=True
    )
    [archive] = json.loads(packed.stdout)

    assert (done.returncode, done.stdout) == (0, "")
    assert {re.sub(r"\.(d\.ts|js)$", "", one["path"]) for one in archive["files"]} == {
        *("README.md", "package.json"),
        *(f"dist/{name}" for name in ("connection", "index", "operations", "schema", "text")),
    }


@pytest.mark.accepts("H233")
async def test_text_of_several_connections(module: str) -> None:
    """Each piece once; text that has become another one meanwhile is void, and so is lost text."""
    said = [BEGINS, text("The "), text("quick ")]
    rows: list[tuple[list[list[Any]], list[Any]]] = [
        (
            [said, [BEGINS, text("The qu"), text("ick brown"), text(" fox"), ANSWERED]],
            [*said, text("brown"), text(" fox"), ANSWERED],
        ),
        ([said, [BEGINS, text("The "), text("quick "), ANSWERED]], [*said, ANSWERED]),
        (
            [said, [BEGINS, text("A slow one"), ANSWERED]],
            [*said, VOID, BEGINS, text("A slow one"), ANSWERED],
        ),
        ([said, [AGAIN, text("A slow")]], [*said, VOID, AGAIN, text("A slow")]),
        ([said, [ANSWERED]], [*said, VOID, ANSWERED]),
        ([said, [BEGINS, text("The "), ANSWERED]], [*said, VOID, ANSWERED]),
        ([said, [FAILED, AGAIN]], [*said, VOID, FAILED, AGAIN]),
        ([said, [ENDED]], [*said, VOID, ENDED]),
        ([[*said, VOID], [BEGINS]], [*said, VOID, BEGINS]),
        ([[*said, ANSWERED], [ENDED]], [*said, ANSWERED, ENDED]),
        ([said, [BEGINS, text("The ")], [BEGINS, text("The quick brown")]], [*said, text("brown")]),
        ([[text("x")], [text("y")]], [text("x"), text("y")]),
    ]
    folder = module.rpartition("/")[0]

    seen = await printed("typescript_text.mjs", folder, json.dumps([given for given, _ in rows]))

    assert seen == [expected for _, expected in rows]


@pytest.mark.slow  # pauses between requests
@pytest.mark.accepts("H232")
async def test_requests_are_repeated_where_that_is_safe(module: str) -> None:
    """A start, with one id; not a decision. An error says who has answered."""
    seen = await printed("typescript_faults.mjs", module)

    assert seen["started"] == {"code": None, "asked": 4, "ids": 1}
    assert (seen["decided"]["asked"], seen["decided"]["code"][0]) == (1, "GATEWAY_UNREACHABLE")
    assert (seen["proxy"]["asked"], seen["proxy"]["code"][0]) == (1, "HTTP_502")
    assert "not as a gateway does: <h1>Bad gateway</h1>" in seen["proxy"]["code"][1]
    assert seen["busy"]["code"] == ["TOO_MANY_REQUESTS", "busy; try again later"]


@pytest.mark.accepts("H233")
async def test_stream_goes_on_after_a_broken_message(module: str) -> None:
    """In the middle of a character; a text with other separators of lines has no fields."""
    seen = await printed("typescript_streams.mjs", module)

    assert seen == {"asked": [None, "1", "2"], "attached": 1, "texts": [True, True]}
