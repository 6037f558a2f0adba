"""Data subjects over MCP, A2A, AG-UI and OpenAI's API, each with its official client."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from perdure import errors
from perdure.clients import AgentClient
from perdure.clients.gateway import A2AAgent
from perdure.temporal.encryption import key_stores
from perdure.temporal.encryption.hiding import VARIABLE
from perdure.testing import ScriptedModel, says

from ...support.approving import pending
from ...support.ciphertexts import keys_in, of_workflow
from ...support.data_subjects import Home, home
from ...support.gateway.a2a import agent_of, refused, send
from ...support.gateway.a2a import message as a2a_message
from ...support.gateway.agui import asking, run, user
from ...support.gateway.responses import failing, openai_of
from ...support.gateway.served import served

__all__ = ["home"]

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

from ...support.mcp.tasks import assistant, use

FIELD = "perdure_subject"
AGENT = "payer"
CARDS = (A2AAgent(AGENT, "Pays."),)
SOON = timedelta(milliseconds=1)


@contextlib.asynccontextmanager
async def gateway(home: Home) -> AsyncIterator[tuple[AgentClient, httpx.AsyncClient]]:
    """A client and a gateway, with a worker."""
    client = await home.client()
    async with (
        home.worker(ScriptedModel(*[says("done")] * 20)).running(client.temporal),
        served(client, a2a_agents=CARDS) as http,
    ):
        yield client, http


def tenants(home: Home) -> str:
    """The complete name of the subject: it is one of the tenant's."""
    return f"@acme/{home.subject}"


async def keys_of(home: Home, client: AgentClient, *ids: str) -> list[bool]:
    """Whether each of these is encrypted with the key of the subject alone."""
    [key] = home.store.of_subject(tenants(home))
    return [keys_in(await of_workflow(client.temporal, id)) == {key.id} for id in ids]


@pytest.mark.accepts("G104")
async def test_mcp_starts_turns_of_a_subject(home: Home) -> None:
    """By an argument of `start_turn`; a wrong name, another and an erased subject are errors."""
    async with gateway(home) as (client, http), assistant(http) as mcp:
        [tool] = [one for one in (await mcp.list_tools()).tools if one.name == "start_turn"]
        named = {"agent": AGENT, "task": "go", "id": home.id}
        made = await use(mcp, "start_turn", **named, subject=home.subject)
        done = await use(mcp, "turn_result", turn=home.id, wait_s=30)
        other = await use(mcp, "start_turn", **named, subject=f"{home.subject}-2")
        wrong = await use(mcp, "start_turn", **{**named, "subject": " a"})
        under = await keys_of(home, client, f"@acme/{home.id}")
        await client.erase(tenants(home))
        async with served(await home.client()) as later, assistant(later) as fresh:
            gone = await use(fresh, "turn_status", turn=home.id)

    assert "subject" in tool.input_schema["properties"]
    assert made["turn"] == f"@acme/{home.id}"
    assert done["state"] == "ended"
    assert under == [True]
    assert other["refused"].startswith("TURN_CONFLICT: ")
    assert wrong["refused"].startswith("INVALID_REQUEST: ")
    assert gone["refused"].startswith("ERASED: ")


@pytest.mark.accepts("G104")
async def test_mcp_without_keys_has_no_such_argument(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends it all the same starts nothing; a store that is away is an error."""
    away = await home.client()
    monkeypatch.delenv(VARIABLE)
    monkeypatch.delenv(key_stores.VARIABLE)
    client = await home.client()
    named = {"agent": AGENT, "task": "go", "subject": home.subject}
    async with served(client) as http, assistant(http) as mcp:
        tools = (await mcp.list_tools()).tools
        without = await use(mcp, "start_turn", **named, id=home.id)
    home.away(is_away=True)
    async with served(away) as http, assistant(http) as mcp:
        refused_ = await use(mcp, "start_turn", **named, id=home.id)
    home.away(is_away=False)

    assert all("subject" not in tool.input_schema["properties"] for tool in tools)
    assert without["refused"].startswith("CONFIGURATION: ")
    assert refused_["refused"].startswith("KEY_STORE: ")
    with pytest.raises(errors.TurnNotFoundError):
        await client.turn(f"@acme/{home.id}").status()


@pytest.mark.accepts("G105")
async def test_openai_starts_responses_of_a_subject(home: Home) -> None:
    """By its metadata: responses, those that go on, conversations and chat completions. The answer
    has it, too, and it is no label.
    """
    mine: dict[str, Any] = {"metadata": {FIELD: home.subject, "team": "blue"}}
    talk = f"talk-{home.id}"
    async with gateway(home) as (client, http), openai_of(http) as ai:
        first = await ai.responses.create(model=AGENT, input="go", **mine)
        after = await ai.responses.create(model=AGENT, input="on", previous_response_id=first.id)
        same = await ai.responses.create(
            model=AGENT, input="on", previous_response_id=first.id, **mine
        )
        said = await ai.responses.create(model=AGENT, input="go", conversation=talk, **mine)
        more = await ai.responses.create(model=AGENT, input="on", conversation=talk)
        chat = await ai.chat.completions.create(
            model=AGENT, messages=[{"role": "user", "content": "go"}], **mine
        )
        begun = await ai.conversations.retrieve(talk)
        ids = [first.id, after.id, same.id, said.id, more.id, f"@acme/{talk}", chat.id]
        under = await keys_of(home, client, *ids)
        entry = await anext(aiter(client.turns(id_prefix=first.id)), None)
        theirs: dict[str, Any] = {"metadata": {FIELD: f"{home.subject}-2"}}
        conflicts = [
            await failing(ai.responses.create(model=AGENT, input="on", **theirs, **where))
            for where in ({"previous_response_id": first.id}, {"conversation": talk})
        ]
        wrong = await failing(
            ai.responses.create(model=AGENT, input="go", metadata={FIELD: "a\nb"})
        )
        await client.erase(tenants(home))
        async with served(await home.client()) as later, openai_of(later) as fresh:
            gone = await failing(fresh.responses.retrieve(first.id))

    assert under == [True] * len(ids)
    assert first.metadata == {FIELD: tenants(home), "team": "blue"}
    assert begun.metadata == first.metadata
    assert entry is None or entry.labels == {"team": "blue"}
    assert [(error.status_code, error.code) for error in conflicts] == [(409, "TURN_CONFLICT")] * 2
    assert (wrong.status_code, wrong.code) == (400, "INVALID_REQUEST")
    assert gone.code == "ERASED"


@pytest.mark.slow
@pytest.mark.accepts("G105")
async def test_openai_decides_and_answers_under_the_subject_alone(home: Home) -> None:
    """A decision of a request that names another subject is refused, and nothing is decided."""
    client = await home.client()
    async with (
        home.worker().running(client.temporal),
        served(client) as http,
        openai_of(http) as ai,
    ):
        asked = await ai.responses.create(
            model=AGENT, input="go", background=True, metadata={FIELD: home.subject}
        )
        [one] = await pending(client.turn(asked.id))
        approval: Any = {
            "type": "mcp_approval_response",
            "approval_request_id": f"mcpr_{one.call_id}:{one.token}",
            "approve": True,
        }
        other = await failing(
            ai.responses.create(
                model=AGENT,
                input=[approval],
                previous_response_id=asked.id,
                metadata={FIELD: f"{home.subject}-2"},
            )
        )
        still = await pending(client.turn(asked.id))
        await client.erase(tenants(home))

    assert (other.status_code, other.code) == (409, "TURN_CONFLICT")
    assert [call.call_id for call in still] == [one.call_id]


@pytest.mark.accepts("G106")
async def test_a2a_begins_tasks_of_a_subject(home: Home) -> None:
    """By the metadata of the message; a context that exists keeps its own."""
    async with gateway(home) as (client, http):
        agent = await agent_of(http, agent=AGENT)

        def said(id: str, subject: str | None, **more: Any) -> Any:
            metadata = {} if subject is None else {"metadata": {FIELD: subject}}
            return a2a_message("go", f"{id}-{home.id}", **metadata, **more)

        first = await send(agent, said("one", home.subject))
        context = first.context_id
        second = await send(agent, said("two", home.subject, context_id=context))
        third = await send(agent, said("three", None, context_id=context))
        ids = [f"@acme/a2a/{AGENT}/{task.id}" for task in (first, second, third)]
        under = await keys_of(home, client, *ids, f"@acme/a2a/{AGENT}/{context}")
        other = f"{home.subject}-2"
        conflicts = [
            await refused(send(agent, said("four", other, context_id=context))),
            await refused(send(agent, said("five", other, task_id=first.id))),
        ]
        wrong = await refused(send(agent, said("six", " ")))
        await client.erase(tenants(home))

    assert under == [True] * 4
    assert [(error.data or {})["code"] for error in conflicts] == ["TURN_CONFLICT"] * 2
    assert (wrong.data or {})["code"] == "INVALID_REQUEST"


@pytest.mark.accepts("G107")
async def test_agui_runs_threads_of_a_subject(home: Home) -> None:
    """By the forwarded properties, and the model reads the others alone."""
    thread = f"thread-{home.id}"

    def properties(subject: str | None) -> dict[str, Any]:
        return {"forwardedProps": {"plan": "gold", **({} if subject is None else {FIELD: subject})}}

    async with gateway(home) as (client, http):
        one, two, three = (user(text, f"{text}-{home.id}") for text in ("one", "two", "three"))
        first = await run(http, AGENT, asking(thread, "1", one, **properties(home.subject)))
        await run(http, AGENT, asking(thread, "2", one, two, **properties(None)))
        ids = [f"@acme/{thread}{end}" for end in ("", "/1", "/2")]
        under = await keys_of(home, client, *ids)
        told = (await client.turn(ids[1]).status()).task
        refusals = [
            await http.post(
                f"/agui/{AGENT}", json=asking(thread, "3", *said, **properties(subject))
            )
            for said, subject in (
                ((one, two, three), f"{home.subject}-2"),
                ((one, two), f"{home.subject}-2"),
                ((one, two, three), " "),
            )
        ]
        await client.erase(tenants(home))
        async with served(await home.client()) as later:
            gone = await later.post(f"/agui/{AGENT}", json=asking(thread, "4", one, two))

    assert first.text == "done"
    assert under == [True] * 3
    assert "gold" in str(told)
    assert home.subject not in str(told)
    assert [(answer.status_code, answer.json()["code"]) for answer in refusals] == [
        (409, "TURN_CONFLICT"),
        (409, "TURN_CONFLICT"),
        (422, "INVALID_REQUEST"),
    ]
    assert (gone.status_code, gone.json()["code"]) == (410, "ERASED")


@pytest.mark.slow
@pytest.mark.accepts("G104", "G105", "G106", "G107")
async def test_erasing_and_away_are_the_errors_of_rest(home: Home) -> None:
    """Nothing is started for a subject that is being erased, or while its keys cannot be had."""
    async with (
        gateway(home) as (client, http),
        assistant(http) as mcp,
        openai_of(http) as ai,
    ):
        agent = await agent_of(http, agent=AGENT)

        async def all_of(number: int) -> list[tuple[int, str]]:
            body = {"agent": AGENT, "task": "go", "subject": home.subject}
            rest = await http.post("/v1/turns", json=body)
            properties = {"forwardedProps": {FIELD: home.subject}}
            said = user("go", f"{number}-{home.id}")
            agui = await http.post(
                f"/agui/{AGENT}", json=asking(f"t{number}-{home.id}", "1", said, **properties)
            )
            openai = await failing(
                ai.responses.create(model=AGENT, input="go", metadata={FIELD: home.subject})
            )
            sent = a2a_message("go", f"{number}-{home.id}", metadata={FIELD: home.subject})
            with pytest.raises(Exception) as a2a:
                await send(agent, sent)
            over_mcp = await use(mcp, "start_turn", **body)
            return [
                (rest.status_code, rest.json()["code"]),
                (agui.status_code, agui.json()["code"]),
                (openai.status_code, str(openai.code)),
                (0, str(a2a.value)),
                (0, over_mcp["refused"].partition(":")[0]),
            ]

        await client.start(AGENT, "go", id=f"x-{home.id}", subject=tenants(home))
        home.store.begin_erasure(tenants(home))
        erasing = await all_of(1)
        home.away(is_away=True)
        away = await all_of(2)
        home.away(is_away=False)
        home.store.destroy(tenants(home), datetime.now(UTC))

    assert [code for _, code in erasing if "HTTP" not in code] == ["ERASED"] * 4
    assert [status for status, _ in erasing] == [410, 410, 400, 0, 0]
    assert "410" in erasing[3][1]
    assert [code for _, code in away if "HTTP" not in code] == ["KEY_STORE"] * 4
    assert [status for status, _ in away] == [503, 503, 503, 0, 0]
    assert "503" in away[3][1]
