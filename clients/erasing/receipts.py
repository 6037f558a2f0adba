"""The receipt of an erasure: what was done at each place, and what will be done by others."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from perdure.base import Value

How = Literal["cancelled", "terminated", "deleted"]


class ErasedKey(Value):
    """A key of the data subject that was destroyed.

    Attributes:
        id: Its id, which is in everything that it has encrypted.
        created_at: The time at which it was made.
        erased_at: The time at which it was destroyed.
    """

    id: str
    created_at: datetime
    erased_at: datetime


class EndedWork(Value):
    """Something that was open, and that the erasure has ended.

    Attributes:
        id: The id of the workflow or of the schedule.
        type: The type of the workflow, such as `AgentTurn`; `schedule` for a schedule.
        how: What was done.
    """

    id: str
    type: str
    how: How


class ErasedPlace(Value):
    """A place where something of the data subject is, or may be.

    Attributes:
        place: Its name, such as `histories`.
        count: How many things there are; None if that is not known.
        what: What was done, what remains, and who removes it.
        until: The time at which the last of it is gone or out of use; None if that is not known.
    """

    place: str
    count: int | None = None
    what: str
    until: datetime | None = None


class ErasureReceipt(Value):
    """The receipt of an erasure.

    Attributes:
        subject: The data subject.
        namespace: The namespace of Temporal in which it was erased.
        key_store: The store whose keys were destroyed.
        by: The person or program that erased it; None without a name.
        began_at: The time at which the erasure began.
        erased_at: The time from which on nothing of the subject can be decrypted.
        again: Whether all of its keys had been destroyed before.
        keys: The keys that are destroyed, those of earlier erasures included.
        ended: What was open, and was ended.
        places: Each place, with what was done and what retention will do.
    """

    subject: str
    namespace: str
    key_store: str
    by: str | None = None
    began_at: datetime
    erased_at: datetime
    again: bool = False
    keys: tuple[ErasedKey, ...]
    ended: tuple[EndedWork, ...] = ()
    places: tuple[ErasedPlace, ...]
