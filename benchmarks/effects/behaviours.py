"""What the scripted model does: its next move depends only on the task and the results so far.

- `blind`: after an error it makes the same call again, up to three times.
- `tell`: it makes no second call, and says what it was told.
- `careful`: after an error it reads back at once, and calls again for what is missing.
- `patient`: the same, but it waits before it reads back.

Only `tell` leaves an argument as it is that the service refuses by name. The claim at the end is
that of the last result.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from benchmarks.effects.templates import BY_TOOL, WAIT_S, Record, Template
from perdure import Text, ToolMessage, ToolResult, UserMessage
from perdure.testing import ModelRequest, Reply, call, calls, says

MOST_CALLS = 4
PAUSE = timedelta(seconds=0.4)
"""How long it waits before it repeats, longer than `rate_limit` lasts."""
FIND = "find_"
"""The prefix of the tool that reads back."""
_IS_UNKNOWN, _IS_ABSENT = "is unknown", "has not taken effect"
_RENAMED = re.compile(r"it is named '(\w+)' now")


class Behaviour(StrEnum):
    """What a model does after an error."""

    BLIND = "blind"
    TELL = "tell"
    CAREFUL = "careful"
    PATIENT = "patient"


class Claim(StrEnum):
    """What a model says at the end."""

    DONE = "done"
    NOT_DONE = "not done"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Progress:
    """What the model knows after some results.

    Attributes:
        last: The last result.
        written: The number of calls that make effects.
        left: The records that are not there yet, as far as it was told.
        subject: The name of the field that may be renamed.
    """

    last: ToolResult
    written: int
    left: Sequence[Record]
    subject: str


def next_move(template: Template, behaviour: Behaviour, results: Sequence[ToolResult]) -> Reply:
    """The next calls, or what it says at the end."""
    if not results:
        return _write(template, template.records, template.subject)
    seen = progress(template, results)
    is_over = behaviour is Behaviour.TELL or seen.written == MOST_CALLS
    if not seen.last.is_error and not seen.left:
        return says(Claim.DONE)
    if not seen.last.is_error:
        return says(Claim.NOT_DONE) if is_over else _again(template, seen)
    if _looks(behaviour, seen.last):
        delay = timedelta(seconds=WAIT_S if behaviour is Behaviour.PATIENT else 0)
        return calls(call(FIND + template.tool, records=list(template.records)), delay=delay)
    return says(_claim(seen.last)) if is_over else _again(template, seen)


def _looks(behaviour: Behaviour, last: ToolResult) -> bool:
    """Whether it reads back now. A refused argument leaves nothing to find."""
    if behaviour not in (Behaviour.CAREFUL, Behaviour.PATIENT):
        return False
    return not last.name.startswith(FIND) and not _RENAMED.search(last.content)


def _claim(last: ToolResult) -> Claim:
    is_unknown = _IS_UNKNOWN in last.content and _IS_ABSENT not in last.content
    return Claim.UNKNOWN if is_unknown else Claim.NOT_DONE


def progress(template: Template, results: Sequence[ToolResult]) -> Progress:
    """What the results say; an answer that lists nothing as missing leaves nothing to do."""
    left, subject = template.records, template.subject
    for result in results:
        if renamed := _RENAMED.search(result.content):
            subject = renamed[1]
        if not result.is_error:
            left = missing(result.content)
    written = sum(result.name == template.tool for result in results)
    return Progress(results[-1], written, left, subject)


def missing(content: str) -> list[Record]:
    """The records that an answer lists as missing, in its first line."""
    with contextlib.suppress(ValueError):
        answer = json.loads(content.partition("\n")[0])
        if isinstance(answer, Mapping):
            return list(answer.get("missing", ()))
    return []


def _again(template: Template, seen: Progress) -> Reply:
    return _write(template, seen.left, seen.subject, delay=PAUSE)


def _write(
    template: Template, records: Sequence[Record], subject: str, delay: timedelta = timedelta()
) -> Reply:
    renamed = [template.drifted(record, to=subject) for record in records]
    return calls(call(template.tool, records=renamed), delay=delay)


def task_of(template: Template, behaviour: Behaviour) -> str:
    """The task of a turn."""
    return json.dumps({"tool": template.tool, "behaviour": behaviour})


def replied(request: ModelRequest) -> Reply:
    """The same for a turn, whose task names template and behaviour."""
    opening = request.messages[0]
    assert isinstance(opening, UserMessage)
    text = "".join(part.text for part in opening.parts if isinstance(part, Text))
    task: dict[str, Any] = json.loads(text)
    results = [
        result
        for message in request.messages
        if isinstance(message, ToolMessage)
        for result in message.results
    ]
    return next_move(BY_TOOL[task["tool"]], Behaviour(task["behaviour"]), results)
