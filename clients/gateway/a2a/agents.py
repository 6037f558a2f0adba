"""The agents that are served over A2A, as their operator publishes them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import ValidationError

from perdure import errors, validation
from perdure.agents.tools import NAME
from perdure.base import Value
from perdure.temporal.payloads import explain
from perdure.validation import Must

_Name = Annotated[
    str,
    Must(
        "the name of an agent",
        lambda value: isinstance(value, str) and bool(NAME.fullmatch(value)),
    ),
]
_Said = Annotated[
    str,
    Must(
        "text that is not empty",
        lambda value: validation.accepts(validation.Unicode, value) and bool(value.strip()),
    ),
]
_Several = Annotated[
    tuple[str, ...],
    Must(
        "a tuple of texts that are not empty",
        lambda value: (
            isinstance(value, tuple) and all(validation.accepts(_Said, text) for text in value)
        ),
    ),
]
_Address = Annotated[
    str,
    Must(
        "a URL such as https://agents.example.com/a2a/desk",
        lambda value: isinstance(value, str) and _is_address(value),
    ),
]


def _is_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and value.isprintable()


@dataclass(frozen=True)
class A2AAgent:
    """An agent that is served over A2A, and what its public card says.

    Attributes:
        name: The name of the agent, which workers run.
        description: The purpose of the agent, for people and other agents.
        version: The version of the agent.
        tags: Keywords of what it can do.
        examples: Examples of messages to it.
        url: The address at which clients reach it, `…/a2a/NAME`, if a proxy is in front of the
            gateway. Without it, the card has the address at which it was asked for.

    Raises:
        ConfigurationError: A field is not valid.
    """

    name: _Name
    description: _Said
    version: _Said = "1"
    tags: _Several = ()
    examples: _Several = ()
    url: _Address | None = None

    def __post_init__(self) -> None:
        validation.check_fields(A2AAgent, "A2AAgent", self)


class _AgentEntry(Value):
    """The entry of a file of agents."""

    name: str
    description: str
    version: str = "1"
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    url: str | None = None


class _AgentsFile(Value):
    agent: tuple[_AgentEntry, ...]


def a2a_agents_from(path: Path) -> tuple[A2AAgent, ...]:
    """Return the agents of a TOML file, which has a table `[[agent]]` for each.

    Its fields are those of `A2AAgent`. It is read once.

    Raises:
        ConfigurationError: The file cannot be read, or is not valid.
    """
    try:
        file = _AgentsFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise errors.ConfigurationError(f"the agents of {path} cannot be read: {error}") from None
    except ValidationError as error:
        raise errors.ConfigurationError(
            f"the agents of {path} are not valid: {explain(error)}"
        ) from None
    return tuple(A2AAgent(**dict(agent)) for agent in file.agent)
