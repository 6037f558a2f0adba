"""Wraps all keys of data subjects with the first key of the environment, after it has changed.

Each key is replaced by itself and stays the same key, so processes that use it notice nothing, and
a run that was killed is completed by another one.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from perdure.base import Value
from perdure.temporal.encryption.data_keys import SubjectKeys
from perdure.temporal.encryption.key_stores import StoredKey


class UnreadableKey(Value):
    """A key of a data subject that cannot be unwrapped, and was left as it is.

    Attributes:
        subject: The data subject.
        id: The id of the key.
        master: The name of the key of the environment that it is wrapped with.
        why: `missing` if this process has no key of that name; `wrong` if the key of that name does
            not fit.
    """

    subject: str
    id: str
    master: str
    why: Literal["missing", "wrong"]


class RewrapReceipt(Value):
    """What was done to the keys of a store.

    Attributes:
        key_store: The store.
        master: The name of the key of the environment that keys are wrapped with now.
        rewrapped: The number of keys that were wrapped with another key before.
        current: The number of keys that were wrapped with it already.
        unreadable: The keys that could not be unwrapped.
    """

    key_store: str
    master: str
    rewrapped: int
    current: int
    unreadable: tuple[UnreadableKey, ...] = ()


async def rewrap(keys: SubjectKeys) -> RewrapReceipt:
    """Wrap all keys that are not erased with the first key of the environment.

    Raises:
        ConfigurationError: The store cannot list its keys.
        KeyStoreError: The store does not answer; what was wrapped until then stays so.
    """
    done, unreadable = Counter[bool](), list[UnreadableKey]()
    first = keys.masters[0]
    async for key in keys.in_use():
        if await keys.rewrap(key):
            done[key.master == first] += 1
        else:
            unreadable.append(_unreadable(key, keys))
    return RewrapReceipt(
        key_store=keys.store.name,
        master=first,
        rewrapped=done[False],
        current=done[True],
        unreadable=tuple(unreadable),
    )


def _unreadable(key: StoredKey, keys: SubjectKeys) -> UnreadableKey:
    why: Literal["missing", "wrong"] = "wrong" if key.master in keys.masters else "missing"
    return UnreadableKey(subject=key.subject, id=key.id, master=key.master, why=why)
