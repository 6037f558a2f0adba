"""The tasks: each makes effects that may not be made twice, and can be read back.

Thirteen modes by twelve templates are 156, and 13 do not fit together: only a batch breaks off in
its middle (4 of 12 templates), and where the service refuses a second effect (5 of 12), a second
delivery of a request does nothing. So there are 143 episodes, as many as LIMBO has.

Times are those of the paper, divided by 30: a late request takes effect after 3 s, or after 1.3 to
240 s, and who waits before reading back waits 3 s. A request without an answer ends after 1.5 s,
when the service closes the connection, as a load balancer does. So a slow machine makes no timeout
of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.testing import Fault, Terms

ANSWER_S, LATE_S, WAIT_S, LAG_S = 1.5, 3.0, 3.0, 1.0
TAIL_S = (LATE_S * 40 / 90, LATE_S * 80)
SEED = 16
"""The first seed of the delays in `timeout_late_tail`. Here 2 of 12 requests take effect before
they are read back, and none within a second of it, so a slow machine changes nothing."""
RETRY_AFTER_S = 0.3

Record = dict[str, Any]


@dataclass(frozen=True)
class Template:
    """A task.

    Attributes:
        tool: The tool that makes the effects.
        kind: What it makes: the path of the service.
        records: The fields of each effect that has to be made exactly once.
        subject: The field by which effects are listed. `schema_drift` renames it.
        unique: The fields whose values the service takes once.
        lag_s: Seconds after which the service lists an effect.
    """

    tool: str
    kind: str
    records: Sequence[Record]
    subject: str
    unique: tuple[str, ...] = ()
    lag_s: float = 0.0

    @property
    def renamed(self) -> tuple[str, str]:
        """The field that `schema_drift` renames, and its new name."""
        return self.subject, f"{self.subject}_id"

    def fits(self, fault: Fault) -> bool:
        """Whether this mode can happen to this task."""
        match fault:
            case Fault.PARTIAL_TIMEOUT:
                return len(self.records) > 1
            case Fault.DUPLICATE_DELIVERY:
                return not self.unique
        return True

    def terms(self, *, honours_keys: bool, hold_s: float = ANSWER_S) -> Terms:
        """What its service promises; `hold_s` is how long it leaves a caller without an answer."""
        return Terms(
            honours_keys=honours_keys,
            unique=self.unique,
            lag_s=self.lag_s,
            renamed=self.renamed,
            late_s=LATE_S,
            tail_s=TAIL_S,
            seed=SEED + TEMPLATES.index(self),
            retry_after_s=RETRY_AFTER_S,
            hold_s=hold_s,
        )

    def original(self, record: Mapping[str, Any]) -> Record:
        """A record with the names before `schema_drift`."""
        old, new = self.renamed
        return {old if name == new else name: record[name] for name in record}

    def drifted(self, record: Mapping[str, Any], *, to: str) -> Record:
        """A record with another name of its subject."""
        return {to if name == self.subject else name: record[name] for name in record}


def _each(count: int, **fields: Any) -> list[Record]:
    """A batch: records that differ in the field whose value has a place for a number."""
    return [
        {
            name: value.format(number) if isinstance(value, str) else value
            for name, value in fields.items()
        }
        for number in range(1, count + 1)
    ]


TEMPLATES = (
    Template("pay", "payments", _each(1, invoice="R-7", customer="ada", cents=12_000), "invoice"),
    Template(
        "refund", "refunds", _each(1, payment="P-3", cents=4_500), "payment", unique=("payment",)
    ),
    Template(
        "transfer",
        "transfers",
        _each(1, reference="T-91", account="DE02", cents=90_000),
        "reference",
        unique=("reference",),
    ),
    Template(
        "send_mails",
        "mails",
        _each(3, campaign="june", recipient="customer-{}@example.org"),
        "campaign",
        lag_s=LAG_S,
    ),
    Template(
        "book_room",
        "bookings",
        _each(1, room="blue", day="2026-12-01", hour=10),
        "room",
        unique=("room", "day", "hour"),
    ),
    Template("open_ticket", "tickets", _each(1, alarm="disk-17", queue="ops"), "alarm"),
    Template(
        "reserve_stock", "reservations", _each(2, order="O-5", sku="chair-{}", pieces=4), "order"
    ),
    Template(
        "change_plan",
        "changes",
        _each(1, subscription="S-12", plan="team", month="2026-12"),
        "subscription",
        unique=("subscription", "month"),
    ),
    Template("upload", "parts", _each(4, upload="film", part="{} of 4", sha="{}f"), "upload"),
    Template(
        "post_message",
        "messages",
        _each(1, channel="releases", body="1.4 is out"),
        "channel",
        lag_s=LAG_S,
    ),
    Template(
        "create_account", "accounts", _each(1, email="ada@example.org"), "email", unique=("email",)
    ),
    Template("order", "lines", _each(3, cart="K-8", article="lamp-{}", pieces=1), "cart"),
)
BY_TOOL = {template.tool: template for template in TEMPLATES}
MODES = tuple(fault for fault in Fault if not fault.startswith("cut"))
"""The modes of the paper; those that cut a connection are ours."""


@dataclass(frozen=True)
class Case:
    """A task in a mode."""

    template: Template
    fault: Fault


def cases(
    faults: Sequence[Fault] = MODES, templates: Sequence[Template] = TEMPLATES
) -> Iterator[Case]:
    """Yield the tasks and modes that fit together."""
    for fault in faults:
        for template in templates:
            if template.fits(fault):
                yield Case(template, fault)
