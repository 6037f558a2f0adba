"""A cache of the values that were used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key, up to a weight; those used longest ago are forgotten first.

    Threads that share one need a lock.

    Args:
        most: What all values may weigh together.
        weigh: The weight of a value; without it, each weighs 1.
        keeps_newest: Keep the newest value even if it alone weighs more than `most`.
    """

    def __init__(
        self, most: int, weigh: Callable[[V], int] = lambda _: 1, *, keeps_newest: bool = False
    ) -> None:
        self._most = most
        self._weigh = weigh
        self._least = int(keeps_newest)
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight = 0

    def __len__(self) -> int:
        """The number of values."""
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value of a key, which is now the one used last; None if there is none."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def put(self, key: K, value: V) -> None:
        """Keep a value, in place of another of its key."""
        self.drop(key)
        weight = self._weigh(value)
        self._values[key] = value, weight
        self._weight += weight
        while self._weight > self._most and len(self._values) > self._least:
            self.drop(next(iter(self._values)))

    def drop(self, key: K) -> None:
        """Forget the value of a key, if there is one."""
        _, weight = self._values.pop(key, (None, 0))
        self._weight -= weight
