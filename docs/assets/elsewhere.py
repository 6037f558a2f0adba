"""MkDocs hooks for the pages whose text is outside docs/, and for the links to them.

`mkdocs.yml` names this file. MkDocs calls the functions whose names begin with `on_`.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
SOURCES = {
    "overview.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "deploying.md": "deploy/README.md",
}
"""The file in the tree that holds the text of a page."""

EXAMPLES = {f"examples/{path.name}": path for path in sorted((ROOT / "examples").glob("*.py"))}
BEHIND = (
    "acceptance.md",
    "changelog.md",
    "contributing.md",
    "decisions/",
    "design.md",
    "examples.md",
    "how-a-message-travels.md",
    "how-to-read-the-code.md",
)
"""What the search shows after the rest."""

_PLACES = {source: page for page, source in SOURCES.items()} | {
    name: f"examples.md#{path.stem}" for name, path in EXAMPLES.items()
}
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)[^)#\s]+")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    from mkdocs.structure.files import File

    for page, source in SOURCES.items():
        files.append(
            File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8"))
        )
    files.append(File.generated(config, "examples.md", content=examples()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The text of a page with links as the site needs them.

    In the tree they are as a forge needs them.
    """
    if page.file.src_uri.startswith(BEHIND):
        page.meta["search"] = {"boost": 0.3}
    return _LINK.sub(lambda link: link_on_site(link[0], page.file.src_uri), markdown)


def link_on_site(link: str, uri: str) -> str:
    """Translate a relative link of this page from its target in the tree to the one on the site."""
    in_tree = SOURCES.get(uri) or f"docs/{uri}"
    target = posixpath.normpath(posixpath.join(posixpath.dirname(in_tree), link))
    place = _PLACES.get(target) or (
        target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
    )
    return posixpath.relpath(place, posixpath.dirname(uri) or ".")


def examples() -> str:
    """One page with all programs to copy from."""
    intro = (
        "Programs to copy from, as they stand in `examples/`. With a scripted model, and so without"
        " a key: `python -m examples.NAME`.\n"
    )
    return "\n".join(["# Examples\n", intro, *(example(path) for path in EXAMPLES.values())])


def example(path: Path) -> str:
    """A program: what it says of itself, then its code."""
    text = path.read_text(encoding="utf-8")
    module = ast.parse(text)
    code = "\n".join(text.splitlines()[module.body[0].end_lineno :]).strip()
    return (
        f"## {path.name}"
        f" {{#{path.stem}}}\n\n{ast.get_docstring(module)}\n\n```python\n{code}\n```\n"
    )
