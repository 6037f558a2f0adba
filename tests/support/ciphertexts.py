"""What can be decrypted of all that a server has, with some keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.client import Client

from perdure.temporal.encryption.codec import Encryption
from perdure.temporal.encryption.marks import is_encrypted, key_of

_HIDDEN = re.compile(r"encrypted:[^\"\s]+")


async def messages_of(client: Client) -> list[Message]:
    """Everything that the server tells of its workflows and schedules."""
    found: list[Message] = []
    async for run in client.list_workflows():
        handle = client.get_workflow_handle(run.id, run_id=run.run_id)
        found.append(run.raw_info)
        found.append((await handle.describe()).raw_description)
        found += [event async for event in handle.fetch_history_events()]
    async for listed in await client.list_schedules():
        found.append((await client.get_schedule_handle(listed.id).describe()).raw_description)
    return found


async def of_workflow(client: Client, workflow_id: str, run_id: str = "") -> list[Message]:
    """What the server tells of one workflow, or of one of its runs."""
    handle = client.get_workflow_handle(workflow_id, run_id=run_id or None)
    events = [event async for event in handle.fetch_history_events()]
    return [*events, (await handle.describe()).raw_description]


def keys_in(messages: list[Message]) -> set[str]:
    """The names of the keys of all that is encrypted in messages."""
    found = set[str]()
    for message in messages:
        for value in _leaves(message):
            if isinstance(value, str):
                found |= {text.split(":")[1] for text in _HIDDEN.findall(value)}
            elif is_encrypted(value):
                found.add(key_of(value))
    return found


async def decrypted(messages: list[Message], codec: Encryption) -> bytes:
    """What a codec makes of all payloads and texts in messages, and what is plain."""
    plain, payloads = list[bytes](), list[Payload]()
    for message in messages:
        plain.append(message.SerializeToString())
        for value in _leaves(message):
            if isinstance(value, Payload):
                payloads.append(value)
            else:
                plain += [codec.reveal(text).encode() for text in _HIDDEN.findall(value)]
    opened = await codec.decode(payloads)
    plain += [payload.data for payload in opened if not is_encrypted(payload)]
    return b"\n".join(plain)


def _leaves(message: Message) -> Iterator[Any]:
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            yield from [value] if isinstance(value, str) else value
        elif field.type != field.TYPE_MESSAGE:
            continue
        elif isinstance(value, Message):
            yield from _leaves(value)
        else:  # a list, or a map by its keys
            for item in value:
                one = value[item] if isinstance(item, str) else item
                if isinstance(one, Message):
                    yield from _leaves(one)
