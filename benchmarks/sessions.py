"""What a message of a session costs, compared with a turn by itself: `make -C benchmarks sessions`.

Both do the same job, alternately, on one worker. A message is measured from its sending to its
answer. Its history is that of its turn, and what the session's own grows by. Prints milliseconds
and bytes for the first messages of a session and for later ones, which begin with all messages of
those before.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from temporalio.client import Client

from benchmarks.bench import working
from benchmarks.measures import size
from perdure.clients import AgentClient, Session, Turn
from perdure.session.facts import TurnRecorded
from perdure.worker.dev.server import DevServer

MODULE, QUEUE = "benchmarks.with_sessions", "sessions"
SESSIONS, MESSAGES, WINDOW = 6, 20, 5
TASK = "4 1000 0"
"""Four tool calls with a result of 1,000 bytes each, and an answer."""


async def timed(start: Callable[[], Awaitable[Turn]]) -> tuple[float, Turn]:
    """Return the milliseconds of a turn from its start to its report."""
    began = time.perf_counter()
    turn = await start()
    await turn.result()
    return 1000 * (time.perf_counter() - began), turn


async def bytes_of(client: Client, workflow_id: str) -> int:
    return size(await client.get_workflow_handle(workflow_id).fetch_history())


def saying(session: Session) -> Callable[[], Awaitable[Turn]]:
    async def say() -> Turn:
        return await (await session.say(TASK)).turn()

    return say


async def recorded(session: Session, count: int) -> None:
    """Wait until the session has recorded so many turns."""
    async for event in session.events():
        if isinstance(event.fact, TurnRecorded):
            count -= 1
        if not count:
            return


async def main() -> None:
    """Run sessions and turns alternately, and print the ratios."""
    ratios: dict[str, dict[int, list[float]]] = {"time": {}, "history": {}}
    async with DevServer(folder=None, port=0, ui=False) as server:
        client = await AgentClient.connect(server.address.address, task_queue=QUEUE)
        async with working(MODULE, server.address.address, QUEUE):
            await timed(lambda: client.start("chat", TASK))
            for number in range(SESSIONS):
                session = client.session(f"session-{number}", "chat")
                before = 0
                for message in range(1, MESSAGES + 1):
                    own_ms, turn = await timed(lambda: client.start("chat", TASK))
                    ms, answered = await timed(saying(session))
                    await recorded(session, message)
                    after = await bytes_of(client.temporal, session.id)
                    grown = after - before + await bytes_of(client.temporal, answered.id)
                    before = after
                    own = await bytes_of(client.temporal, turn.id)
                    ratios["time"].setdefault(message, []).append(ms / own_ms)
                    ratios["history"].setdefault(message, []).append(grown / own)
    for what, figures in ratios.items():
        for name, first in (("first", 1), ("last", MESSAGES - WINDOW + 1)):
            values = [one for number in range(first, first + WINDOW) for one in figures[number]]
            print(f"{what:8} {name:5} {WINDOW} messages: {statistics.median(values):.2f} x")


if __name__ == "__main__":
    asyncio.run(main())
