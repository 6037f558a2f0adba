"""How the effects are made: what a service promises, what it is sent, and how tools are declared.

A configuration is a set of tool options, so that a new option of tools is a new row of the table.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import httpx

from benchmarks.effects.behaviours import FIND
from benchmarks.effects.templates import ANSWER_S, TEMPLATES, WAIT_S, Record, Template
from perdure import Agent, OutcomeUnknown, Tool, ToolContext

SERVICE, KILL = "service", "kill"
"""The labels with the URL of a turn's service, and the moment at which its worker is killed."""
GATE = "EFFECTS_GATE"
"""The variable with the folder in which tools note that they can be killed."""
_NEVER_S = 600.0

Records = list[dict[str, str | int]]
Key = Literal["none", "call", "effect"]
Find = Callable[..., Any]


@dataclass(frozen=True)
class Configuration:
    """How the tools of an agent are declared.

    Attributes:
        name: The name of the row.
        honours_keys: Whether services have each effect once for a key.
        key: The key that is sent: none, that of the call, or that of its effect.
        hold_s: How long services leave a caller without an answer.
        names_unknown: Whether the tool says of a status of 500 that the outcome is unknown.
        options: The options of the tool, by the function that reads back.
    """

    name: str
    honours_keys: bool
    key: Key = "none"
    hold_s: float = ANSWER_S
    names_unknown: bool = False
    options: Callable[[Template, Find], Mapping[str, Any]] = field(default=lambda *_: {})

    def agent(self, template: Template) -> str:
        """The name of the agent that has a task."""
        return f"{self.name.replace(' ', '-')}-{template.tool}"


def _effect_of(template: Template) -> Callable[[Any], Any]:
    return lambda call: meaning(template, call.records)


def _reading(find: Find) -> dict[str, Any]:
    return {"verify": find, "settle": timedelta(seconds=WAIT_S)}


NO_KEY = Configuration("no key", honours_keys=False)
CALL_KEY = Configuration(
    "key of the call", honours_keys=True, key="call", options=lambda *_: {"idempotent": True}
)
EFFECT_KEY = Configuration(
    "key of the effect",
    honours_keys=True,
    key="effect",
    options=lambda template, _: {"effect": _effect_of(template), "idempotent": True},
)
READ_BACK = Configuration(
    "read back",
    honours_keys=False,
    names_unknown=True,
    options=lambda template, find: {"effect": _effect_of(template), **_reading(find)},
)
BOTH = Configuration(
    "both",
    honours_keys=True,
    key="effect",
    names_unknown=True,
    options=lambda template, find: {
        "effect": _effect_of(template),
        "idempotent": True,
        **_reading(find),
    },
)
STOPPED = Configuration(
    "stopped",
    honours_keys=False,
    hold_s=_NEVER_S,
    options=lambda *_: {"timeout": timedelta(seconds=ANSWER_S)},
)
CONFIGURATIONS = (NO_KEY, CALL_KEY, EFFECT_KEY, READ_BACK, BOTH)


class ServiceRefused(Exception):  # noqa: N818 - it is what the model reads
    """The service has answered with an error."""


def _client() -> httpx.AsyncClient:
    """A client that waits until the service gives up, and loads no certificates."""
    return httpx.AsyncClient(timeout=_NEVER_S, trust_env=False, verify=False)


async def send(template: Template, url: str, records: Sequence[Record], key: str) -> str:
    """Ask the service to make the effects, and return its answer.

    Raises:
        ServiceRefused: It answered with an error.
        httpx.TransportError: There was no answer.
    """
    async with _client() as client:
        answer = await client.post(
            f"{url}/{template.kind}",
            json=records if len(template.records) > 1 else records[0],
            headers={"Idempotency-Key": key} if key else {},
        )
    if answer.is_error:
        raise ServiceRefused(f"{answer.status_code} {answer.text}")
    return answer.text


async def found(template: Template, url: str, records: Sequence[Record]) -> dict[str, list[Record]]:
    """Read back which of these records were made, and which are missing."""
    wanted = [template.original(record) for record in records]
    async with _client() as client:
        answer = await client.get(
            f"{url}/{template.kind}", params={template.subject: wanted[0][template.subject]}
        )
    items: list[Record] = answer.raise_for_status().json()["items"]
    made = [record for record in wanted if any(record.items() <= item.items() for item in items)]
    return {"made": made, "missing": [record for record in wanted if record not in made]}


def meaning(template: Template, records: Sequence[Record]) -> list[Record]:
    """What a call means, whatever the service names its fields."""
    return [template.original(record) for record in records]


def tools_of(configuration: Configuration, template: Template) -> tuple[Tool, Tool]:
    """The tool that makes the effects of a template, and the one that reads them back."""

    async def write(ctx: ToolContext[None], records: Records) -> str:
        kill = ctx.labels.get(KILL, "")
        await killed(kill, "before", ctx.turn_id)
        try:
            answer = await send(
                template,
                ctx.labels[SERVICE],
                records,
                _key(configuration.key, ctx),
            )
        except ServiceRefused as error:
            if configuration.names_unknown and str(error).startswith("500"):
                raise OutcomeUnknown(str(error)) from error
            raise
        await killed(kill, "after", ctx.turn_id)
        return answer

    async def find(ctx: ToolContext[None], records: Records) -> str | None:
        """What was made of the records; None if nothing was, or if a key completes the rest."""
        read = await found(template, ctx.labels[SERVICE], records)
        is_absent = read["missing"] if configuration.honours_keys else not read["made"]
        return None if is_absent else json.dumps(read)

    async def look(ctx: ToolContext[None], records: Records) -> str:
        return json.dumps(await found(template, ctx.labels[SERVICE], records))

    makes: Tool = Tool(
        write,
        name=template.tool,
        description=f"Make {template.kind}.",
        **configuration.options(template, find),
    )
    reads: Tool = Tool(
        look, name=FIND + template.tool, description=f"Find {template.kind}.", read_only=True
    )
    return makes, reads


def _key(kind: Key, ctx: ToolContext[None]) -> str:
    return {"none": "", "call": ctx.idempotency_key, "effect": ctx.effect_key}[kind]


def note_of(folder: Path, name: str) -> Path:
    """The file in which a call notes the id of its process before it waits for its end."""
    return folder / name.replace("/", "-")


async def killed(kill: str, moment: str, name: str) -> None:
    """Wait for the end of the process, once for a name, if the kill has to come at this moment."""
    if kill != moment:
        return
    note = note_of(Path(os.environ[GATE]), name)
    if not note.exists():
        note.write_text(str(os.getpid()), encoding="utf-8")
        await asyncio.sleep(_NEVER_S)


def agents_of(configuration: Configuration) -> Iterator[Agent[None]]:
    """Yield an agent for each task."""
    for template in TEMPLATES:
        yield Agent(
            name=configuration.agent(template),
            model="script:script",
            tools=tools_of(configuration, template),
            on_loop="ignore",
        )
