"""The view of a turn: its trace with delegates inside, details, limits, words that are found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from perdure import Agent, Budget, Usage, tool
from perdure.testing import ByTask, ScriptedModel, call, calls, says

from ...conftest import Runtime
from ...support.gateway.pages import has, page_of, press, show
from ...support.speaking import Speaker

if TYPE_CHECKING:
    from playwright.async_api import Browser

USED = Usage(input_tokens=1_000, output_tokens=100)
ROWS = "main .log > .trace > .chunk > .entry > .line-of"
"""The rows of the turn itself."""
MARKDOWN = """# Found

Some **bold** and `code`, a [link](https://example.com/a), [no link](javascript:alert(1)).

- one
  1. nested
- two

| a | b |
|---|---|
| 1 | <b>2</b> |

![a picture](https://evil.example/x.png) <img src=x onerror=alert(2)>

```py
x = "*kept*"
```
"""


class Invoice(BaseModel):
    """What an invoice says."""

    number: int
    lines: list[str]


@tool
def look_up(text: str) -> str:
    """Look something up."""
    return f"found {text}" if text != "nothing" else "needle in a result"


@tool
def fails_always() -> str:
    """Fail."""
    raise ValueError("the service is closed")


WORKER = Agent(name="worker", model="main", tools=[look_up])
LEAD = Agent(
    name="lead",
    model="main",
    tools=[look_up, fails_always],
    delegates=["worker"],
    parallel_tools=True,
)
HOST = Agent(name="host", model="main", handoffs=["clerk"])
CLERK = Agent(name="clerk", model="main", tools=[look_up], output=Invoice, max_iterations=3)


@pytest.mark.slow
@pytest.mark.accepts("H200", "H201", "H202", "H203", "H224")
async def test_turn_is_a_trace_with_a_row_for_each_call_and_its_delegates_inside(
    runtime: Runtime, chromium: Browser
) -> None:
    """Each row has the beginning of arguments and result, its time and cost; the head is there
    after one request, and what is chosen is shown beside the list.
    """
    model = {
        "lead": ScriptedModel(
            calls(
                call("delegate_to_agent", agent="worker", task="first"),
                call("delegate_to_agent", agent="worker", task="second"),
                text="I ask two.",
                usage=USED,
            ),
            calls(call("look_up", text="a word"), call("fails_always"), usage=USED),
            says("All done.", usage=USED),
        ),
        "worker": ByTask(
            {
                name: ScriptedModel(
                    calls(call("look_up", text=f"the {name} thing")), says(f"{name} done")
                )
                for name in ("first", "second")
            }
        ),
    }
    async with page_of(runtime, chromium, model, LEAD, WORKER) as (client, _, watched):
        page = watched.page
        turn = await client.start("lead", "Go.", id="trace-1", budget=Budget(usd="1"))
        await turn.result()
        watched.asked.clear()
        await show(page, "turns", turn.id)
        await page.get_by_role("group", name="Trace of worker").nth(1).wait_for()
        await page.locator(".is-child >> text=worker").nth(1).wait_for()
        await page.locator(".is-call").nth(5).wait_for()
        own = [one.split("?")[0].split("/v1/turns/")[-1] for one in watched.asked]
        texts = [re.sub(r"\s+", " ", one) for one in await page.locator(ROWS).all_inner_texts()]
        await page.locator(".is-call summary .name", has_text="fails_always").click()
        panel = page.get_by_role("region", name="Details of fails_always")
        detail = await panel.inner_text()
        await page.keyboard.press("Escape")
        await panel.wait_for(state="detached")
        bars = await page.evaluate(BARS)

    assert own.count("trace-1") == 1
    assert own.count("trace-1/events") == 1
    assert own.index("trace-1") < own.index("trace-1/events")  # the head does not wait for them
    [look] = [text for text in texts if text.startswith("⚙look_up")]
    assert '{"text": "a word"}' in look
    assert "→ found a word" in look
    assert re.search(r"\d s", look)
    [first] = [text for text in texts if "Step 1" in text]
    assert "I ask two." in first
    assert "$0.0045" in first
    assert "the service is closed" in detail
    assert "Arguments" in detail
    assert all(start >= 0 and start + width <= 101 for start, width in bars)
    assert watched.said == []


BARS = """() => [...document.querySelectorAll('.track .span')].filter((one) => !one.hidden)
  .map((one) => {
    const [bar, track] = [one.getBoundingClientRect(), one.parentElement.getBoundingClientRect()];
    return [(bar.left - track.left) / track.width * 100, (bar.width - 2) / track.width * 100];
  })"""
"""The place and the width of each bar, in parts of a hundred of its track."""


@pytest.mark.slow
@pytest.mark.accepts("E193")
async def test_text_of_a_delegate_that_runs_is_at_its_row(
    runtime: Runtime, chromium: Browser
) -> None:
    """Its last words while it is generated, in the part of the row that is seen; the result takes
    their place in the end.
    """
    long = "The sun was seen over the mountains in the morning, and at noon. "
    speaker = Speaker(f"{long}It is raining ", "in Bern.")
    model = {
        "lead": ScriptedModel(
            calls(call("delegate_to_agent", agent="worker", task="look")), says("Rain.")
        ),
        "worker": speaker,
    }
    async with page_of(runtime, chromium, model, LEAD, WORKER) as (client, _, watched):
        page = watched.page
        turn = await client.start("lead", "Go.", id="trace-text", live=True)
        try:
            await show(page, "turns", turn.id)
            child = page.locator(ROWS).filter(has_text="worker").last
            said = child.get_by_text("It is raining")
            await said.wait_for()
            running = await child.inner_text()
            is_cut = await said.evaluate(
                "one => one.parentElement.scrollWidth > one.parentElement.clientWidth"
            )
            speaker.go_on()
            await child.get_by_text("look → The sun was seen").wait_for()
        finally:
            speaker.go_on()
        await turn.result()

    assert "in Bern" not in running
    assert not is_cut


@pytest.mark.slow
@pytest.mark.accepts("H204", "H205", "H206")
async def test_typed_answer_is_fields_and_a_used_up_limit_says_so(
    runtime: Runtime, chromium: Browser
) -> None:
    """Numbers keep their digits. A completed handoff is done. The reason is in words of the page
    and not of a program, and Resume takes more steps.
    """
    number = 2**60 + 1
    model = {
        "host": ScriptedModel(calls(call("hand_over", agent="clerk", message="go on"))),
        "clerk": ByTask(
            {
                "typed": ScriptedModel(says(f'{{"number": {number}, "lines": ["a", "b"]}}')),
                "loops": ScriptedModel(*[calls(call("look_up", text="more"))] * 9),
            }
        ),
    }
    async with page_of(runtime, chromium, model, HOST, CLERK) as (client, _, watched):
        page = watched.page
        typed = await client.start("clerk", "typed", id="trace-typed")
        loops = await client.start("clerk", "loops", id="trace-loops")
        moved = await client.start("host", "typed", id="trace-moved")
        await typed.result()
        await loops.wait(60)
        await show(page, "turns", typed.id)
        answer = page.locator("article.assistant .fields")
        await answer.wait_for()
        names = await answer.locator("dt").all_inner_texts()
        values = await answer.locator("dd").all_inner_texts()
        await press(page, "Show as JSON")
        await answer.get_by_text(f'"number": {number}').wait_for()
        await show(page, "turns", moved.id)
        await page.locator(".is-call .state", has_text="handed over to clerk").wait_for()
        await show(page, "turns", loops.id)
        await has(page, "All steps are used up")
        await page.get_by_text("3 of 3 used up").wait_for()
        said = await page.locator("main > div").first.inner_text()
        await press(page, "Resume")
        offered = await page.get_by_role("dialog").get_by_label("At most so many steps").count()

    assert (names, values[0]) == (["number", "lines"], str(number))
    assert "turn.resume" not in said
    assert offered == 1
    assert watched.said == []


@pytest.mark.slow
@pytest.mark.accepts("H207", "H208")
async def test_words_are_found_in_folded_rows_and_all_rows_open(
    runtime: Runtime, chromium: Browser
) -> None:
    """By the key / and by the keys of a tree."""
    model = ScriptedModel(
        calls(call("look_up", text="nothing"), text=MARKDOWN),
        *[calls(call("look_up", text=f"word {n}")) for n in range(3)],
        says("Done."),
    )
    worker = Agent(name="worker", model="main", tools=[look_up])
    async with page_of(runtime, chromium, model, worker) as (client, base, watched):
        page = watched.page
        turn = await client.start("worker", "Look.", id="trace-find")
        await turn.result()
        await show(page, "turns", turn.id)
        await has(page, "answer")
        await page.keyboard.press("/")
        await page.keyboard.type("needle")
        await has(page, "1 of 1")
        panel = page.get_by_role("region", name="Details of look_up")
        await panel.get_by_text("needle in a result").wait_for()
        await page.locator(".is-model > summary").first.focus()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowRight")
        await page.locator(".is-call[open] .inside").get_by_text("needle in a result").wait_for()
        await press(page, "Open all")
        await page.locator("details.entry:not([open])").first.wait_for(state="detached")
        step = page.locator(".is-model .markdown").first
        await step.locator("table").wait_for()
        shape = await step.evaluate(
            "(one) => ['strong', 'code', 'ul', 'ol', 'table', 'pre', 'img', 'b', 'script', 'h1']"
            ".map((tag) => one.querySelectorAll(tag).length)"
        )
        links = await step.locator("a").evaluate_all("(all) => all.map((one) => one.href)")
        text = await step.inner_text()

    assert shape == [2, 2, 1, 1, 1, 1, 0, 0, 0, 0]
    assert links == ["https://example.com/a"]
    assert "<b>2</b>" in text
    assert "[image: a picture]" in text
    assert "<img src=x onerror=alert(2)>" in text
    assert 'x = "*kept*"' in text
    assert watched.elsewhere(base) == []
    assert watched.said == []
