"""The LRU cache."""

from __future__ import annotations

from perdure.temporal.recent import Recent


def kept(cache: Recent[str, int], keys: str = "abcd") -> str:
    """The keys that are still there."""
    return "".join(key for key in keys if cache.get(key) is not None)


def test_value_that_was_used_longest_ago_is_forgotten() -> None:
    """Reading a value counts as use."""
    cache = Recent[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.get("a")
    cache.put("c", 3)

    assert kept(cache) == "ac"
    assert len(cache) == 2


def test_values_have_weights() -> None:
    """A replaced value no longer counts."""
    cache = Recent[str, int](10, lambda value: value)
    cache.put("a", 6)
    cache.put("a", 4)
    cache.put("b", 6)
    assert kept(cache) == "ab"

    cache.put("c", 5)
    assert kept(cache) == "c"
    cache.drop("c")
    cache.drop("c")
    cache.put("d", 10)
    assert kept(cache) == "d"


def test_value_that_alone_is_too_heavy() -> None:
    """It is kept only if the newest value always is."""
    strict, lenient = (
        Recent[str, int](1, lambda value: value),
        Recent[str, int](1, lambda value: value, keeps_newest=True),
    )
    for cache in (strict, lenient):
        cache.put("a", 1)
        cache.put("b", 2)

    assert (kept(strict), kept(lenient)) == ("", "b")
