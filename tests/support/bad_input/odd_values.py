"""Values that are too large or odd, and starts with raw input."""

import json
import secrets
from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from perdure.clients import Turn

from ...conftest import RecordingClient

BIG = 3_000_000


def raw(data: bytes, encoding: bytes | None = b"json/plain") -> RawValue:
    return RawValue(Payload(metadata={} if encoding is None else {"encoding": encoding}, data=data))


def plain(request: dict[str, Any]) -> RawValue:
    """JSON as other languages write it; Python would escape all non-ASCII characters."""
    return raw(json.dumps(request, ensure_ascii=False).encode())


async def started(client: RecordingClient, args: Sequence[object]) -> Turn:
    """A turn that is started with Temporal's own client."""
    turn_id = f"raw/{secrets.token_hex(6)}"
    await client.temporal.start_workflow(
        "AgentTurn", args=args, id=turn_id, task_queue=client.task_queue
    )
    return client.turn(turn_id)
