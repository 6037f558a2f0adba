"""A cache that discards the least recently used values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A cache limited by the total weight of its values. The least recently used go first.

    It is not thread-safe.

    Args:
        most: The maximum total weight.
        weigh: Returns the weight of a value; by default each weighs 1.
        keeps_newest: Whether to keep the newest value even if it alone exceeds `most`.
    """

    def __init__(
        self,
        max_weight: int,
        weigh: Callable[[V], int] = lambda _: 1,
        *,
        keeps_newest: bool = False,
    ) -> None:
        self._most = max_weight
        self._weigh = weigh
        self._least = int(keeps_newest)
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight = 0

    def __len__(self) -> int:
        """The number of values."""
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the value of a key and mark it as used; None if there is none."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def put(self, key: K, value: V) -> None:
        """Store a value, replacing any value of the same key."""
        self.drop(key)
        weight = self._weigh(value)
        self._values[key] = value, weight
        self._weight += weight
        while self._weight > self._most and len(self._values) > self._least:
            self.drop(next(iter(self._values)))

    def drop(self, key: K) -> None:
        """Remove the value of a key, if the key has a value."""
        _, weight = self._values.pop(key, (None, 0))
        self._weight -= weight
