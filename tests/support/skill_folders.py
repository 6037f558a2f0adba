"""Folders with a skill."""

from __future__ import annotations

from pathlib import Path


def write_skill(folder: Path, body: str, *, description: str = "", **files: str) -> Path:
    """Write a folder with a SKILL.md and other files, by their stem."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(
        f"---\ndescription: {description}\n---\n{body}\n" if description else body
    )
    for name, text in files.items():
        (folder / f"{name}.md").write_text(text)
    return folder
