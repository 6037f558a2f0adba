"""A turn whose worker is killed at random moments."""

import asyncio
import random

from .stories import Story, asks, says, use

STEPS = 6
PAUSE_S = 0.2
"""How long every model call and tool call takes, so that a kill finds each of them at work."""
CALLS = [
    use("fetch", f"fetch {n}", first_s=PAUSE_S)
    if n % 2
    else use("charge", f"charge {n}", takes_s=PAUSE_S)
    for n in range(1, STEPS)
]
REPLIES = [*(asks(call, delay_s=PAUSE_S) for call in CALLS), says("done", delay_s=PAUSE_S)]


async def kill_at_random(story: Story, moments: random.Random) -> None:
    """Kill the worker somewhere in the turn, and let another one go on: after a number of calls,
    and a fraction of the next.
    """
    worker = await story.worker()
    for _ in range(moments.choice([1, 1, 2])):
        so_far = len(story.log()) + len(story.journal())
        seen = moments.randrange(so_far, 2 * STEPS - 1)
        await story.calls_begun(seen)
        await asyncio.sleep(moments.uniform(0, 1.2 * PAUSE_S))
        worker = await story.replace(worker)
