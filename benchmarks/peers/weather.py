"""The tool of `benchmarks.peers.interruptions`, in the versions of its deploys.

`WEATHER` is the version of a process, and `WEATHER_HOLDS` the city whose call takes long enough for
a kill. Each run writes a line with the version.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

INSTRUCTIONS = "Compare the weather in two cities."
TASK = "Where is it warmer, in Rome or in Oslo?"


async def seen(city: str) -> str:
    print(f"ran {city} {os.environ.get('WEATHER', 'before')}", flush=True)
    if os.environ.get("WEATHER_HOLDS") == city:
        await asyncio.sleep(600)
    return f"It is sunny in {city}."


async def before(city: str) -> str:
    """Look up the weather in a city."""
    return await seen(city)


async def renamed(place: str) -> str:
    """Look up the weather in a city."""
    return await seen(place)


async def added(city: str, unit: str = "celsius") -> str:
    """Look up the weather in a city."""
    return await seen(city)


async def described(city: str) -> str:
    """Look up today's weather in any city of the world."""
    return await seen(city)


VERSIONS = {version.__name__: version for version in (before, renamed, added, described)}


def weather() -> Callable[..., Awaitable[str]]:
    """The function of this process, under the name that all versions share."""
    function = VERSIONS[os.environ.get("WEATHER", "before")]
    function.__name__ = function.__qualname__ = "weather"
    return function
