"""Folders as skills: each with a SKILL.md and, if it is read on demand, the text files beside it.

A folder is read as a whole when a turn looks its agent up, and reads of the model are answered from
what was read then. So no path that a model invents ever reaches the disk. Links, hidden files,
devices, and what is no text stay out, by the rules of `perdure.activities.toolboxes.folder`; the
folder of a skill itself may be a link, because its operator chose it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from perdure.activities.toolboxes.folder import Folder
from perdure.agents.agent import Agent
from perdure.agents.skills import FILE, Skill, refuse_same_names
from perdure.errors import ConfigurationError
from perdure.text import described, one_line

_FENCE = "---"
_FILES, _FILES_BYTES = 500, 8_000_000
_FRONTMATTER_CHARACTERS, _FLOW_DEPTH = 16_000, 20


def read(agent: Agent) -> tuple[Skill, ...]:
    """The skills of an agent in their order, each folder as what it holds now.

    Raises:
        ConfigurationError: Two skills of one name, or a folder that cannot be read; the message
            names the file.
    """
    found: list[tuple[str, Skill]] = []
    for place, item in enumerate(agent.skills):
        found += (
            [(f"skills[{place}]", item)]
            if isinstance(item, Skill)
            else [(str(folder), _skill(folder)) for folder in _folders(item)]
        )
    refuse_same_names(agent.name, found)
    return tuple(skill for _, skill in found)


def _folders(path: Path) -> list[Path]:
    if _has_skill(path):
        return [path]
    try:
        inner = sorted(path.iterdir())
    except OSError as error:
        raise ConfigurationError(
            f"the folder of skills {path.absolute()} cannot be read: {error.strerror}"
        ) from error
    return [folder for folder in inner if not folder.name.startswith(".") and _has_skill(folder)]


def _has_skill(folder: Path) -> bool:
    return os.path.lexists(folder / FILE)


def _skill(path: Path) -> Skill:
    file, folder = path / FILE, Folder(_content(path))
    try:
        frontmatter, body = _split(_text(folder, FILE))
        fields = _fields(frontmatter)
        description = _said(fields, "description")
        return Skill(
            name=_said(fields, "name") or path.name or path.resolve().name,
            instructions=body.strip("\n"),
            description=description,
            on_demand=bool(description),
            files=_files(folder) if description else {},
        )
    except (ConfigurationError, ValueError) as error:
        raise ConfigurationError(f"{file}: {error}") from error


def _content(path: Path) -> Path:
    """Where the files of a skill are.

    Kubernetes mounts a ConfigMap as links through `..data` to a folder beside it, and a change
    swaps that.
    """
    real = Path(os.path.realpath(path / "..data"))
    return (
        real
        if real.is_dir()
        and real.parent == Path(os.path.realpath(path))
        and (path / "..data").is_symlink()
        else path
    )


def _text(folder: Folder, path: str) -> str:
    return folder.text(path).replace("\r\n", "\n")


def _split(text: str) -> tuple[str, str]:
    """Frontmatter and body. Frontmatter that is not closed is body."""
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if line.rstrip() == _FENCE][:2]
    if len(fences) < 2 or fences[0] != 0:
        return "", text
    return "\n".join(lines[1 : fences[1]]), "\n".join(lines[fences[1] + 1 :])


def _fields(frontmatter: str) -> Mapping[object, object]:
    if not frontmatter.strip():
        return {}
    if len(frontmatter) > _FRONTMATTER_CHARACTERS:
        raise ValueError(
            f"the frontmatter has {len(frontmatter)} characters, more than"
            f" {_FRONTMATTER_CHARACTERS}; leave fields out"
        )
    try:
        found = _yaml(frontmatter)
    except Exception as error:  # PyYAML raises more than its own errors, such as ValueError for the 30th of February
        raise ValueError(
            f"the frontmatter is not valid YAML: {one_line(described(error), 300)}"
        ) from error
    if found is not None and not isinstance(found, dict):
        raise ValueError("the frontmatter must be fields with values, as in name: invoices")
    return found or {}


def _yaml(text: str) -> object:
    """YAML without aliases and merge keys: with them, 500 bytes can take all memory.

    Raises:
        ValueError: There is one, or brackets are nested deeply.
        yaml.YAMLError: It is no YAML.
    """
    import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own; only who has frontmatter waits for it

    depth = 0
    for token in yaml.scan(
        text, yaml.SafeLoader
    ):  # takes quadratic time for brackets in brackets, but goes no further than it is asked
        depth += isinstance(token, yaml.FlowSequenceStartToken | yaml.FlowMappingStartToken)
        depth -= isinstance(token, yaml.FlowSequenceEndToken | yaml.FlowMappingEndToken)
        if depth > _FLOW_DEPTH:
            raise ValueError(
                f"line {token.start_mark.line + 2} has more than {_FLOW_DEPTH} brackets in one"
                " another"
            )
        if isinstance(token, yaml.AliasToken) or (
            isinstance(token, yaml.ScalarToken) and token.plain and token.value == "<<"
        ):
            raise ValueError(
                f"line {token.start_mark.line + 2} has an alias or a merge key; write the value out"
            )
    return yaml.safe_load(text)


def _said(fields: Mapping[object, object], name: str) -> str:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(
            f"{name} in the frontmatter must be text, not {type(value).__name__}; put it into"
            " quotes"
        )
    return (value or "").strip()


def _files(folder: Folder) -> dict[str, str]:
    """The texts beside SKILL.md. What is no text, or too large to be read, is left out."""
    texts: dict[str, str] = {}
    size = 0
    for count, path in enumerate(folder.walk()):
        if path != FILE:
            try:
                texts[path] = _text(folder, path)
            except ValueError:
                continue
            size += len(texts[path])
        if count > _FILES or size > _FILES_BYTES:
            raise ValueError(
                f"there are more than {_FILES} files beside it, or more than {_FILES_BYTES}"
                " characters of text; leave some out"
            )
    return texts
