"""Skills: instructions that agents share, with the tools and files that they refer to.

An inlined skill is part of the system prompt. For a skill on demand, only the name and the
description are, and the model reads the rest with `load_skill`. A turn is pinned to the digest of
the content that it may read. Folders with a SKILL.md are read by
`perdure.activities.skill_folders`.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from pydantic_core import to_json

from perdure import errors, limits, validation
from perdure.agents.tools import Tool, as_tools, tool
from perdure.text import clean, one_line
from perdure.validation import Converted

LOAD_SKILL = "load_skill"
"""The name of the tool that reads skills. No other tool of an agent may have it."""

FILE = "SKILL.md"

_NAMED = 20

Find = Callable[[str], Awaitable["Skill"]]


@dataclass(frozen=True)
class Skill:
    """Instructions for a kind of work, with the tools that they refer to.

    Attributes:
        name: 1 to 64 printable characters. The model loads a skill on demand by this name.
        instructions: The text for the model.
        description: The purpose of the skill, in one line. For a skill on demand, the prompt
            contains only this and the name.
        tools: Tools or plain functions, offered after the tools of the agent's toolboxes.
        on_demand: Whether to leave the instructions out of the prompt; the model reads them with
            `load_skill`.
        files: Texts that `load_skill` reads too, by path, as in `{"forms/letter.md": "…"}`; only
            for a skill on demand.

    Raises:
        ConfigurationError: The name or another value is not valid, or a skill that is not on demand
            has files.
    """

    name: str
    instructions: validation.Text
    description: validation.Text = ""
    tools: Converted[Iterable[Tool | Callable[..., Any]], tuple[Tool, ...]] = Converted(
        lambda skill, given: as_tools(given, _named(skill)), ()
    )
    on_demand: bool = False
    files: validation.Texts = field(default_factory=dict, kw_only=True, hash=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _is_name(self.name):
            raise errors.ConfigurationError(
                f"skill name {self.name!r}: use 1 to {limits.NAME_CHARACTERS} printable characters"
            )
        validation.check_fields(Skill, _named(self), self)
        if self._by_path and not self.on_demand:
            raise errors.ConfigurationError(
                f"{_named(self)}: its files can only be read if it is on demand; pass"
                " on_demand=True"
            )

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of the readable content and the names."""
        files = sorted((clean(path), clean(text)) for path, text in self._by_path.items())
        return hashlib.sha256(to_json([self.name, clean(self.instructions), files])).hexdigest()

    @functools.cached_property
    def _by_path(self) -> dict[str, str]:
        return {_plain(path): text for path, text in self.files.items()}

    def read(self, path: str | None = None) -> str:
        """Return the instructions with a list of the files, or one file.

        For a folder, return the paths below it. Nothing else can be read with any path: it is
        looked up among the skill's own.

        Raises:
            ValueError: There is no such path; the message is for the model.
        """
        if not path or _plain(path) == FILE:
            return (
                self.instructions
                if not self._by_path
                else "\n\n".join(
                    (self.instructions, f"[files of this skill: {_some(self._by_path)}]")
                )
            )
        plain_path = _plain(path)
        if plain_path in self._by_path:
            return self._by_path[plain_path]
        below = [
            known_path
            for known_path in sorted(self._by_path)
            if plain_path == "." or known_path.startswith(f"{plain_path}/")
        ]
        if not below:
            raise ValueError(
                f"the skill {self.name!r} has no file {one_line(path, 200)!r}; it has"
                f" {_some(self._by_path)}"
            )
        return "\n".join(below)


def joined(base: str, skills: Sequence[Skill], *, can_load: bool) -> str:
    """Return the system prompt: `base` and the skills in order, separated by blank lines.

    Skills on demand are listed if the turn can load them.
    """
    parts = [base]
    for on_demand, group in itertools.groupby(skills, key=lambda skill: skill.on_demand):
        if not on_demand:
            parts += [skill.instructions for skill in group]
        elif can_load:
            parts.append(
                "\n".join(
                    [
                        f"Read a skill with {LOAD_SKILL} before you do what it is about:",
                        *map(_line, group),
                    ]
                )
            )
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) if skills else base


def loader(find: Find) -> Tool:
    """Return the tool `load_skill`.

    `find` looks up a skill by name, and raises ValueError for an unknown name.

    The schema contains no names of skills, so that it does not change when skills are added.
    """

    @tool(name=LOAD_SKILL, read_only=True)
    async def load_skill(name: str, path: str | None = None) -> str:
        """Read the instructions of a skill, or a file that belongs to it.

        Args:
            name: The skill, by the name that the system prompt gives it.
            path: One of the skill's files; "." lists them. Without it, the instructions are read.
        """
        return (await find(name)).read(path)

    return load_skill


def among(skills: Iterable[Skill]) -> Find:
    """Return a look-up function for skills on demand."""
    by_name = {skill.name: skill for skill in skills if skill.on_demand}

    async def find(name: str) -> Skill:
        if name not in by_name:
            raise unknown(name, by_name)
        return by_name[name]

    return find


def unknown(name: str, known: Iterable[str]) -> ValueError:
    """Return the error for an unknown skill name, for the model."""
    return ValueError(
        f"there is no skill {one_line(name, 200)!r} to be read; there is {_some(known)}"
    )


def refuse_same_names(agent: str, sourced: Iterable[tuple[str, Skill]]) -> None:
    """Check the skills of an agent, each with its source.

    Raises:
        ConfigurationError: Two skills have the same name; the message names both sources.
    """
    sources: dict[str, str] = {}
    for source, skill in sourced:
        if skill.name in sources:
            raise errors.ConfigurationError(
                f"agent {agent}: the skill {skill.name!r} comes from {sources[skill.name]} and from"
                f" {source}; rename one, in a folder with name: in the frontmatter"
            )
        sources[skill.name] = source


def _is_name(name: str) -> bool:
    return name.isprintable() and name == name.strip() and 0 < len(name) <= limits.NAME_CHARACTERS


def _line(skill: Skill) -> str:
    description = " ".join(skill.description.split())
    return f"- {skill.name}: {description}" if description else f"- {skill.name}"


def _named(skill: Skill) -> str:
    return f"skill {skill.name!r}"


def _plain(path: str) -> str:
    return str(PurePosixPath(path))


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join([*listed[:_NAMED], *(["…"] if len(listed) > _NAMED else [])]) or "none"
