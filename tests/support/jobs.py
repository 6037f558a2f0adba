"""A service whose jobs take their time, and agents whose tools start them."""

import asyncio
from collections.abc import Callable
from typing import Any

from perdure import Agent, ToolContext, tool
from perdure.agents.tools import Tool
from perdure.clients import Turn, TurnStatus

from .spending import SOON_S


class Service:
    """Records what its callers asked for."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.started: list[str] = []
        self.polled: list[str] = []
        self.cancelled: list[str] = []
        self.answers: dict[str, Any] = {}

    def poll(self, handle: str, target: str) -> Any:
        """Return the answer of a job, once there is one."""
        self.polled.append(handle)
        answer = self.answers.get(target)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self, handle: str) -> None:
        """Cancel a job."""
        self.cancelled.append(handle)

    def tool(
        self, name: str = "deploy", hold: Callable[[], Any] | None = None, **options: Any
    ) -> Tool:
        """A tool that starts a job; `hold` is awaited before it returns."""

        async def start(target: str, ctx: ToolContext[Any]) -> str:
            self.started.append(target)
            self.tokens.append(ctx.call_token)
            if hold is not None:
                await hold()
            return f"job-{target}"

        given = {"name": name, "description": "Deploy something.", "later": True, **options}
        return tool(**given)(start)

    async def token(self, number: int = 1) -> str:
        """The token of the nth job that was started."""
        await _until(lambda: len(self.tokens) >= number)
        return self.tokens[number - 1]

    async def until_polled(self, times: int) -> None:
        """Wait until jobs were polled so many times."""
        await _until(lambda: len(self.polled) >= times)


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not is_so():  # noqa: ASYNC110 - a tool's thread makes it so
            await asyncio.sleep(0.02)


def deployer(service: Service, tools: list[Any] | None = None, **fields: Any) -> Agent:
    """An agent whose tool starts a job."""
    given = {"name": "deployer", "model": "scripted:deployer"}
    return Agent(**{**given, "tools": tools or [service.tool()], **fields})


async def until_waiting(turn: Turn[Any], kind: str = "job") -> TurnStatus:
    """The status of a turn once it waits for a job."""
    async with asyncio.timeout(SOON_S):
        while True:
            status = await turn.status()
            if any(wait.kind == kind for wait in status.waits):
                return status
            await asyncio.sleep(0.05)
