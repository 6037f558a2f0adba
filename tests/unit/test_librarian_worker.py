"""The environment of the worker of `perdure ask`."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import errors
from perdure.activities.provider import ModelRequest
from perdure.testing.stub_provider import StubProvider
from perdure.values.messages import UserMessage
from perdure.worker import librarian


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder, and no key."""
    monkeypatch.setenv("PERDURE_ASK_FOLDER", str(tmp_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.mark.parametrize("name", ["openai", "openai-responses"])
async def test_base_url_is_where_the_model_is_asked(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With either of OpenAI's APIs, and without a key if there is none."""
    with StubProvider([{"text": "hi"}]) as stub:
        monkeypatch.setenv("PERDURE_ASK_BASE_URL", stub.base_url)
        monkeypatch.setenv("PERDURE_ASK_MODEL", f"{name}:m")
        provider = librarian.make().all_providers()[name]
        answer = await provider.complete(ModelRequest(model="m", messages=(UserMessage.of("go"),)))
        await provider.close()

    assert (answer.message.text, len(stub.requests)) == ("hi", 1)


@pytest.mark.parametrize("model", ["anthropic:m", "ollama:m", "offline:librarian"])
def test_base_url_with_another_provider_is_refused(
    monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """Otherwise the documents would go to another provider than the given one."""
    monkeypatch.setenv("PERDURE_ASK_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("PERDURE_ASK_MODEL", model)
    with pytest.raises(errors.ConfigurationError, match=model):
        librarian.make()
