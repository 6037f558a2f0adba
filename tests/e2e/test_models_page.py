"""Programs of `docs/models.md` run as they stand, in a process of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

from perdure.testing.stub_provider import StubProvider

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


def program(heading: str) -> str:
    """The first Python block under a heading."""
    found = re.search(rf"^## {heading}\n.*?```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


def test_model_is_asked_without_temporal() -> None:
    """Whole and as a stream, with a key from the environment; nothing but the answers is printed."""
    with StubProvider([{"text": "30 days."}]) as stub:
        environment = {**os.environ, "ANTHROPIC_BASE_URL": stub.anthropic_url, "ANTHROPIC_API_KEY": "key"}
        code = program("Asking a model without Temporal")
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("30 days. 5 0.000105\n30 days.end\n", "")
    assert [body["messages"][0]["content"][0]["text"] for body in stub.requests] == ["How long is the notice period?", "Say it in a poem."]


def test_worker_with_models_of_pydantic_ai_can_be_made() -> None:
    """Without keys and vendors' libraries, which are looked for with the first request."""
    code = program("Gemini, Bedrock, Groq, Mistral: by pydantic-ai") + "print(*app.providers)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("gemini bedrock\n", "")
