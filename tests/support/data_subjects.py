"""A task queue of its own with a store of keys, for tests of data subjects."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from perdure import Agent, tool
from perdure.activities.provider import ModelRequest, Provider
from perdure.clients import AgentClient
from perdure.temporal.connect import connect_local
from perdure.temporal.encryption import key_stores
from perdure.temporal.encryption.hiding import VARIABLE
from perdure.temporal.encryption.keys import new_entry
from perdure.temporal.encryption.sqlite_keys import SqliteKeys
from perdure.testing import ByTask, ScriptedModel, call, calls, says
from perdure.values.answers import ModelAnswer
from perdure.worker import AgentWorker


@tool(requires_approval=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


PAYER = Agent(name="payer", model="scripted:payer", tools=[pay])


class Pays(ByTask):
    """A model that calls the tool, and is done once there is its result."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        roles = [message.role for message in request.messages if message.role != "user"]
        is_done = roles[-1:] == ["tool"]
        return await ScriptedModel(
            says("done") if is_done else calls(call("pay", to="anna"))
        ).complete(request)


class Home:
    """A task queue with a worker for it, and the store of keys."""

    def __init__(self, address: str, store: SqliteKeys, folder: Path) -> None:
        self.address, self.store, self.folder = address, store, folder
        self.id = secrets.token_hex(6)
        self.subject = f"customer-{self.id}"

    def worker(self, model: Provider | None = None) -> AgentWorker:
        """A worker whose model asks for approval, unless it says something else."""
        return AgentWorker(
            PAYER, task_queue=f"test-{self.id}", providers={"scripted": model or Pays({})}
        )

    async def client(self) -> AgentClient:
        """A connection of its own, with no key in memory."""
        return AgentClient.from_temporal(
            await connect_local(self.address), task_queue=f"test-{self.id}"
        )

    def away(self, *, is_away: bool) -> None:
        """Take the store away, or bring it back."""
        here, there = self.folder / "keys", self.folder / "elsewhere"
        (here if is_away else there).rename(there if is_away else here)


@pytest.fixture
def home(perdure_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A store of keys in a folder that can go away."""
    (tmp_path / "keys").mkdir()
    path = str(tmp_path / "keys/subjects.sqlite")
    monkeypatch.setenv(VARIABLE, new_entry("k1"))
    monkeypatch.setenv(key_stores.VARIABLE, path)
    return Home(perdure_server, SqliteKeys(path), tmp_path)
