"""Run the program of `docs/recipes/nightly-report.md`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure import UserMessage
from perdure.errors import LLMRefusedError
from perdure.testing import FunctionModel, ModelRequest, Reply, call, calls, fails, says

from ..support.docs.until import until
from .conftest import Tell

LETTERS = {"a": "The heating is broken.", "b": "Refuse me."}


@pytest.mark.slow  # two commands
@pytest.mark.accepts("D71")
async def test_report_is_written_at_night_as_the_page_says(
    tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each letter is read once, though the tool is called twice; one that fails is named."""
    (tmp_path / "letters").mkdir()
    for name, text in LETTERS.items():
        (tmp_path / "letters" / f"{name}.txt").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    read: list[str] = []

    def answer(request: ModelRequest) -> Reply:
        last = request.messages[-1]
        if request.response_schema:
            read.append(last.text if isinstance(last, UserMessage) else "again")
            if read[-1] == LETTERS["b"]:
                return fails(LLMRefusedError("no"))
            return says(json.dumps({"summary": "It is cold", "days_left": 2}))
        if sum(one.role == "tool" for one in request.messages) < 2:
            return calls(call("read_letters"))
        return says(request.messages[-1].results[0].content)  # type: ignore[union-attr]

    async with tell("recipes/nightly-report") as story:
        monkeypatch.setenv("TEMPORAL_ADDRESS", story.terminal.environment["TEMPORAL_ADDRESS"])
        client = await story.works(await story.defining("app"), FunctionModel(answer))
        await story.through("The program")

        async def written() -> str | None:
            found = list((tmp_path / "reports").glob("nightly-*.md"))
            return found[0].read_text(encoding="utf-8") if found else None

        report = await until(written, "a report")
        await client.schedule("nightly").delete()

    assert sorted(read) == sorted(LETTERS.values())
    assert sorted(json.loads(report)) == ["a: It is cold, 2 days left", "b: not read"]
