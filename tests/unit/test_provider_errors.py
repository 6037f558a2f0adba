"""The tables of `docs/errors.md` about providers: the error for each response, over HTTP, and the
turn's next move.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import errors
from perdure.agents.definitions import AgentDefinition, Target
from perdure.errors import LLMError, PerdureError
from perdure.testing.stub_provider import StubReply
from perdure.turn.facts import AgentResolved, CallFailed, Fact, Scheduled, TurnStarted
from perdure.turn.fallback import Fallback
from perdure.turn.fold import fold
from perdure.turn.keys import AgentKey, ModelKey
from perdure.turn.situation import Situation
from perdure.turn.wire import ModelCall, TurnRequest
from perdure.values.tasks import Task

from ..support.loopback import ANTHROPIC, OPENAI, RESPONSES, VENDORS, Vendor

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
TABLES = {
    "OpenAI, chat completions and responses, and compatible servers": (OPENAI, RESPONSES),
    "OpenAI, responses only": (RESPONSES,),
    "Anthropic, messages": (ANTHROPIC,),
}
ROW = re.compile(
    r"^\| (?P<statuses>\d[\d, ]*) \| (?:`(?P<body>.+)` )?\| `(?P<error>\w+)` \| (?P<then>[a-z"
    r" ]+) \|$",
    re.MULTILINE,
)
NO_REASON = (
    b"",
    b"\xff<html>",
    b"null",
    b'{"error": {"message": 7}}',
    b'{"error": {"message": "no", "type": "x"}}',
)
"""Bodies without information, of a server or of a proxy in front of it."""
AGENT = AgentDefinition(
    name="x", instructions="", model="a:m", targets=(Target(model="a:m"), Target(model="b:m"))
)


def rows() -> Iterator[Any]:
    """Every row for each of its statuses and providers: the provider, its response, the class, and
    the turn's next move.
    """
    for table in PAGE.read_text(encoding="utf-8").split("\n### ")[1:]:
        for row in ROW.finditer(table):
            for status in map(int, row["statuses"].split(", ")):
                for vendor in TABLES[table.partition("\n")[0]]:
                    reply: StubReply = {
                        "status": status,
                        "raw": row["body"] or NO_REASON[status % len(NO_REASON)],
                    }
                    name = f"{vendor.name}-{status}-{row['body'] or 'no body'}"
                    yield pytest.param(vendor, reply, row["error"], row["then"], id=name)


def after(*failed: PerdureError) -> str:
    """The next move of a turn with two models after these errors of the first one."""
    facts: list[Fact] = [
        TurnStarted(TurnRequest(agent="x", task=Task(content="go"))),
        AgentResolved(AgentKey(), AGENT),
    ]
    for attempt, error in enumerate(failed, 1):
        key = ModelKey(1, attempt)
        facts += [Scheduled(key, ModelCall.of("0" * 16)), CallFailed(key, error.info())]
    try:
        return (
            "once more"
            if Fallback(Situation(fold(facts), AGENT)).choose().target.model == "a:m"
            else "the next"
        )
    except PerdureError as raised:
        return "fails" if raised.code == failed[-1].code else repr(raised)


@pytest.mark.parametrize(("vendor", "reply", "error", "then"), list(rows()))
async def test_answer_of_a_provider_becomes_the_error_that_the_page_says(
    vendor: Vendor, reply: StubReply, error: str, then: str
) -> None:
    """By the real client, and the turn's move is the one in the table."""
    failure = await vendor.failing(reply)

    assert (type(failure).__name__, after(failure)) == (error, then)
    if reply["status"] != 200:  # the provider states that there is no answer, so nothing is charged
        assert failure.context == {"model": "m", "status": reply["status"]}


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("raw", NO_REASON)
async def test_status_says_what_to_do_where_the_body_does_not(vendor: Vendor, raw: bytes) -> None:
    """For any content."""
    assert type(await vendor.failing({"status": 402, "raw": raw})) is errors.LLMAuthError


def test_once_more_is_once() -> None:
    """Then the next model is called."""
    failure = errors.LLMUnavailableError("down")

    assert [after(failure), after(failure, failure)] == ["once more", "the next"]


def test_page_has_a_row_for_every_class_that_a_provider_raises() -> None:
    """And the test above can parse every line of the tables."""
    page = PAGE.read_text(encoding="utf-8")
    tables = [table.partition("\n## ")[0] for table in page.split("\n### ")[1:]]
    lines = [
        line
        for table in tables
        for line in table.splitlines()
        if line.startswith("| ") and not line.startswith("| status")
    ]
    of_budget = {
        errors.LLMBudgetExceededError,
        errors.UnknownPriceError,
        errors.ModelChainExhaustedError,
        LLMError,
    }

    assert [line for line in lines if not ROW.match(line)] == []
    assert [table.partition("\n")[0] for table in tables] == list(TABLES)
    assert {row["error"] for row in ROW.finditer(page)} == {
        cls.__name__ for cls in errors.tree(LLMError) if cls not in of_budget
    }
    assert all(
        isinstance(json.loads(row["body"]), dict) for row in ROW.finditer(page) if row["body"]
    )
