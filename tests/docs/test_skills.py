"""Run the code blocks of `docs/skills.md`."""

from pathlib import Path

import pytest

from perdure.testing import ScriptedModel, call, calls, says

from .conftest import Tell


@pytest.mark.slow
async def test_skills_are_read_from_folders_as_the_page_says(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the drawing, with the file on the page; one skill is in the prompt, the other
    is loaded on demand.
    """
    loads = calls(
        call("price_of", item="tea"),
        call("load_skill", name="letters"),
        call("load_skill", name="letters", path="refund.md"),
    )
    model = ScriptedModel(loads, says("30 euros"))
    async with tell("skills") as story:
        monkeypatch.chdir(story.terminal.folder)
        agent = await story.defining("agent")
        drawn = await story.up_to("Folders with a SKILL.md", "text")
        shown = await story.up_to("Folders with a SKILL.md", "text")
        texts = {
            "refunds/SKILL.md": "Refund what was paid.",
            "letters/SKILL.md": shown.text,
            "letters/refund.md": "Dear customer,",
        }
        for path, text in texts.items():
            file = Path("skills") / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        client = await story.works(agent, model)
        report = await client.run("shopkeeper", "What is tea?")

    assert tree(story.terminal.folder / "skills") == drawn.text.splitlines()
    prompt = model.requests[0].system
    assert prompt.startswith("You answer customers.\n\nLook prices up; never guess one.\n\n")
    assert "How letters to customers are written" in prompt
    assert "Refund what was paid." in prompt
    assert "Address the customer by name." not in prompt
    told = [result.content for result in report.steps[0].results]
    assert (told[0], "Address the customer by name." in told[1], told[2]) == (
        "30 euros",
        True,
        "Dear customer,",
    )


def tree(folder: Path) -> list[str]:
    """The files of a folder of skills, in the form of the drawing on the page."""
    lines = [f"{folder.name}/"]
    folders = sorted(folder.iterdir())
    for index, inner in enumerate(folders):
        last = index == len(folders) - 1
        lines.append(f"{'└' if last else '├'}── {inner.name}/")
        files = sorted(inner.iterdir())
        lines += [
            f"{' ' if last else '│'}   {'└' if file == files[-1] else '├'}── {file.name}"
            for file in files
        ]
    return lines
