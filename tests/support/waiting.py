"""What the memo shows of a turn that waits."""

from typing import Any

from perdure.clients import AgentClient, Turn


async def memo_of(client: AgentClient, turn: Turn) -> dict[str, Any]:
    return dict(await (await client.temporal.get_workflow_handle(turn.id).describe()).memo())
