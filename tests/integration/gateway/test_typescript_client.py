"""The client in TypeScript with the real gateway, a real server and a real worker, in Node.js."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, ToolContext, UserMessage, tool
from perdure.testing import FunctionModel, ModelRequest, Reply, call, calls, says
from perdure.toolboxes import asking

from ...conftest import Runtime
from ...support.gateway.served import served
from ...support.gateway.typescript import compiled, printed

ASKS = {
    "refund": call("refund", euros=40),
    "refund too": call("refund", euros=41),
    "ask": call("ask", question="Which?", options=["red", "green"]),
    "deploy": call("deploy"),
}


def answers(request: ModelRequest) -> Reply:
    """The call that the task asks for, and then its result as the answer."""
    last = request.messages[-1]
    if not isinstance(last, UserMessage):
        return says(last.results[0].content)  # type: ignore[union-attr]
    return calls(ASKS[last.text]) if last.text in ASKS else says(f"You said {last.text}.")


@pytest.mark.slow  # a compiler, and many turns
@pytest.mark.accepts("H230", "H231", "H232", "H234", "H235")
async def test_every_part_of_the_client(runtime: Runtime, tmp_path: Path) -> None:
    """One start for an id, events once, decisions, sessions, pages, problems, signals."""
    module = compiled(tmp_path / "client")
    token_file = tmp_path / "call"

    @tool(requires_approval=True)
    def refund(euros: int) -> str:
        """Pay back."""
        return f"paid {euros} euros"

    @tool(later=True)
    def deploy(ctx: ToolContext[Any]) -> str:
        """Deploy."""
        token_file.write_text(ctx.call_token, encoding="utf-8")
        return "job-1"

    desk = Agent(name="desk", model="main", tools=[refund, deploy], toolboxes=[asking()])
    async with runtime(desk, model=FunctionModel(answers)) as client, served(client) as http:
        url = str(http.base_url)
        seen = await printed("typescript_tour.mjs", module, url, "anna", str(token_file))
        events = [event.cursor async for event in client.turn("@acme/ts/refund").events()]

    assert seen["begun"] == ["@acme/ts/refund"] * 2
    assert (seen["conflict"]["status"], seen["conflict"]["code"]) == (409, "TURN_CONFLICT")
    assert seen["late"]["code"] == "APPROVAL_CONFLICT"
    assert "already approved by anna@example.com" in seen["late"]["message"]
    assert seen["aborted"]["name"] == "AbortError"
    assert (seen["refunded"]["output"], seen["refunded"]["error"]) == ("paid 40 euros", None)
    assert seen["cursors"] == events
    assert seen["rest"] == events[2:]
    assert seen["kinds"][-1] == "turn_ended"
    assert [one["arguments"] for one in seen["asked"]] == ['{"euros": 40}']
    assert (seen["answered"], seen["deployed"]) == ("green", "up")
    assert seen["finished"][0] == seen["finished"][1]
    assert seen["turns"] == ["@acme/ts-chat/1"] * 2
    assert seen["pieces"][0] == {"v": 1, "kind": "text_begins", "step": 1, "attempt": 1}
    assert "".join(seen["pieces"][1:]) == "You said hello."
    assert seen["messages"] == ["user", "assistant"]
    assert (seen["cancel"], seen["over"]) == ({"cancelled": True}, ["cancelled", "TURN_CANCELLED"])
    assert sorted(seen["results"]) == ["a", "b"]
    assert seen["listed"] == ["@acme/ts-nightly"]
    assert len(set(seen["pages"][1])) == len(seen["pages"][1]) == 4
    assert sorted(seen["pages"][0]) == sorted(seen["pages"][1])
    assert (seen["missing"]["status"], seen["missing"]["code"]) == (404, "TURN_NOT_FOUND")
    assert (seen["invalid"]["code"], seen["invalid"]["pointers"]) == ("INVALID_REQUEST", ["#/taks"])
    assert seen["stranger"]["code"] == "UNAUTHENTICATED"
    assert (seen["away"]["status"], seen["away"]["code"]) == (0, "GATEWAY_UNREACHABLE")
    assert "http://127.0.0.1:9" in seen["away"]["message"]
