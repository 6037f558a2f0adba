"""The keys of data subjects: whether each is wrapped with the first key of the environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

from temporalio.client import Client

from perdure import errors
from perdure.temporal.encryption import data_keys
from perdure.text import counted
from perdure.worker.setup_checks import Finding

_SUBJECT = "keys of data subjects"


async def findings(client: Client) -> AsyncIterator[Finding]:
    """Yield what is wrong with the keys in the store, if there is a store."""
    keys = data_keys.of(client.data_converter.payload_codec)
    if keys is None:
        return
    try:
        wrapped = Counter([key.master async for key in keys.in_use()])
    except errors.ConfigurationError as error:
        yield Finding(_SUBJECT, "skipped", error.message)
        return
    except errors.KeyStoreError as error:
        yield Finding(_SUBJECT, "failed", error.message)
        return
    first, total = keys.masters[0], wrapped.total()
    old = {name: count for name, count in wrapped.items() if name != first}
    lacking = {name: count for name, count in old.items() if name not in keys.masters}
    if lacking:
        yield Finding(
            _SUBJECT,
            "failed",
            f"{_of(lacking, total)} in {keys.store.name} cannot be unwrapped here, so nobody reads"
            f" their subjects without {_named(lacking)}",
            "set the old key, behind the first, and run `perdure rewrap`",
        )
    elif old:
        yield Finding(
            _SUBJECT,
            "warning",
            f"{_of(old, total)} in {keys.store.name} still wrapped with {_named(old)}",
            f"`perdure rewrap` wraps them with {first!r}, so that the old key can be removed",
        )
    else:
        yield Finding(_SUBJECT, "ok", f"all {total} are wrapped with {first!r}")


def _of(counts: dict[str, int], total: int) -> str:
    return f"{sum(counts.values())} of {counted(total, 'key')}"


def _named(counts: dict[str, int]) -> str:
    return ", ".join(map(repr, sorted(counts)))
