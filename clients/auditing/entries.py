"""What people and programs have done, as a caller sees it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from perdure.base import Value

Kind = Literal["turn", "session", "batch", "schedule", "event", "subject"]
"""What an act is on: `event` for the events of a key, `subject` for a data subject."""


class AuditEntry(Value):
    """What a person or a program has done.

    Attributes:
        time: When, in UTC: by the clock of Temporal's server, or of the caller for a schedule.
        act: What was done, such as `start`, `approve`, `cancel` or `add_budget`. An act on a
            schedule has the word of its `log`, or `created`.
        kind: What it was done to.
        id: The id of that; of events, their key; of a data subject, its name.
        by: Who did it, as recorded; None without a name, and if it cannot be read.
        via: Through what: `client`, `cli`, `rest`, `page`, `responses`, `agui`, `a2a`, `mcp` or
            `hook`; what acts by itself is a `schedule`, `turn`, `session` or `batch`. None if that
            is not recorded, as by earlier releases and by Temporal's own tools.
        on_behalf_of: Who has started the root of what acted by itself; None for other acts, and if
            that is not recorded.
        detail: More in one line, such as the tool and the id of a call, an amount, or a reason.
            Messages, answers and results are not in it.
        problem: Why something of it cannot be read; empty if everything was read.
    """

    time: datetime
    act: str
    kind: Kind
    id: str
    by: str | None = None
    via: str | None = None
    on_behalf_of: str | None = None
    detail: str = ""
    problem: str = ""
