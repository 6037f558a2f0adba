"""Words that are planted wherever a caller, a model or a tool can put one: with encryption on, none
can be read in the database of the server, in what it lists and describes, in logs and in spans.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.clients import AgentClient
from perdure.temporal.connect import connect_local
from perdure.temporal.encryption.hiding import LABELS_VARIABLE, VARIABLE
from perdure.temporal.encryption.keys import new_entry
from perdure.testing import local_runtime
from perdure.worker import AgentWorker
from perdure.worker.dev.server import DevServer

from ..support.e2e.planted_words import AGENT, CANARY, described, lives, replies
from ..support.receiver import SECRET, Receiver, receiving
from ..support.telemetry import Traces


async def everything(folder: Path, receiver: Receiver) -> tuple[dict[str, bytes], Traces]:
    """Run all of it on a server with a file, and return what can be read where."""
    traces = Traces()
    worker = AgentWorker(AGENT, telemetry=traces.telemetry())
    server = DevServer(folder=folder, port=0, ui=False)
    await server.start()
    try:
        address = server.address.address
        async with local_runtime(worker, model=replies(), address=address) as client:
            ids = await lives(client, receiver.url("/done"))
            await receiver.until("/done")
            with pytest.MonkeyPatch.context() as without:
                without.delenv(VARIABLE, raising=False)
                stranger = AgentClient.from_temporal(await connect_local(address))
            told = await described(stranger, ids)
    finally:
        await server.stop()
    return {"the server's answers": told, "the database": database(folder)}, traces


def database(folder: Path) -> bytes:
    """The files of the server."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver of webhooks."""
    with receiving() as found:
        monkeypatch.setenv("PERDURE_WEBHOOK_HOSTS", f"private:127.0.0.1:{found.port}")
        monkeypatch.setenv("PERDURE_WEBHOOK_SECRETS", SECRET)
        yield found


@pytest.mark.accepts("G4", "G13")
@pytest.mark.parametrize("encrypted", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_no_word_can_be_read_with_encryption(
    encrypted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    hook: Receiver,
) -> None:
    """Without it, nearly all of them can, so the search finds what there is."""
    caplog.set_level(logging.INFO)
    if encrypted:
        monkeypatch.setenv(VARIABLE, new_entry("k1"))
        monkeypatch.setenv(LABELS_VARIABLE, "no")
    else:
        monkeypatch.delenv(VARIABLE, raising=False)
    places, traces = await everything(tmp_path, hook)
    places["logs"] = "\n".join(
        repr(vars(record)) + record.getMessage() for record in caplog.records
    ).encode()
    places["spans"] = "".join(span.to_json() for span in traces.spans).encode()
    found = {place: sorted(set(CANARY.findall(data))) for place, data in places.items()}

    if encrypted:
        # the log says who decided, as the page of encryption says
        assert found == {**{place: [] for place in places}, "logs": [b"canaryapprover"]}
        assert len(places["the database"]) > 100_000
    else:
        assert len(found["the database"]) > 25
