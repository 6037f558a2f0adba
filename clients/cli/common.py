"""What several commands do: connect, and print their result.

Like the commands, it imports its modules when it runs, so that the help is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.clients.cli.exits import DONE

if TYPE_CHECKING:
    from perdure.clients.client import AgentClient


async def connected(address: str | None, task_queue: str | None = None) -> AgentClient:
    """Return a client for a server, and for the default task queue unless one is given.

    Raises:
        ServerUnreachableError: No server answers at the address.
    """
    from perdure.clients.client import AgentClient
    from perdure.temporal.names import TASK_QUEUE

    return await AgentClient.connect(address, task_queue=task_queue or TASK_QUEUE)


def tell(as_json: bool, value: dict[str, Any], words: str) -> int:
    """Print the result of a command: the value as a line of JSON, or the words as a note.

    Returns the exit code.
    """
    from perdure.clients.cli.drawing import json_lines
    from perdure.clients.cli.drawing.screen import note

    if as_json:
        json_lines.tell(value)
    else:
        note(words)
    return DONE
