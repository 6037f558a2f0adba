"""What `perdure hooks` prints: the hooks of a file, and what a recorded delivery would start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from perdure import errors
from perdure.clients.gateway.hooks.definitions import Hook
from perdure.clients.gateway.hooks.starting import HookStart
from perdure.clients.gateway.hooks.templates import Delivery
from perdure.clients.gateway.inputs import document_of
from perdure.clients.gateway.problems import RefusedError


def addresses(hooks: Sequence[Hook], url: str) -> Iterator[tuple[str, str]]:
    """Yield the address of each hook, and what its deliveries do."""
    for hook in hooks:
        table = hook.table
        if table.call is not None:
            what = "sends the result of a call"
        elif table.key is not None:
            what = f"sends the event {table.event} to the turns that wait for it"
        elif table.event is not None:
            what = f"sends the event {table.event} to a turn"
        elif table.session is None:
            what = f"starts a turn of {table.agent}"
        else:
            what = f"sends a message to a session of {table.agent}"
        yield f"{url.rstrip('/')}{table.path}", f"{table.verify}: {what}"


def outcome(hooks: Sequence[Hook], path: str, headers: Mapping[str, str], body: Path) -> str:
    """Return what a delivery would start, in words. Its signature is not verified.

    Args:
        hooks: The hooks.
        path: The path of one of them.
        headers: The headers of the delivery, by any names.
        body: The file with its body.

    Raises:
        InvalidRequestError: There is no such hook, the file cannot be read, or the delivery does
            not fit the hook.
    """
    hook = next((each for each in hooks if each.table.path == path), None)
    if hook is None:
        paths = ", ".join(each.table.path for each in hooks)
        raise errors.InvalidRequestError(f"there is no hook {path!r}; the file has {paths}")
    try:
        return _outcome(
            hook, {name.lower(): value for name, value in headers.items()}, body.read_bytes()
        )
    except OSError as error:
        raise errors.InvalidRequestError(f"{body} cannot be read: {error.strerror}") from None
    except RefusedError as error:
        raise errors.InvalidRequestError(f"{error.status} {error.code}: {error.detail}") from None


def _outcome(hook: Hook, headers: Mapping[str, str], body: bytes) -> str:
    document = document_of(body)
    if hook.scheme.handshake(headers, document) is not None:
        return "nothing: it is a test of the address, which is answered"
    delivery = Delivery(hook.delivery_id(headers, document), headers, document)
    if not hook.takes(delivery):
        return "nothing: the filter leaves it out"
    start, table = HookStart.of(hook, delivery), hook.table
    if start.call is not None:
        what = f"{'failure' if start.has_failed else 'result'} of a call"
    elif start.key is not None:
        what = f"event {table.event} {start.id} of {start.key}"
    elif start.target is None:
        what = f"turn {start.id} of {table.agent}"
    elif table.event is None:
        what = f"message {start.id} to session {start.target} of {table.agent}"
    else:
        what = f"event {table.event} {start.id} to turn {start.target}"
    return f"{what}:\n\n{start.text}"
