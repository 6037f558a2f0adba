"""The pages that a reader copies from, and their code blocks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[3]
_FENCE = re.compile(r"^( *)```(.*)$")
_HEADING = re.compile(r"^#+ (.*)$")
_FILE = re.compile(r"# ([\w/]+\.py)\n")
_PRINTS = re.compile(r"(?:This|It) prints `([^`]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: Its page, as a path from the root.
        line: The number of its first line in the page.
        heading: The heading above it.
        language: The language of the fence.
        text: Its content.
        follows: The line of prose after it.
    """

    page: str
    line: int
    heading: str
    language: str
    text: str
    follows: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str:
        """The file name given by a comment in its first line."""
        found = _FILE.match(self.text)
        return found[1] if found else ""

    @property
    def is_program(self) -> bool:
        """Whether it is a program that readers run."""
        return self.language == "python" and "asyncio.run(" in self.text

    @property
    def is_test(self) -> bool:
        """Whether it is a pytest file."""
        return self.language == "python" and bool(
            re.search(r"^(async )?def test_", self.text, re.MULTILINE)
        )

    @property
    def prints(self) -> str | None:
        """The output that the prose after it states."""
        found = _PRINTS.match(self.follows)
        return f"{found[1]}\n" if found else None


@dataclass(frozen=True)
class Page:
    """A page of Markdown."""

    path: Path

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def module(self) -> str:
        """The name of the module that its blocks form together."""
        return re.sub(r"\W", "_", str(self).removesuffix(".md"))

    @cached_property
    def blocks(self) -> list[Block]:
        """Its fenced blocks, in order."""
        return list(self._read())

    def files(self) -> dict[str, str]:
        """The files that the page tells readers to create, by name."""
        return {block.file: block.text for block in self.blocks if block.file}

    def output_of(self, program: Block) -> str | None:
        """The expected output of a program: stated in prose, or as the text block that follows."""
        after = self.blocks[self.blocks.index(program) + 1 :]
        is_output = (
            bool(after) and after[0].language == "text" and after[0].heading == program.heading
        )
        return after[0].text if is_output else program.prints

    def _read(self) -> Iterator[Block]:
        lines = self.path.read_text(encoding="utf-8").splitlines()
        heading, number = "", 0
        while number < len(lines):
            if found := _HEADING.match(lines[number]):
                heading = found[1]
            elif found := _FENCE.match(lines[number]):
                end = next(
                    index
                    for index in range(number + 1, len(lines))
                    if lines[index].strip() == "```"
                )
                text = textwrap.dedent("\n".join([*lines[number + 1 : end], ""]))
                follows = next((line for line in lines[end + 1 :] if line.strip()), "")
                yield Block(str(self), number + 2, heading, found[2].split(" ")[0], text, follows)
                number = end
            number += 1


README = Page(ROOT / "README.md")
"""Its `support.py` is what other pages mean by `support:app`."""

PAGES = [
    README,
    *[
        Page(path)
        for path in [
            ROOT / "CONTRIBUTING.md",
            ROOT / "deploy/README.md",
            *sorted((ROOT / "docs").rglob("*.md")),
        ]
    ],
]
BLOCKS = [block for page in PAGES for block in page.blocks]


def page(name: str) -> Page:
    """The page with this path, or with this name in `docs/`."""
    return next(one for one in PAGES if str(one) in (name, f"docs/{name}.md"))
