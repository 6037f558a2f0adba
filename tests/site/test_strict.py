"""`make docs` fails on broken links and on pages outside the navigation.

MkDocs is run on small folders, with the settings of `mkdocs.yml`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.docs.site import NOT_BUILT, ROOT, SITE

pytestmark = pytest.mark.skipif(SITE is None, reason=NOT_BUILT)
GOOD = "# One\n\n[Two](two.md#here), [one](#one), ![a picture](picture.svg)\n"


def build(folder: Path, one: str) -> tuple[int, str]:
    """The output of MkDocs for a site of two pages, the first of which has this text."""
    docs = folder / "docs"
    docs.mkdir(exist_ok=True)
    (docs / "index.md").write_text(one, encoding="utf-8")
    (docs / "two.md").write_text("# Two\n\n## Here\n\nIt is.\n", encoding="utf-8")
    (docs / "picture.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>', encoding="utf-8")
    rules = (
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nsite_dir: site\nnav: [index.md,"
        " two.md]\nplugins: []\nhooks: []\nwatch: []\n"
    )
    (folder / "mkdocs.yml").write_text(rules, encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(folder / "mkdocs.yml")]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=100, env=quiet
    )
    return done.returncode, done.stderr


def test_a_site_without_faults_is_built(tmp_path: Path) -> None:
    """The tests below fail because of their changes, and not because of the two pages."""
    code, said = build(tmp_path, GOOD)

    assert code == 0, said
    assert (tmp_path / "site/index.html").is_file()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("[gone](three.md)", "three.md"),
        ("[gone](two.md#there)", "#there"),
        ("[gone](#nowhere)", "#nowhere"),
        ("![gone](gone.png)", "gone.png"),
        ("[gone](/two.md)", "/two.md"),
    ],
)
def test_a_link_that_leads_nowhere_stops_the_build(tmp_path: Path, fault: str, said: str) -> None:
    """To a page, to a heading of another or of the same, to a picture, or from the root of a
    server. The message names it.
    """
    code, words = build(tmp_path, f"{GOOD}\n{fault}\n")

    assert code != 0
    assert said in words


def test_a_page_that_is_not_in_the_navigation_stops_the_build(tmp_path: Path) -> None:
    """Readers would not find it."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/three.md").write_text("# Three\n", encoding="utf-8")

    code, words = build(tmp_path, GOOD)

    assert code != 0
    assert "three.md" in words
