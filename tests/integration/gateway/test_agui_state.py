"""The shared state of a turn over AG-UI: snapshots, deltas, and what a page sends."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ag_ui", reason="the extra perdure[agui] is not installed")

from perdure.clients.gateway.agui.state_patch import patch_of
from perdure.testing import FunctionModel, ModelRequest, Reply, calls, says
from perdure.values.messages import ToolMessage

from ...conftest import Runtime
from ...support.gateway.agui import Told, asking, official_client, run, served, user
from ...support.gateway.served import as_, told
from ...support.sharing import keeper, putting

_FIELDS = st.sampled_from(["x", "a/b", "~1", ""])
_STATES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 1, "a", [], [1]]),
    lambda inner: st.dictionaries(_FIELDS, inner, max_size=3),
    max_leaves=8,
)


def applied(state: Any, delta: list[dict[str, Any]]) -> Any:
    """A state after a JSON Patch, by the words of RFC 6902."""
    state = json.loads(json.dumps(state))
    for operation in delta:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")
        ]
        if not parents:
            state = operation["value"]
            continue
        target = state
        for name in parents[1:]:
            target = target[name]
        assert (last in target) == (operation["op"] != "add")
        if operation["op"] == "remove":
            del target[last]
        else:
            target[last] = operation["value"]
    return state


@pytest.mark.accepts("H239")
@given(before=_STATES, after=_STATES)
def test_patch_makes_one_state_of_another(before: Any, after: Any) -> None:
    """A field is added, removed or replaced; names are escaped as in a JSON Pointer."""
    assert applied(before, list(patch_of(before, after))) == after
    assert list(patch_of(after, after)) == []


def puts(request: ModelRequest) -> Reply:
    """Put two fields, one after the other, and answer."""
    results = sum(isinstance(message, ToolMessage) for message in request.messages)
    if isinstance(request.messages[-1], ToolMessage) and results % 2 == 0:
        return says("done")
    return calls(putting("step", results + 1))


def states(seen: Told) -> list[Any]:
    """The state of a page after each snapshot and each delta."""
    known: list[Any] = []
    for event in seen:
        if event.type.value == "STATE_SNAPSHOT":
            known.append(event.snapshot)
        elif event.type.value == "STATE_DELTA":
            delta = [operation.model_dump() for operation in event.delta]
            known.append(applied(known[-1] if known else {}, delta))
    return known


@pytest.mark.accepts("H239")
async def test_run_tells_the_state_and_its_changes(runtime: Runtime) -> None:
    """It begins with what the page sent, or with that of the turn before; so does a second look."""
    async with runtime(keeper(), model=FunctionModel(puts)) as client, served(client) as http:
        none = await run(http, "keeper", asking("s1", "r-1", user("Go.", "m-1")))
        first = await run(
            http, "keeper", asking("s2", "r-1", user("Go.", "m-1"), state={"cart": ["lamp"]})
        )
        again = await run(http, "keeper", asking("s2", "r-1", user("Go.", "m-1"), state={"x": 1}))
        second = await run(http, "keeper", asking("s2", "r-2", user("Go on.", "m-2")))
        turn = await client.turn("@agui/s2/1").shared_state()
        status = (await http.get("/v1/turns/s2%2F1", headers=as_("iris"))).json()
        report = (await http.get("/v1/turns/s2%2F1/result", headers=as_("iris"))).json()

    assert states(none) == [{"step": 1}, {"step": 2}]
    assert "STATE_SNAPSHOT" not in none.kinds
    cart = {"cart": ["lamp"]}
    assert states(first) == [cart, {**cart, "step": 1}, {**cart, "step": 2}]
    assert first.kinds.index("STATE_SNAPSHOT") == 2
    assert states(again) == [turn] == [{**cart, "step": 2}]
    assert states(second) == [{**cart, "step": number} for number in (2, 3, 4)]
    assert [status["shared_state"], report["shared_state"]] == [turn, turn]


@pytest.mark.accepts("H239")
async def test_run_that_is_followed_from_an_event_begins_with_its_state(runtime: Runtime) -> None:
    """Each change is told once."""
    async with runtime(keeper(), model=FunctionModel(puts)) as client, served(client) as http:
        asked = asking("s3", "r-1", user("Go.", "m-1"))
        whole = await run(http, "keeper", asked)
        rests = [await run(http, "keeper", asked, after=cursor) for cursor in whole.ids[:-1]]

    assert {json.dumps(states(rest)[-1]) for rest in rests} == {'{"step": 2}'}
    counts = [len(states(rest)) for rest in rests]
    assert counts == sorted(counts, reverse=True)


@pytest.mark.accepts("H240")
async def test_state_that_is_not_valid_is_refused(runtime: Runtime) -> None:
    """Before anything begins."""
    async with runtime(keeper(), model=FunctionModel(puts)) as client, served(client) as http:
        answers = [
            await http.post(
                "/agui/keeper",
                json=asking("s4", "r-1", user("Go.", "m-1"), state=state),
                headers=as_("iris"),
            )
            for state in ([1], "x", {"x": "x" * 20_000})
        ]
        unknown = await http.post("/agui/keeper", json=asking("s4", "r-1"), headers=as_("iris"))

    expected = [(422, "INVALID_REQUEST"), (422, "INVALID_REQUEST"), (413, "TOO_LARGE")]
    assert [told(answer) for answer in answers] == expected
    assert answers[0].json()["errors"][0]["pointer"] == "#/state"
    assert told(unknown) == (404, "SESSION_NOT_FOUND")


PROGRAM = """
const { HttpAgent } = require("@ag-ui/client");
async function main(url, token) {
  const headers = { Authorization: `Bearer ${token}` };
  const given = { url: `${url}/agui/keeper`, headers, threadId: "s5" };
  const of = (more) => new HttpAgent({ ...given, ...more });
  const agent = of({ initialState: { cart: ["lamp"] } });
  const seen = [];
  const onStateChanged = ({ state }) => { seen.push(JSON.parse(JSON.stringify(state))); };
  agent.addMessage({ id: "m-1", role: "user", content: "Go." });
  await agent.runAgent({}, { onStateChanged });
  agent.setState({ ...agent.state, page: 2 });
  agent.addMessage({ id: "m-2", role: "user", content: "Go on." });
  await agent.runAgent({}, { onStateChanged });
  const other = of({});
  await other.runAgent();
  console.log(JSON.stringify({ seen, state: agent.state, other: other.state }));
}
main(...process.argv.slice(1)).catch((error) => { console.error(error); process.exit(1); });
"""


@pytest.mark.slow
@pytest.mark.accepts("H241")
async def test_client_of_the_protocol_has_the_state(runtime: Runtime) -> None:
    """`@ag-ui/client` applies the deltas, and sends its state back."""
    found = official_client()
    if found is None:
        pytest.skip("@ag-ui/client is not installed: make mcp-servers")
    node, modules = found
    async with runtime(keeper(), model=FunctionModel(puts)) as client, served(client) as http:
        process = await asyncio.create_subprocess_exec(
            *(node, "-e", PROGRAM, "--", str(http.base_url).rstrip("/"), "iris"),
            stdout=PIPE,
            stderr=PIPE,
            env={**os.environ, "NODE_PATH": modules},
        )
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()

    done = json.loads(out)
    assert done["state"] == done["other"] == {"cart": ["lamp"], "step": 4, "page": 2}
    assert {"cart": ["lamp"], "step": 1} in done["seen"]
