"""What several commands share: the connection, the form of the output, and the sender's name.

Like the commands, it imports its modules when it runs, so that the help is quick.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.clients.cli.exits import DONE

if TYPE_CHECKING:
    from perdure.clients.client import AgentClient


@dataclass(frozen=True)
class Display:
    """The form in which a command prints its result, or a turn.

    Attributes:
        as_json: Whether to print lines of JSON.
        full: Whether to print task, arguments and results in full.
        stream: Whether to print the model's text while it is generated.
        address: The server's address from the command line, for suggested commands.
        outlives: Whether workers of the turn remain after the command, so that it can be resumed.
    """

    as_json: bool = False
    full: bool = False
    stream: bool = False
    address: str | None = None
    outlives: bool = True

    def report(self, value: dict[str, Any], text: str) -> int:
        """Print a result as a line of JSON, or as a note for people, and return the exit code."""
        from perdure.clients.cli.drawing import json_lines
        from perdure.clients.cli.drawing.screen import note

        if self.as_json:
            json_lines.tell(value)
        else:
            note(text)
        return DONE


async def connected(address: str | None, task_queue: str | None = None) -> AgentClient:
    """Return a client for a server, and for the default task queue unless one is given.

    Raises:
        ServerUnreachableError: No server answers at the address.
    """
    from perdure.clients.client import AgentClient
    from perdure.temporal.acts import sources
    from perdure.temporal.names import TASK_QUEUE

    sources.go_through("cli")
    return await AgentClient.connect(address, task_queue=task_queue or TASK_QUEUE)


def sender(name: str | None) -> str | None:
    """Return the name to record: `--by`, `PERDURE_BY` or the login name; None if none is valid."""
    import contextlib
    import getpass
    import os

    from perdure import validation

    if name is None:
        name = os.environ.get("PERDURE_BY") or None
    if name is not None:
        return name
    with contextlib.suppress(OSError, KeyError, ImportError):
        login = getpass.getuser()
        return login if validation.accepts(validation.By, login) else None
    return None


def json_of(text: str | None) -> Any:
    """Return the value of an argument that is JSON; None without one.

    Raises:
        InvalidRequestError: It is no JSON.
    """
    from perdure import errors
    from perdure.text import word

    try:
        return None if text is None else json.loads(text)
    except ValueError:
        raise errors.InvalidRequestError(
            f"the body is no JSON: {word(text or '')}; text is written as '\"text\"'"
        ) from None
