"""The default providers of a worker, and their parsing of Retry-After."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from perdure.activities.provider import ModelRequest
from perdure.activities.providers import defaults, ollama_url
from perdure.activities.providers.http import LONGEST_WAIT_S, retry_after_s
from perdure.testing.stub_provider import StubProvider
from perdure.values.messages import UserMessage


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1"),
        ("gpu.example", "http://gpu.example:11434/v1"),
        ("https://gpu.example/", "https://gpu.example/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        (":8080", "http://127.0.0.1:8080/v1"),
        ("[::1]:11434", "http://[::1]:11434/v1"),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(host: str, url: str) -> None:
    """The variable of Ollama's users works."""
    assert ollama_url(host) == url


@pytest.mark.parametrize(
    ("name", "prefix", "path"),
    [
        ("openai", "OPENAI", "base_url"),
        ("openai-responses", "OPENAI", "base_url"),
        ("anthropic", "ANTHROPIC", "anthropic_url"),
    ],
)
async def test_address_and_key_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str, prefix: str, path: str
) -> None:
    """The variables of the vendors' own libraries work."""
    with StubProvider([{"text": "hi"}]) as stub:
        monkeypatch.setenv(f"{prefix}_BASE_URL", getattr(stub, path))
        monkeypatch.setenv(f"{prefix}_API_KEY", "sk-test")
        provider = defaults()[name]
        answer = await provider.complete(
            ModelRequest(model="m", messages=(UserMessage.of("hello"),))
        )
        await provider.close()

    assert (answer.message.text, answer.model) == ("hi", "m")
    assert "sk-test" in repr(stub.headers)


@pytest.mark.parametrize("value", ["", "soon", "nan", "inf", "-1", "9" * 5000 + "x"])
def test_retry_after_that_makes_no_sense_is_none(value: str) -> None:
    """The workflow then uses its own pause."""
    assert retry_after_s({"retry-after": value}) is None


def test_retry_after_is_a_day_at_most() -> None:
    """A number that is too large for a timer does not reach the workflow."""
    assert retry_after_s({"retry-after": "1e300"}) == LONGEST_WAIT_S


def test_retry_after_as_a_date_is_seconds_from_now() -> None:
    """A date in the past means at once."""
    now = datetime.now(UTC)

    later = retry_after_s(
        {"retry-after": format_datetime(now + timedelta(seconds=90), usegmt=True)}
    )
    past = retry_after_s({"retry-after": format_datetime(now - timedelta(seconds=90), usegmt=True)})

    assert later is not None
    assert 85 < later <= 90
    assert past == 0


@pytest.mark.slow
def test_importing_the_providers_does_not_load_httpx() -> None:
    """It would delay the start of every worker."""
    code = "import sys, perdure.activities.providers; sys.exit('httpx' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
