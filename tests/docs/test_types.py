"""All Python on the pages passes mypy strict, except for annotations that prose does not need."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import typing
from collections.abc import Iterable
from pathlib import Path

import pytest

from ..support.docs import given
from ..support.docs.pages import PAGES, README, ROOT, Block, Page

OPTIONS = [
    *("--strict", "--allow-untyped-defs", "--allow-incomplete-defs", "--allow-untyped-calls"),
    *("--disable-error-code", "top-level-await"),
    # top-level `async for`, as in a notebook; compiling a block finds the rest
    *("--disable-error-code", "syntax"),
    *("--cache-dir", str(ROOT / ".mypy_cache/docs")),
    *("--config-file", "mypy.ini"),
]
GIVEN = {
    *typing.get_type_hints(given),
    *(
        name
        for name, value in vars(given).items()
        if getattr(value, "__module__", "") == given.__name__
    ),
}


def names(tree: ast.AST) -> tuple[set[str], set[str]]:
    """The names bound anywhere in the code, and the names used."""
    bound = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    bound |= {
        (alias.asname or alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return bound, {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def module(page: Page, blocks: Iterable[Block]) -> str:
    """Blocks as one module, after the names that they take for granted.

    Lines that are not Python are empty, so line numbers are those of the page.
    """
    lines: list[str] = []
    for block in blocks:
        lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    text = "\n".join([*lines, ""])
    for stem in {Path(name).stem for name in {**README.files(), **page.files()}}:
        text = re.sub(
            rf"^from {stem} import",
            f"from {owner(page, stem)}__{stem} import",
            text,
            flags=re.MULTILINE,
        )
    bound, used = names(ast.parse(text))
    if not (taken := sorted(GIVEN & used - bound)):
        return text
    assert not lines[0], f"{page} has no heading"
    return f"from tests.support.docs.given import {', '.join(taken)}{text}"


def owner(page: Page, stem: str) -> str:
    """The page that a file name refers to: the page with a file of that name, or the README."""
    return page.module if f"{stem}.py" in page.files() else README.module


def modules() -> dict[str, str]:
    """Every Python block, by the module in which it is checked: the blocks of a page together;
    files, programs and tests separately.
    """
    found: dict[str, str] = {}
    for page in PAGES:
        python = [block for block in page.blocks if block.language == "python"]
        alone = [block for block in python if block.is_program or block.is_test]
        found |= {f"{page.module}_{block.line}": module(page, [block]) for block in alone}
        found |= {
            f"{page.module}__{Path(block.file).stem}": module(page, [block])
            for block in python
            if block.file and block not in alone
        }
        found[page.module] = module(
            page, [block for block in python if block not in alone and not block.file]
        )
    return found


@pytest.mark.slow
@pytest.mark.accepts("L20", "P20")
def test_blocks_type_check(pytestconfig: pytest.Config) -> None:
    """One run of mypy checks all pages, in a folder that is kept for its cache."""
    folder = pytestconfig.rootpath / ".mypy_cache/blocks"
    folder.mkdir(parents=True, exist_ok=True)
    texts = {f"{name}.py": text for name, text in modules().items()}
    texts["mypy.ini"] = "[mypy]\n"  # readers do not have pydantic's plugin
    for path in folder.glob("*.py"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    # mypy does not find an editable installation
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *OPTIONS, "."],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
