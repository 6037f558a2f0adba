"""The page in Chromium: turns, calls and sessions are followed and acted on by clicks and keys."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from perdure import Agent, Budget, Context, RequestOptions, UserMessage, tool
from perdure.clients import AgentClient
from perdure.clients.gateway import one_token
from perdure.events import Decided, TurnStarted
from perdure.temporal.names import TURN
from perdure.temporal.payloads import pack
from perdure.testing import ByTask, ScriptedModel, call, calls, says, slowly
from perdure.toolboxes import asking
from perdure.turn.wire import TurnRequest
from perdure.values.tasks import Task
from perdure.worker import AgentWorker

from ...conftest import Runtime
from ...support.banking import Bank, payer, pays, refunder
from ...support.browser import PHONE, WIDTHS, Watched, opened
from ...support.gateway.pages import (
    CARD,
    TOKEN,
    confirm,
    has,
    page_of,
    press,
    priced,
    problems,
    show,
)
from ...support.gateway.served import by_name, served
from ...support.jobs import Service, deployer

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

PAID: list[int] = []
HOSTILE = (
    "<script>alert(1)</script><img src='http://evil.example/x.png' onerror='alert(2)'>"
    "<b>bold</b> \x1b[31mred\x1b[0m \u202egnorw\u202c \u200bjavascript:alert(3) "
)
LINE = "x" * 100_000


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    PAID.append(euros)
    return f"paid {euros} euros"


@tool
def look_up(text: str) -> str:
    """Look something up."""
    return text


DESK = Agent(name="desk", model="main", tools=[refund, look_up], instructions="Be kind.")
EDITOR = Agent(name="editor", model="main", delegates=["desk"])
SPENDER = Agent(
    name="spender", model="main", tools=[look_up], max_iterations=1, on_exhausted="pause"
)


def refunds(*answers: str, euros: int = 40) -> ScriptedModel:
    """A model that wants to pay back, and then answers."""
    return ScriptedModel(
        calls(call("refund", euros=euros), text="I would like to pay."),
        *(says(answer) for answer in answers),
    )


@pytest.mark.accepts("H60", "H62")
@pytest.mark.slow
async def test_turn_is_followed_and_approved_by_clicks(runtime: Runtime, chromium: Browser) -> None:
    """From the list to the answer, with the text as it comes; nothing is asked of another host."""
    async with page_of(runtime, chromium, refunds("It is paid."), DESK) as (client, _, watched):
        turn = await client.start(
            "desk", "Lost.\nIn the post.", id="page-1", budget=Budget(usd="1"), live=True
        )
        page = watched.page
        await page.get_by_role("link", name="Lost. In the post.").click()
        await has(page, "I would like to pay.")
        await has(page, "In the post.")
        await page.locator(CARD).get_by_role("button", name="Approve").click()
        await has(page, "It is paid.")
        await page.locator(".badge.good").first.wait_for()
        report = await turn.result()
        link = await page.get_by_role("link", name="Temporal UI").get_attribute("href")

        assert report.output == "It is paid."
        assert watched.said == []
        assert "page-1" in (link or "")


@pytest.mark.slow
@pytest.mark.accepts("T55")
async def test_call_of_unknown_outcome_is_settled_by_a_click(
    runtime: Runtime, chromium: Browser
) -> None:
    """The card says that the call was made, and why its outcome is unknown."""

    @tool(on_unknown="pause")
    def pay(invoice: str) -> str:
        """Pay an invoice."""
        raise httpx.ReadTimeout("no answer in 5 s")

    clerk = Agent(name="clerk", model="main", tools=[pay])
    model = ScriptedModel(calls(call("pay", invoice="i-1")), says("Done."))
    async with page_of(runtime, chromium, model, clerk) as (client, _, watched):
        page = watched.page
        turn = await client.start("clerk", "pay", id="page-settle")
        await show(page, "turns", turn.id)
        await page.locator(CARD).get_by_text("was made, and its outcome is unknown").wait_for()
        card = await page.locator(CARD).inner_text()
        await page.get_by_label("Result of pay").fill("payment 7")
        await press(page, "It took effect")
        await has(page, "settled: it took effect")
        report = await turn.result()

    assert "no answer in 5 s" in card
    assert "Approve" not in card
    [result] = report.steps[0].results
    assert "it has taken effect: payment 7" in result.content
    assert watched.said == []


@pytest.mark.slow
@pytest.mark.accepts("J11")
async def test_questions_are_answered_by_clicks(runtime: Runtime, chromium: Browser) -> None:
    """Options are buttons, a schema is a form, and what it does not show is JSON."""
    form = {
        "type": "object",
        "properties": {
            "euros": {"type": "integer", "minimum": 1},
            "urgent": {"type": "boolean"},
            "kind": {"enum": ["new", "known"]},
            "note": {"type": "string"},
            "lines": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["euros"],
    }
    clerk = Agent(name="clerk", model="main", toolboxes=[asking()])
    model = ScriptedModel(
        calls(call("ask", question="Which <b>one</b>?", options=["<i>red</i>", "green"])),
        calls(call("ask", question="How much?", schema=form)),
        calls(call("ask", question="Why?")),
        calls(call("ask", question="Who?")),
        says("Done."),
    )
    async with page_of(runtime, chromium, model, clerk) as (client, _, watched):
        page = watched.page
        turn = await client.start("clerk", "ask", id="page-ask")
        await show(page, "turns", turn.id)
        await page.locator(CARD).get_by_text("Which <b>one</b>?").wait_for()
        await press(page, "<i>red</i>")
        await page.locator(CARD).get_by_text("How much?").wait_for()
        await page.get_by_label("euros").fill("0")
        await press(page, "Answer")
        await page.locator(CARD).get_by_text("euros is 0, less than 1").wait_for()
        await page.get_by_label("euros").fill("40")
        await page.get_by_label("urgent").check()
        await page.get_by_label("kind").select_option("known")
        await page.get_by_label("lines").fill('["a", "b"]')
        await press(page, "Answer")
        await page.locator(CARD).get_by_text("Why?").wait_for()
        await page.get_by_label("Answer", exact=True).fill("because")
        await press(page, "Answer")
        await page.locator(CARD).get_by_text("Who?").wait_for()
        await page.get_by_label("Reason about ask").fill("not you")
        await press(page, "Decline")
        await has(page, "Done.")
        report = await turn.result()

    assert [step.results[0].content for step in report.steps if step.results] == [
        "<i>red</i>",
        '{"euros":40,"urgent":true,"kind":"known","lines":["a","b"]}',
        "because",
        "This question was not answered: it was declined: not you",
    ]
    assert len(watched.said) <= 1  # the browser tells of the answer that was refused


@pytest.mark.slow
@pytest.mark.accepts("T57")
async def test_call_of_a_turn_that_is_over_is_settled_by_a_click(
    runtime: Runtime, chromium: Browser
) -> None:
    """The card has two answers, and is gone then."""

    @tool
    def pay(invoice: str) -> str:
        """Pay an invoice."""
        raise httpx.ReadTimeout("no answer in 5 s")

    clerk = Agent(name="clerk", model="main", tools=[pay])
    model = ScriptedModel(calls(call("pay", invoice="i-1")), says("Perhaps."))
    async with page_of(runtime, chromium, model, clerk) as (client, _, watched):
        page = watched.page
        turn = await client.start("clerk", "pay", id="page-over")
        await turn.result()
        await show(page, "turns", turn.id)
        await page.locator(CARD).get_by_text("was made, and its outcome is unknown").wait_for()
        card = await page.locator(CARD).inner_text()
        await page.get_by_label("Result of pay").fill("payment 7")
        await press(page, "It took effect")
        await page.locator(CARD).wait_for(state="detached")
        report = await turn.result()

    assert "no answer in 5 s" in card
    assert "the turn has ended" in card
    assert "Make it again" not in card
    assert report.unsettled == ()
    assert watched.said == []


@pytest.mark.slow
@pytest.mark.accepts("H64", "T62")
async def test_effect_is_taken_back_by_a_click(runtime: Runtime, chromium: Browser) -> None:
    """A dialog says what that means, and the page goes to the turn that does it."""
    bank = Bank()
    clerk = Agent(name="clerk", model="main", tools=[payer(bank, undo=refunder(bank))])
    model = ScriptedModel(pays(), says("Paid."))
    async with page_of(runtime, chromium, model, clerk) as (client, _, watched):
        page = watched.page
        turn = await client.start("clerk", "pay", id="page-undo")
        await turn.result()
        await show(page, "turns", turn.id)
        effects = page.get_by_role("region", name="Effects")
        await effects.get_by_text("done").wait_for()
        await effects.get_by_role("button", name="Undo").click()
        await page.get_by_role("dialog").get_by_text("A turn of its own").wait_for()
        await page.get_by_role("dialog").get_by_role("button", name="Undo").click()
        await has(page, "was taken back")
        await show(page, "turns", turn.id)
        await effects.get_by_text("taken back").wait_for()
        count = await effects.get_by_role("button", name="Undo").count()

    assert count == 0
    assert [refunded for refunded, _ in bank.refunds] == ["i-1"]


@pytest.mark.slow
@pytest.mark.accepts("H61")
async def test_turn_is_steered_topped_up_cancelled_forked_and_resumed_by_clicks(
    runtime: Runtime, chromium: Browser
) -> None:
    """Each says before what it costs, and the new turns are shown."""
    model = ByTask({"one": refunds("No refund.", "And more."), "two": refunds("Now it works.")})
    async with page_of(runtime, chromium, model, DESK) as (client, _, watched):
        page = watched.page
        turn = await client.start("desk", "one", id="page-2", budget=Budget(usd="1"))
        await show(page, "turns", turn.id)
        await press(page, "Steer")
        steered = await confirm(page, "Send", text="Do not pay.")
        await has(page, "Do not pay.")
        await press(page, "Top up")
        paid = await confirm(page, "Add", usd="0.5")
        await has(page, "of $1.50")
        await has(page, "waits for approval")
        await press(page, "Steer")
        offered = await page.get_by_role("dialog").get_by_role("checkbox").count()
        await page.keyboard.press("Escape")
        [wait] = (await turn.status()).waits
        card = page.locator(CARD)
        await card.get_by_role("textbox").fill("too much")
        async with page.expect_request("**/deny") as denied:
            await card.get_by_role("button", name="Deny").click()
        sent = (await denied.value).post_data_json
        await has(page, "No refund.")
        await press(page, "Fork")
        forked = await confirm(page, "Fork", say="And now?")
        await page.wait_for_url("**/page-2~1")
        await has(page, "And more.")
        other = await client.start("desk", "two", id="page-3", budget=Budget(usd="1"))
        await show(page, "turns", other.id)
        await has(page, "waits for approval")
        await press(page, "Cancel")
        cancelled = await confirm(page, "Cancel the turn", reason="not today")
        await page.locator(".badge.calm").first.wait_for()
        await press(page, "Resume")
        resumed = await confirm(page, "Resume")
        await page.wait_for_url("**/page-3~1")
        await has(page, "Now it works.")
        facts = [one.fact async for one in turn.events()]

        assert wait.call is not None
        assert sent == {
            "call_id": wait.call.call_id,
            "token": wait.call.token,
            "reason": "too much",
        }
        assert offered == 1  # to stop a model call, and not to deny calls that are not shown
        assert "within the budget" in steered
        assert "Now $1.00" in paid
        assert "at most $1.50" in forked
        assert "stay spent" in cancelled
        assert "at most $1.00" in resumed
        [decided] = [one for one in facts if isinstance(one, Decided)]
        assert (decided.decision.reason, decided.decision.by) == ("too much", "operator")
        assert watched.said == []


@pytest.mark.slow
@pytest.mark.accepts("H151", "H152")
async def test_turn_is_started_with_labels_context_and_options_by_clicks(
    runtime: Runtime, chromium: Browser
) -> None:
    """They are folded; a label that is none is refused in the dialog, which keeps the values."""
    async with page_of(runtime, chromium, refunds("Paid."), DESK) as (client, _, watched):
        page = watched.page
        await press(page, "Start a turn")
        dialog = page.get_by_role("dialog")
        folded = await dialog.locator("[name=labels]").is_visible()
        await dialog.get_by_text("Labels, context and options").click()
        fields = {
            "agent": "desk",
            "task": "Refund it.",
            "labels": "customer=4711\nbroken",
            "context": "They are a good customer.",
            "context_name": "memory",
            "allowed_tools": "refund, look_up",
            "deadline": "30",
            "max_iterations": "7",
            "max_output_tokens": "900",
            "temperature": "0,5",
        }
        for name, value in fields.items():
            await dialog.locator(f"[name={name}]").fill(value)
        await dialog.locator("[name=tool_choice]").select_option("auto")
        await dialog.get_by_role("button", name="Start", exact=True).click()
        await dialog.get_by_text("A label is name=value").wait_for()
        widths = await page.evaluate(WIDTHS)
        await confirm(page, "Start", labels="customer=4711\nroom=2 a")
        await has(page, "waits for approval")
        await page.locator(CARD).get_by_role("button", name="Approve").click()
        await has(page, "approved by operator")
        turn_id = page.url.partition("#/turns/")[2]
        facts = [one.fact async for one in client.turn(turn_id).events()]

    [started] = [one for one in facts if isinstance(one, TurnStarted)]
    request = started.request
    assert not folded
    assert widths[0] == widths[1]
    assert request.labels == {"customer": "4711", "room": "2 a"}
    assert request.context == Context(blocks={"memory": "They are a good customer."})
    assert request.allowed_tools == ("refund", "look_up")
    assert request.deadline == timedelta(minutes=30)
    assert request.max_iterations == 7
    assert request.options == RequestOptions(
        temperature=0.5, max_output_tokens=900, tool_choice="auto"
    )
    assert watched.said == []


@pytest.mark.slow
@pytest.mark.accepts("H62")
async def test_arguments_are_edited_and_sent_as_they_were_written(
    runtime: Runtime, chromium: Browser
) -> None:
    """A number that JavaScript would round keeps its digits; what is not JSON is refused."""
    euros = 2**60 + 1
    PAID.clear()
    async with page_of(runtime, chromium, refunds("Done.", euros=euros), DESK) as (
        client,
        _,
        watched,
    ):
        page = watched.page
        turn = await client.start("desk", "Lost.", id="page-4")
        await page.get_by_role("link", name="Inbox").click()
        card = page.locator(CARD)
        await card.get_by_text(str(euros)).wait_for()
        await press(page, "Edit arguments")
        area = card.get_by_role("textbox", name="Arguments of refund")
        shown = await area.input_value()
        await area.fill("{euros")
        await press(page, "Approve these")
        await card.get_by_text("not a JSON object").wait_for()
        await area.fill(shown.replace(str(euros), str(euros + 2)))
        await press(page, "Approve these")
        report = await turn.result()
        await page.get_by_text("No call waits for a decision.").wait_for()

        assert json.loads(shown) == {"euros": euros}
        assert report.output == "Done."
        assert [euros + 2] == PAID
        assert watched.said == []


@pytest.mark.slow
@pytest.mark.accepts("J25")
async def test_inbox_has_a_call_that_is_done_elsewhere(runtime: Runtime, chromium: Browser) -> None:
    """With the job, but without a button, until its result has come."""
    service = Service()
    model = ScriptedModel(calls(call("deploy", target="shop")), says("done"))
    async with page_of(runtime, chromium, model, deployer(service)) as (client, _, watched):
        page = watched.page
        turn = await client.start("deployer", "Deploy.", id="page-job")
        token = await service.token()
        await page.get_by_role("link", name="Inbox").click()
        card = page.get_by_role("article", name="Call of deploy is done elsewhere")
        await card.get_by_text("deploy: job-shop").wait_for()
        shown, buttons = await card.inner_text(), await card.get_by_role("button").count()
        await client.finish_call(token, "v42")
        await turn.result()
        await card.wait_for(state="detached")

        assert "given up" in shown
        assert buttons == 0
        assert watched.said == []


@pytest.mark.slow
@pytest.mark.accepts("H63")
async def test_texts_of_models_and_tools_stay_text_and_fit(
    runtime: Runtime, chromium: Browser
) -> None:
    """Markup, escape sequences, other directions of writing and endless lines: nothing runs,
    nothing is fetched, and nothing overflows.
    """
    model = ScriptedModel(
        calls(call("look_up", text=HOSTILE + LINE), text=HOSTILE),
        calls(call("refund", euros=1), text=LINE),
        says(HOSTILE + LINE),
    )
    async with page_of(runtime, chromium, model, DESK, options={"viewport": PHONE}) as (
        client,
        base,
        watched,
    ):
        page = watched.page
        labels = {"<i>": "<script>alert(4)</script>"}
        turn = await client.start("desk", HOSTILE, id="page-<b>5", labels=labels)
        widths = []
        await has(page, "<script>alert(1)</script>")
        widths.append(await page.evaluate(WIDTHS))
        await show(page, "inbox", "")
        await page.goto(f"{base}/ui/#/inbox")
        await page.locator(CARD).wait_for()
        widths.append(await page.evaluate(WIDTHS))
        await page.goto(f"{base}/ui/#/turns/page-%3Cb%3E5")
        await page.locator(CARD).get_by_role("button", name="Approve").click()
        await page.locator("article.assistant", has_text="\\u001b[31mred").wait_for()
        for summary in await page.locator("details.entry > summary").all():
            await summary.click()
        await page.get_by_role("button", name="more characters").first.click()
        widths.append(await page.evaluate(WIDTHS))
        text = await page.locator("main").inner_text()
        inside = await page.evaluate(
            "document.querySelectorAll('main script, main img, main b, main i').length"
        )
        await turn.result()

        assert widths == [[PHONE["width"]] * 2] * 3
        assert "<img src='http://evil.example/x.png'" in text
        assert "\\u202egnorw" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert LINE[:50_000] in text.replace("\n", "")
        assert inside == 0
        assert watched.said == []


@pytest.mark.slow
@pytest.mark.accepts("H64")
async def test_token_is_asked_for_once_and_stays_in_the_tab(
    runtime: Runtime, chromium: Browser
) -> None:
    """A wrong one is asked for again; a caller who may only read gets no buttons; no address has
    it.
    """
    async with page_of(runtime, chromium, refunds(), DESK, auth=by_name) as (client, _, watched):
        page = watched.page
        turn = await client.start("desk", "Lost.", id="@acme/page-6")
        field = page.get_by_label("Token")
        for name in ("nobody", "rita"):
            await field.fill(name)
            await page.keyboard.press("Enter")
            if name == "nobody":
                await page.get_by_text("no valid bearer token").wait_for()
        await page.get_by_role("link", name="Lost.").click()
        await page.get_by_text("You may look, but not decide.").wait_for()
        actions = await page.get_by_role("group", name="Actions").get_by_role("button").count()
        await page.reload()
        await page.get_by_text("You may look, but not decide.").wait_for()
        stored = await page.evaluate("[{...sessionStorage}, {...localStorage}, document.cookie]")
        who = await page.locator("#who").inner_text()
        await turn.cancel()

        assert actions == 0
        assert stored == [{"perdure.token": "rita"}, {}, ""]
        assert who.startswith("rita@example.com · acme")
        assert not any("rita" in url or "nobody" in url for url in watched.asked)
        assert await page.get_by_role("link", name="Temporal UI").count() == 0


@pytest.mark.slow
@pytest.mark.accepts("H127")
async def test_token_of_the_printed_address_is_taken_out_of_it(
    runtime: Runtime, chromium: Browser
) -> None:
    """Also where the page is open already. Nothing is asked with it in an address, and a link with
    the token of a tenant is not followed into its turns.
    """
    async with page_of(runtime, chromium, refunds(), DESK) as (_, _, watched):
        page = watched.page
        await page.locator("#who", has_text="operator").wait_for()
        first = page.url
        for other in ("wrong", TOKEN):
            await page.evaluate(f"location.hash = '#token={other}'")
            await page.locator("#token" if other == "wrong" else "#who").first.wait_for()
        await page.get_by_role("heading", name="Turns").wait_for()
        last, stored = page.url, await page.evaluate("({...sessionStorage})")
        asked = [url for url in watched.asked if TOKEN in url.partition("#")[0]]
    async with page_of(runtime, chromium, refunds(), DESK, auth=by_name) as (_, base, watched):
        await watched.page.goto(f"{base}/ui/#token=anna")
        await watched.page.get_by_label("Token").wait_for()
        left, address = await watched.page.evaluate("({...sessionStorage})"), watched.page.url

    assert [url.rpartition("/ui/")[2] for url in (first, last, address)] == [""] * 3
    assert (stored, left) == ({"perdure.token": TOKEN}, {})
    assert asked == []


@contextlib.asynccontextmanager
async def furnished(
    runtime: Runtime, chromium: Browser, seen: str, **options: Any
) -> AsyncIterator[tuple[AgentClient, str, Watched]]:
    """A page with turns in several states, with delegates, and with a session.

    Their ids begin with `seen`.
    """
    model = {
        "desk": ByTask(
            {
                "waits": refunds(),
                "done": ScriptedModel(calls(call("look_up", text="a word")), says("Done.")),
                "Hello.": says_twice(),
                "delegated": refunds(),
            }
        ),
        "editor": ScriptedModel(calls(call("delegate_to_agent", agent="desk", task="delegated"))),
        "spender": ScriptedModel(calls(call("look_up", text="more")), says("At last.")),
    }
    async with page_of(runtime, chromium, model, DESK, EDITOR, SPENDER, options=options) as (
        client,
        base,
        watched,
    ):
        turns = [
            await client.start(agent, task, id=f"{seen}/{task}", budget=Budget(usd="1"))
            for agent, task in (
                ("desk", "waits"),
                ("desk", "done"),
                ("editor", "delegates"),
                ("spender", "paused"),
            )
        ]
        session = client.session(f"{seen}-session", DESK.name)
        await (await session.say("Hello.")).result()
        await turns[1].result()
        for turn in (turns[0], *turns[2:]):
            await turn.wait(60)
        try:
            yield client, base, watched
        finally:
            for turn in turns:
                await turn.cancel()
            await session.close()


def says_twice() -> ScriptedModel:
    """A model that answers two messages."""
    return ScriptedModel(says("Good morning."), says("Good evening."))


VIEWS = {
    "turns": "paused",
    "turns/seen/waits": "waits for approval",
    "turns/seen/done": "Done.",
    "turns/seen/delegates": "In the delegate",
    "turns/seen/paused": "Waits for iterations",
    "inbox": "waits for approval",
    "sessions": "-session",
    "sessions/seen-session": "Good morning.",
}


@pytest.mark.slow
@pytest.mark.accepts("H65")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_views_are_accessible_and_fit_a_phone(
    runtime: Runtime, chromium: Browser, scheme: str
) -> None:
    """Axe finds nothing serious, and at 390 pixels nothing overflows; dialogs too."""
    found = {}
    async with furnished(runtime, chromium, scheme, viewport=PHONE, color_scheme=scheme) as (
        _,
        base,
        watched,
    ):
        page = watched.page
        for view, text in VIEWS.items():
            await page.goto(f"{base}/ui/#/{view.replace('seen', scheme)}")
            await has(page, text)
            for summary in await page.locator("summary").all():
                await summary.click()
            found[view] = await problems(page)
        await page.goto(f"{base}/ui/#/turns/{scheme}/waits")
        for button in ("Steer", "Top up", "Fork", "Cancel"):
            await press(page, button)
            found[button] = await problems(page)
            await page.keyboard.press("Escape")
        await press(page, "Edit arguments")
        found["edit"] = await problems(page)

        assert {view: one for view, one in found.items() if one} == {}
        assert watched.said == []


@pytest.mark.slow
@pytest.mark.accepts("H66")
async def test_call_is_approved_by_keyboard_alone(runtime: Runtime, chromium: Browser) -> None:
    """Tab reaches everything with a focus that is seen, and Enter acts."""
    async with page_of(runtime, chromium, refunds("It is paid."), DESK) as (client, _, watched):
        page = watched.page
        turn = await client.start("desk", "By keys.", id="page-7")
        await page.get_by_role("link", name="By keys.").wait_for()
        await tab_to(page, "Inbox")
        await page.keyboard.press("Enter")
        await page.locator(CARD, has_text="page-7").wait_for()
        await tab_to(page, "Approve", within="page-7")
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        await page.keyboard.press("Enter")
        report = await turn.result()

        assert outline == "solid"
        assert report.output == "It is paid."


async def tab_to(page: Page, name: str, *, within: str = "") -> None:
    """Press Tab until the element with this text, in a card with that one, has the focus."""
    for _ in range(200):
        await page.keyboard.press("Tab")
        focused = await page.evaluate("document.activeElement.textContent")
        card = await page.evaluate("document.activeElement.closest('article')?.textContent ?? ''")
        if focused.strip().startswith(name) and within in card:
            return
    raise AssertionError(f"Tab does not reach {name!r}")


@pytest.mark.slow
@pytest.mark.accepts("H67", "H68", "H69")
async def test_session_is_a_chat_and_a_tree_shows_its_money(
    runtime: Runtime, chromium: Browser
) -> None:
    """The inbox has the calls of all turns, of delegates too; the timeline has what happened."""
    async with furnished(runtime, chromium, "seen") as (_, base, watched):
        page = watched.page
        await page.goto(f"{base}/ui/#/inbox")
        own = page.locator(CARD, has_text="seen/")  # other tests of the server have calls that wait
        await own.nth(1).wait_for()
        calls_ = await own.count()
        await page.goto(f"{base}/ui/#/turns/seen/delegates")
        child = page.locator(".is-child > summary")
        await child.get_by_text("waits for approval").wait_for()
        await child.get_by_text("$").wait_for()
        delegate = await child.inner_text()
        await page.get_by_role("group", name="Trace of desk").get_by_text("I would like").wait_for()
        trace = await page.get_by_role("group", name="Trace", exact=True).inner_text()
        bars = await page.locator(".is-child .track .span:visible").count()
        await page.goto(f"{base}/ui/#/sessions/seen-session")
        await has(page, "Good morning.")
        await page.get_by_role("textbox", name="Message").fill("Again.")
        await page.keyboard.press("Enter")
        await has(page, "Good evening.")
        await page.goto(f"{base}/ui/#/turns/seen/paused")
        await page.locator(CARD).get_by_role("button", name="Top up").click()
        await confirm(page, "Add", iterations="3")
        await has(page, "At last.")

        assert calls_ == 2
        assert delegate.startswith("↳desk delegated")
        assert "delegate_to_agent" in trace
        assert bars >= 3  # of the delegate, and of its calls inside
        assert watched.said == []


@pytest.mark.slow
@pytest.mark.accepts("H75")
async def test_session_of_a_model_without_a_price_has_an_unknown_price(
    runtime: Runtime, chromium: Browser
) -> None:
    """For the session, and for its turn: it was not free."""
    providers = {"unpriced": ScriptedModel("Hi.")}
    worker = AgentWorker(DESK, models={"main": "unpriced:main"}, providers=providers)
    async with (
        runtime(worker) as client,
        served(client, one_token(TOKEN)) as http,
    ):
        session = client.session("page-unpriced", DESK.name)
        await (await session.say("Hello.")).result()
        base = str(http.base_url).rstrip("/")
        address = f"{base}/ui/#token={TOKEN}"
        async with opened(chromium, address, wait_until="load") as watched:
            page = watched.page
            await show(page, "sessions", session.id)
            await has(page, "Hi.")
            await page.get_by_text("spent unknown price").click()
            await page.locator("main .amount").first.wait_for()
            amounts = await page.locator("main .amount").all_inner_texts()
            text = await page.locator("main").inner_text()
        await session.close()

    assert (amounts[0], amounts[-1]) == ("unknown price, no limit", "unknown price")
    assert "$0.00" not in text


@pytest.mark.slow
@pytest.mark.accepts("H67")
async def test_queue_and_budget_of_a_session_are_changed_by_clicks(
    runtime: Runtime, chromium: Browser
) -> None:
    """Messages wait while a turn runs, are taken out, and are read after an interruption."""
    model = ScriptedModel(calls(call("refund", euros=40)), says("Read."))
    async with page_of(runtime, chromium, model, DESK) as (client, base, watched):
        page = watched.page
        await page.goto(f"{base}/ui/#/sessions")
        await press(page, "Begin a session")
        await confirm(page, "Begin", agent="desk", id="page-chat", text="One.", usd="1")
        await page.locator(CARD).wait_for()
        for text in ("Two.", "Three."):
            await page.get_by_role("textbox", name="Message").fill(text)
            await press(page, "Send")
            await page.locator(".queued", has_text=text).wait_for()
        await page.locator(".queued", has_text="Two.").get_by_role("button").click()
        await page.locator(".queued", has_text="Two.").wait_for(state="detached")
        await press(page, "Top up")
        paid = await confirm(page, "Add", usd="2")
        await has(page, "of $3.00")
        await press(page, "Interrupt")
        await confirm(page, "Interrupt", reason="wait")
        await press(page, "Read the queue")
        await has(page, "Read.")
        await press(page, "Close")
        await confirm(page, "Close")
        await page.locator(".badge", has_text="closed").wait_for()
        messages = await client.session("page-chat").messages()

        assert "Now $1.00" in paid
        assert [one.text for one in messages if isinstance(one, UserMessage)][-1] == "Three."
        assert watched.said == []


@pytest.mark.slow
@pytest.mark.accepts("H70", "H74")
async def test_stream_goes_on_when_the_gateway_is_back(runtime: Runtime, chromium: Browser) -> None:
    """The page says that the connection is lost, and nothing is shown twice; a problem says what to
    do.
    """
    async with runtime(priced(DESK), model=refunds("It is paid.")) as client:
        turn = await client.start("desk", "Lost.", id="page-8", budget=Budget(usd="1"))
        async with contextlib.AsyncExitStack() as stack:
            async with served(client, one_token(TOKEN)) as http:
                base = str(http.base_url).rstrip("/")
                watched = await stack.enter_async_context(
                    opened(chromium, f"{base}/ui/#token={TOKEN}", wait_until="load")
                )
                page = watched.page
                await show(page, "turns", turn.id)
                await page.locator(CARD).wait_for()
            await has(page, "The connection is lost")
            await page.locator(CARD).get_by_role("button", name="Approve").click()
            await has(page, "Check that the gateway runs")
            async with served(client, one_token(TOKEN), port=httpx.URL(base).port or 0):
                await page.locator(CARD).get_by_role("button", name="Approve").click()
                await has(page, "It is paid.")
                tasks = await page.locator("article.user").count()
                answers = await page.locator("article.assistant", has_text="It is paid.").count()
                await press(page, "Fork")
                dialog = page.get_by_role("dialog")
                await dialog.locator("[name=usd]").fill("much")
                await dialog.get_by_role("button", name="Fork").click()
                refused = await dialog.get_by_role("alert").inner_text()
                await page.keyboard.press("Escape")
                await show(page, "turns", "page-nothing")
                await has(page, "It may be too old")
                alerts = await page.get_by_role("alert").count()
        await turn.result()

        assert (tasks, answers) == (1, 1)
        assert "'much' is not a number" in refused
        assert "Correct it and try again." in refused
        assert alerts == 1


@pytest.mark.slow
@pytest.mark.accepts("H60")
async def test_text_is_shown_while_it_is_generated(runtime: Runtime, chromium: Browser) -> None:
    """Before the answer is recorded, and once when it is."""
    model = ScriptedModel(slowly("one two three", pause=timedelta(seconds=1)))
    async with page_of(runtime, chromium, model, DESK) as (client, _, watched):
        page = watched.page
        turn = await client.start("desk", "Count.", id="page-9", live=True)
        await show(page, "turns", turn.id)
        await page.locator("article.draft", has_text="one").wait_for()
        before = (await turn.status()).outcome
        await page.locator("article.assistant:not(.draft)", has_text="one two three").wait_for()
        texts = await page.locator("article.assistant", has_text="one two three").count()
        await turn.result()

        assert before is None
        assert texts == 1
        assert watched.said == []


@pytest.mark.slow
@pytest.mark.accepts("H70")
async def test_hidden_page_has_no_stream_and_goes_on_when_it_is_seen(
    runtime: Runtime, chromium: Browser
) -> None:
    """Browsers open six connections to a host, so tabs that are not seen must not hold them."""
    async with page_of(runtime, chromium, refunds("It is paid."), DESK) as (client, _, watched):
        page = watched.page
        turn = await client.start("desk", "Lost.", id="page-10")
        await show(page, "turns", turn.id)
        await page.locator(CARD).wait_for()
        async with page.expect_event("requestfailed", lambda one: "/events" in one.url):
            await be_hidden(page, "true")
        [pending] = await turn.pending_approvals()
        await turn.approve(pending)
        await turn.result()
        before = await page.get_by_text("It is paid.").count()
        await be_hidden(page, "false")
        await has(page, "It is paid.")
        tasks = await page.locator("article.user").count()
        answers = await page.locator("article.assistant", has_text="It is paid.").count()

        assert (before, tasks, answers) == (0, 1, 1)
        assert watched.said == []


async def be_hidden(page: Page, value: str) -> None:
    """Tell the page that it is hidden, or seen again."""
    await page.evaluate(
        f"Object.defineProperty(document, 'hidden', {{get: () => {value}, configurable: true}});"
        " document.dispatchEvent(new Event('visibilitychange'))"
    )


@pytest.mark.slow
@pytest.mark.accepts("H112")
async def test_turn_whose_id_a_browser_would_resolve_is_not_acted_on(
    runtime: Runtime, chromium: Browser
) -> None:
    """The page asks nothing, so the turn with the resolved id is neither shown nor denied."""
    models = ByTask({"mine": refunds("Paid."), "theirs": refunds("Refused.")})
    unsafe = "@evil/../@acme/payroll"
    async with page_of(runtime, chromium, models, DESK) as (client, _, watched):
        theirs = await client.start("desk", "theirs", id="@acme/payroll")
        request = TurnRequest(agent="desk", task=Task(content="mine"))
        raw = await client.temporal.start_workflow(
            TURN, pack(request, "the input"), id=unsafe, task_queue=client.task_queue
        )
        while not (await client.turn(unsafe).pending_approvals()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        page = watched.page
        await page.evaluate("location.hash = '#/inbox'")
        card = page.locator(CARD).filter(has_text=unsafe)
        await card.get_by_role("button", name="Deny").click()
        await card.get_by_text("which a browser would resolve").wait_for()
        await show(page, "turns", unsafe)
        await has(page, "which a browser would resolve")
        waits = (await theirs.status()).waits
        await raw.cancel()
        await theirs.cancel()

        assert [one.call.tool for one in waits if one.call] == ["refund"]
