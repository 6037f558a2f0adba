"""What the scripted model of the matrix says, and what its last answer claims.

The replies depend on the number of answers in the request. A step whose tool the request does not
offer is left out, so that systems without delegates or approvals do the rest of the same job:

| step | calls | effect |
|---|---|---|
| 1 | `look(what="look")` and `book(what="book")` | may be repeated; once for each key |
| 2 | `charge(what="charge")` | at most once |
| 3 | `delegate_to_agent(agent="scout", task=…)` | the scout looks until its own budget is spent |
| 4 | `wire(what="wire", amount=…)` | at most once, and only with an approval of this amount |
| 5 | `look(what="look-again")` | may be repeated |
| 6 | none: the answer | |

The answer is a text for each call with a `what`, from the results that the model has seen:
`look: done, book: done, charge: unknown, wire: denied`. A result with a receipt is `done`; one that
says that the outcome is unknown is `unknown`; one that says that the call was denied is `denied`;
any other is `failed`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.testing.stub_replies import StubCall, StubReply

CLERK, SCOUT = "clerk", "scout"
"""The names of the models."""
_CLAIM = re.compile(r"([\w-]+): (done|unknown|denied|failed)")


def reply(body: Mapping[str, Any], number: int) -> StubReply:
    """Return the reply to a request; `number` is another one for each request."""
    offered = {tool["function"]["name"] for tool in body.get("tools", ())}
    if SCOUT in str(body.get("model", "")):
        if not offered or body.get("tool_choice") == "none":
            return {"text": "seen enough"}
        return {"calls": [{"name": "look", "arguments": {"what": f"scouted-{number}"}}]}
    messages = body["messages"]
    answers = sum(message["role"] == "assistant" for message in messages)
    steps = [calls for calls in _steps(messages, number) if {c["name"] for c in calls} <= offered]
    if answers < len(steps):
        return {"calls": steps[answers]}
    return {"text": claim(messages)}


def _steps(messages: Sequence[Mapping[str, Any]], number: int) -> list[list[StubCall]]:
    job = next(iter(re.findall(r"\[job [\w.-]+\]", json.dumps(messages))), "")
    scouting = {"agent": SCOUT, "task": f"{job} Look around."}
    return [
        [_call("look", "look"), _call("book", "book")],
        [_call("charge", "charge")],
        [{"name": "delegate_to_agent", "arguments": scouting}],
        [_call("wire", "wire", amount=1_000 + number)],
        [_call("look", "look-again")],
    ]


def _call(name: str, what: str, **more: object) -> StubCall:
    return {"name": name, "arguments": {"what": what, **more}}


def claim(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the answer: what has become of each call, as far as the model knows."""
    results = {
        message.get("tool_call_id"): json.dumps(message.get("content", ""))
        for message in messages
        if message["role"] == "tool"
    }
    ends = {what: _end(results.get(call_id, "")) for call_id, what in _calls(messages)}
    return ", ".join(f"{what}: {end}" for what, end in ends.items()) or "nothing"


def _calls(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the id of each call, and the effect that it names."""
    for message in messages:
        for call in message.get("tool_calls") or ():
            what = json.loads(call["function"]["arguments"]).get("what")
            if what:
                yield call["id"], what


def _end(result: str) -> str:
    if "receipt-" in result:
        return "done"
    if "unknown" in result:
        return "unknown"
    return "denied" if "denied" in result.lower() else "failed"


def claims_in(text: str) -> dict[str, str]:
    """Return what an answer claims: `done`, `unknown`, `denied` or `failed`, by effect."""
    return dict(_CLAIM.findall(text))
