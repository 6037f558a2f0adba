"""Run the code blocks of `docs/trusted-tools.md`."""

import pytest

from perdure.testing import ScriptedModel, call, calls, says

from .conftest import Tell


@pytest.mark.slow
async def test_agent_with_trusted_tools_calculates_and_reads(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder with orders; the model is offered the tools on the page, and those that need
    neither approval nor network are called.
    """
    asked = calls(
        call("calculate", expression="3 * 15.60"), call("now"), call("read_file", path="march.md")
    )
    model = ScriptedModel(asked, says("46.80"))
    async with tell("trusted-tools") as story:
        (story.terminal.folder / "orders").mkdir()
        (story.terminal.folder / "orders/march.md").write_text(
            "3 packets at 15.60\n", encoding="utf-8"
        )
        monkeypatch.chdir(story.terminal.folder)
        client = await story.works(await story.defining("clerk"), model)
        report = await client.run("clerk", "What were the orders of March?")

    files = ["list_files", "search_files", "read_file", "write_file"]
    assert [tool.name for tool in model.requests[0].tools] == [
        *files,
        "fetch",
        "now",
        "calculate",
        "run_program",
    ]
    results = report.steps[0].results
    assert [result.is_error for result in results] == [False] * 3
    assert "46.8" in results[0].content
    assert "Europe/Berlin" in results[1].content
    assert "3 packets" in results[2].content
