"""The ways in which a service fails, by what its caller sees and by what the service does.

The modes are the twelve of LIMBO (Li, *LIMBO: agents under tool failures with uncertain side
effects*, arXiv 2609.29095; its benchmark is `jaxblack/limbo-bench`, none of whose code is here),
with their names, and three of our own. Modes that show the same cannot be told apart by a caller
when they happen, whatever the service has done.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

Shows = Literal["an answer", "nothing", "a reset", "500", "503", "429", "400"]
Does = Literal["once", "never", "later", "half", "twice"]


class Fault(StrEnum):
    """The fault modes of `StubService`; those that cut the connection are not LIMBO's."""

    NONE = "none"
    TIMEOUT_PRE = "timeout_pre"
    TIMEOUT_POST = "timeout_post"
    TIMEOUT_LATE = "timeout_late"
    TIMEOUT_LATE_TAIL = "timeout_late_tail"
    HTTP500_PRE = "http500_pre"
    HTTP500_POST = "http500_post"
    PARTIAL_TIMEOUT = "partial_timeout"
    DUPLICATE_DELIVERY = "duplicate_delivery"
    HTTP503_TRANSIENT = "http503_transient"
    RATE_LIMIT = "rate_limit"
    OUTAGE = "outage"
    SCHEMA_DRIFT = "schema_drift"
    CUT_PRE = "cut_pre"
    CUT_POST = "cut_post"
    CUT_LATE = "cut_late"

    @property
    def shows(self) -> Shows:
        """What the caller sees."""
        return _MODES[self].shows

    @property
    def does(self) -> Does:
        """What the service does with the request."""
        return _MODES[self].does

    @property
    def lasts(self) -> bool:
        """Whether the requests after it fail as well."""
        return _MODES[self].lasts

    @property
    def is_ambiguous(self) -> bool:
        """Whether the caller cannot know what the service has done."""
        return self.shows in ("nothing", "a reset", "500")


class _Mode(NamedTuple):
    shows: Shows
    does: Does
    lasts: bool = False


_MODES = {
    Fault.NONE: _Mode("an answer", "once"),
    Fault.TIMEOUT_PRE: _Mode("nothing", "never"),
    Fault.TIMEOUT_POST: _Mode("nothing", "once"),
    Fault.TIMEOUT_LATE: _Mode("nothing", "later"),
    Fault.TIMEOUT_LATE_TAIL: _Mode("nothing", "later"),
    Fault.HTTP500_PRE: _Mode("500", "never"),
    Fault.HTTP500_POST: _Mode("500", "once"),
    Fault.PARTIAL_TIMEOUT: _Mode("nothing", "half"),
    Fault.DUPLICATE_DELIVERY: _Mode("an answer", "twice"),
    Fault.HTTP503_TRANSIENT: _Mode("503", "never"),
    Fault.RATE_LIMIT: _Mode("429", "never", lasts=True),
    Fault.OUTAGE: _Mode("503", "never", lasts=True),
    Fault.SCHEMA_DRIFT: _Mode("400", "never", lasts=True),
    Fault.CUT_PRE: _Mode("a reset", "never"),
    Fault.CUT_POST: _Mode("a reset", "once"),
    Fault.CUT_LATE: _Mode("a reset", "later"),
}


@dataclass(frozen=True)
class Terms:
    """What a service promises to its callers, and how long its faults take.

    Attributes:
        honours_keys: Whether requests with the same `Idempotency-Key` make their effects once. A
            repeat gets the first answer, and a batch that broke off goes on; other fields with
            the same key are refused with 409.
        unique: Fields whose values no two effects of a kind may share. A second one is refused with
            409, as for a refund. None by default.
        lag_s: Seconds after which an effect is listed; infinite for a service that lists nothing.
        renamed: The field that `schema_drift` renames, and its new name.
        late_s: Seconds after which a late request takes effect.
        tail_s: The least and the most of them for `timeout_late_tail`, whose delay is drawn
            log-uniformly.
        seed: Draws that delay.
        retry_after_s: Seconds for which `rate_limit` refuses.
        hold_s: Seconds for which a connection without an answer is held, then closed. The timeout
            of a caller should be shorter.
    """

    honours_keys: bool = True
    unique: Sequence[str] = ()
    lag_s: float = 0.0
    renamed: tuple[str, str] = ("invoice", "invoice_id")
    late_s: float = 90.0
    tail_s: tuple[float, float] = (40.0, 7200.0)
    seed: int = 0
    retry_after_s: float = 20.0
    hold_s: float = 60.0

    def delay_s(self, fault: Fault) -> float:
        """Return the seconds after which a late request takes effect."""
        if fault is not Fault.TIMEOUT_LATE_TAIL:
            return self.late_s
        least, most = map(math.log, self.tail_s)
        draws = random.Random(self.seed)  # noqa: S311  # it draws no secret
        return math.exp(draws.uniform(least, most))
