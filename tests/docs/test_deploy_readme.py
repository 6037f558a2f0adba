"""Run the code blocks of `deploy/README.md`."""

import json
import re

import pytest

from perdure.worker import librarian

from ..support.docs.pages import ROOT
from .conftest import Tell


@pytest.mark.slow  # commands, and a worker of the whole documentation
async def test_librarian_answers_and_a_namespace_is_prepared(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the worker of the compose file; the derived image agrees with the Dockerfile that it is
    based on.
    """
    monkeypatch.setenv("PERDURE_ASK_FOLDER", str(ROOT / "docs"))
    async with tell("deploy/README.md") as story:
        await story.works(librarian.make())
        image = await story.up_to("An image with your agents", "dockerfile")

    lines = [line.split(" ", 1) for line in image.text.splitlines()]
    ours = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")
    page = (ROOT / "deploy/README.md").read_text(encoding="utf-8")
    (command,) = [json.loads(words) for name, words in lines if name == "CMD"]
    assert f"-t {lines[0][1]} ." in page
    assert [words for name, words in lines if name == "USER"][-1] == re.findall(
        r"^USER (\S+)", ours, re.MULTILINE
    )[-1]
    assert "/opt/perdure" in ours
    assert re.search(r"^WORKDIR /app", ours, re.MULTILINE)
    assert re.fullmatch(r"\w+:\w+", *command)
