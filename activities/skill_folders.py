"""Skill folders, each with a SKILL.md and, if it is read on demand, further text files.

A folder is read as a whole when a turn resolves its agent, and the model's reads are answered from
that copy, so paths invented by a model never reach the disk. Links, hidden files, devices and files
that are not text are ignored, by the rules of `perdure.activities.toolboxes.folder`. A skill's
folder itself may be a link, because its operator chose it.
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
    """Return the skills of an agent in order, with the current content of its folders.

    Raises:
        ConfigurationError: Two skills have the same name, or a folder cannot be read; the message
            names the file.
    """
    skills: list[tuple[str, Skill]] = []
    for index, item in enumerate(agent.skills):
        skills += (
            [(f"skills[{index}]", item)]
            if isinstance(item, Skill)
            else [(str(folder), _skill(folder)) for folder in _folders(item)]
        )
    refuse_same_names(agent.name, skills)
    return tuple(skill for _, skill in skills)


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
        description = _string_field(fields, "description")
        return Skill(
            name=_string_field(fields, "name") or path.name or path.resolve().name,
            instructions=body.strip("\n"),
            description=description,
            on_demand=bool(description),
            files=_files(folder) if description else {},
        )
    except (ConfigurationError, ValueError) as error:
        raise ConfigurationError(f"{file}: {error}") from error


def _content(path: Path) -> Path:
    """Return the folder that holds the files of a skill.

    Kubernetes mounts a ConfigMap as links through `..data` to a sibling folder, and replaces that
    link to change it.
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
    """Return frontmatter and body. Frontmatter without a closing fence is part of the body."""
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
        fields = _yaml(frontmatter)
    except Exception as error:  # PyYAML raises ValueError for the 30th of February, for example
        raise ValueError(
            f"the frontmatter is not valid YAML: {one_line(described(error), 300)}"
        ) from error
    if fields is not None and not isinstance(fields, dict):
        raise ValueError("the frontmatter must be fields with values, as in name: invoices")
    return fields or {}


def _yaml(text: str) -> object:
    """Parse YAML without aliases and merge keys: with them, 500 bytes can exhaust the memory.

    Raises:
        ValueError: There is an alias or a merge key, or brackets are nested too deeply.
        yaml.YAMLError: The text is not YAML.
    """
    import yaml  # type: ignore[import-untyped]  # its stubs are a separate package; only imported for frontmatter

    depth = 0
    for token in yaml.scan(text, yaml.SafeLoader):  # quadratic for nested brackets, but lazy
        depth += isinstance(token, yaml.FlowSequenceStartToken | yaml.FlowMappingStartToken)
        depth -= isinstance(token, yaml.FlowSequenceEndToken | yaml.FlowMappingEndToken)
        if depth > _FLOW_DEPTH:
            raise ValueError(
                f"line {token.start_mark.line + 2} has more than {_FLOW_DEPTH} nested brackets"
            )
        if isinstance(token, yaml.AliasToken) or (
            isinstance(token, yaml.ScalarToken) and token.plain and token.value == "<<"
        ):
            raise ValueError(
                f"line {token.start_mark.line + 2} has an alias or a merge key; write the value out"
            )
    return yaml.safe_load(text)


def _string_field(fields: Mapping[object, object], name: str) -> str:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(
            f"{name} in the frontmatter must be text, not {type(value).__name__}; put it into"
            " quotes"
        )
    return (value or "").strip()


def _files(folder: Folder) -> dict[str, str]:
    """Return the text files beside SKILL.md, without those that are too large or not text."""
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
