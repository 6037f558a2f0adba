"""What a service has really done, and the judgment of a job by it.

A service's ledger is the outside witness: it has each effect that was made, with the key that was
sent, and nothing that a turn or a model says of it. The metrics are those of LIMBO
(arXiv 2609.29095): task success, exactly-once success, duplicates and overclaims.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class MadeEffect:
    """An effect that a service has made.

    Attributes:
        id: The service's name for it, such as `payments-1`.
        kind: What was made: the path of the request, such as `payments`.
        fields: The fields of the request.
        key: The idempotency key of the request; empty without one.
        source: `request`, `late` if the request took effect after its caller had gone, or
            `redelivery` if the request reached the service a second time.
        at: When it was made, in seconds since 1970.
    """

    id: str
    kind: str
    fields: Mapping[str, Any]
    key: str
    source: str
    at: float

    def has(self, fields: Mapping[str, Any]) -> bool:
        """Return whether it has all of these fields with these values."""
        return all(name in self.fields and self.fields[name] == fields[name] for name in fields)


@dataclass(frozen=True, slots=True)
class Grade:
    """What became of the effects that a job had to make, each exactly once.

    Attributes:
        wanted: The number of effects that the job had to make.
        made: How many of them were made, once or more often.
        duplicates: The number of effects beyond the first of each.
        unwanted: The number of effects that the job had not to make.
    """

    wanted: int
    made: int
    duplicates: int
    unwanted: int

    @property
    def success(self) -> bool:
        """Whether all was made, and nothing else."""
        return self.made == self.wanted and not self.unwanted

    @property
    def exactly_once(self) -> bool:
        """Whether all was made, nothing else, and nothing twice."""
        return self.success and not self.duplicates

    def is_overclaim(self, *, claims_success: bool) -> bool:
        """Return whether a report of success was wrong, because something lacks or was doubled."""
        return claims_success and not self.exactly_once


def grade(effects: Iterable[MadeEffect], kind: str, wanted: Sequence[Mapping[str, Any]]) -> Grade:
    """Judge the effects of a kind by those that had to be made.

    Args:
        effects: All effects of the service.
        kind: The kind that is judged.
        wanted: The fields of each effect that has to be made exactly once. An effect may have
            further fields.
    """
    made = [effect for effect in effects if effect.kind == kind]
    counts = [sum(effect.has(fields) for effect in made) for fields in wanted]
    return Grade(
        wanted=len(wanted),
        made=sum(count > 0 for count in counts),
        duplicates=sum(max(0, count - 1) for count in counts),
        unwanted=sum(not any(effect.has(fields) for fields in wanted) for effect in made),
    )


def read_effects(path: Path | str) -> list[MadeEffect]:
    """Return the effects in a log, in order, without an unfinished last line.

    The log is that of `StubService(log_path=…)`.
    """
    file = Path(path)
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    return [MadeEffect(**json.loads(line)) for line in lines if line.endswith("\n")]
