"""Hooks: deliveries of other systems start turns and send messages, each once."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from perdure import Agent, Budget, errors, limits
from perdure.clients import AgentClient
from perdure.clients.gateway import Quota
from perdure.events import WaitBegan
from perdure.testing import ScriptedModel, call, calls, says
from perdure.toolboxes import waiting

from ...conftest import Runtime
from ...support.gateway.hooks import (
    SECRETS,
    SIGNED,
    VARIABLES,
    HookFiles,
    body_of,
    deliver,
    table,
    task_of,
)
from ...support.gateway.served import as_, served
from ...support.jobs import Service, deployer
from ...support.keyed_events import MODEL, key_of_test, task, waiter, waiting_turn
from ...support.spending import until

DESK = Agent(name="desk", model="scripted:x")


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HookFiles:
    """Files of hooks, with their secrets in the environment."""
    return HookFiles(tmp_path, monkeypatch)


async def turns_of(client: AgentClient, name: str, tenant: str = "") -> list[str]:
    """The ids of the turns that a hook has started, by Temporal's list, which may lag."""
    prefix = f"{tenant}hooks/{name}/"
    return [one.id async for one in client.turns(id_prefix=prefix)]


async def is_known(client: AgentClient, turn_id: str) -> bool:
    """Whether there is a turn."""
    try:
        await client.turn(turn_id).status()
    except errors.TurnNotFoundError:
        return False
    return True


def model(*answers: str) -> ScriptedModel:
    """A model with these answers."""
    return ScriptedModel(*map(says, answers))


@pytest.mark.accepts("K1", "K3", "K4")
async def test_delivery_of_each_sender_starts_a_turn_once(
    runtime: Runtime, hooks: HookFiles
) -> None:
    """At two gateways at once, and again when the turn is over. It exists when it is answered."""
    declared = hooks(*map(table, SIGNED))
    async with (
        runtime(DESK, model=model(*["Seen."] * 4)) as client,
        served(client, hooks=declared) as one,
        served(client, hooks=declared) as other,
    ):
        answers = []
        for verify in SIGNED:
            at_once = [deliver(http, verify, "d-1") for http in (one, other, one, other)]
            answers += await asyncio.gather(*at_once)
            turn_id = answers[-1].json()["turn"]
            report = await client.turn(turn_id).result()
            answers.append(await deliver(other, verify, "d-1"))
            runs = await client.turn(turn_id).first_run()

            assert (report.output, runs != "") == ("Seen.", True)
            assert task_of(report) == "It is broken."

    assert {answer.status_code for answer in answers} == {202}
    assert [answer.json() for answer in answers[::5]] == [
        {"turn": f"hooks/{verify}/d-1"} for verify in SIGNED
    ]
    assert all(answers[n].json() == answers[n // 5 * 5].json() for n in range(len(answers)))


@pytest.mark.slow
@pytest.mark.accepts("K3")
async def test_delivery_after_a_change_of_its_hook_is_the_same_turn(
    runtime: Runtime, hooks: HookFiles
) -> None:
    """The turn keeps the task with which it was started. An unknown agent is found later."""
    other = Agent(name="other", model="scripted:x")
    async with runtime([DESK, other], model=model("Seen.", "Found.")) as client:
        async with served(client, hooks=hooks(table("github"))) as http:
            first = await deliver(http, "github", "c-1")
        changed = hooks(table("github", template="Another task: {/title}", agent="other"))
        async with served(client, hooks=changed) as http:
            second = await deliver(http, "github", "c-1")
        report = await client.turn("hooks/github/c-1").result()
        async with served(client, hooks=hooks(table("github", agent="nobody"))) as http:
            lost = await deliver(http, "github", "c-2")
            with pytest.raises(errors.UnknownAgentError):
                await client.turn("hooks/github/c-2").result()
        async with served(client, hooks=hooks(table("github", agent="other"))) as http:
            again = await deliver(http, "github", "c-2")
            found = await client.turn("hooks/github/c-2").result()

    assert [one.status_code for one in (first, second, lost, again)] == [202] * 4
    assert first.json() == second.json() == {"turn": "hooks/github/c-1"}
    assert (report.agent, task_of(report)) == ("desk", "It is broken.")
    assert (found.agent, found.output) == ("other", "Found.")


REFUSED: dict[str, tuple[dict[str, Any], tuple[int, str]]] = {
    "another secret": ({"secret": "not the secret of this hook"}, (401, "UNAUTHENTICATED")),
    "a replay": ({"at": -301}, (401, "UNAUTHENTICATED")),
    "a time to come": ({"at": 301}, (401, "UNAUTHENTICATED")),
    "a body that is not JSON": ({"body": b'{"title": '}, (400, "INVALID_JSON")),
    "a lone surrogate": ({"body": b'{"event_id": "\\ud800"}'}, (400, "INVALID_JSON")),
    "a body that is deep": ({"body": b"[" * 50_000}, (400, "INVALID_JSON")),
    "a number that is none": ({"body": b'{"event_id": "x", "title": NaN}'}, (400, "INVALID_JSON")),
    "no id": ({"body": {"title": "x"}}, (422, "INVALID_REQUEST")),
    "an id that is no text": ({"body": {"event_id": 7, "title": "x"}}, (422, "INVALID_REQUEST")),
    "a list": ({"body": [1]}, (422, "INVALID_REQUEST")),
    "no field": ({"body": {"event_id": "x-1"}}, (422, "INVALID_REQUEST")),
    "an empty task": ({"body": {"event_id": "x-1", "title": " "}}, (422, "INVALID_REQUEST")),
    "another media type": ({"Content_Type": "text/plain"}, (415, "UNSUPPORTED_MEDIA_TYPE")),
    "a form": (
        {"Content_Type": "application/x-www-form-urlencoded"},
        (415, "UNSUPPORTED_MEDIA_TYPE"),
    ),
    "10 MB": ({"body": {"event_id": "x-1", "title": "x" * 10**7}}, (413, "TOO_LARGE")),
    "many values": ({"body": {"event_id": "x-1", "title": [0] * 30_000}}, (413, "TOO_LARGE")),
    "many members": (
        {"body": {"event_id": "x-1", "title": {str(n): 0 for n in range(1_500)}}},
        (413, "TOO_LARGE"),
    ),
}


@pytest.mark.accepts("K1", "K2", "K10")
async def test_deliveries_that_are_not_valid_start_nothing(
    runtime: Runtime, hooks: HookFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """Each with a status and a reason, and others are served meanwhile. The log has one line for
    all of them, without what was sent.
    """
    async with (
        runtime(DESK, model=model("Seen.")) as client,
        served(client, hooks=hooks(table("slack"), table("github"))) as http,
    ):
        answers: dict[str, httpx.Response] = {}
        for name, (given, _) in REFUSED.items():
            given = {"at": 0, **given}
            given["at"] += time.time()
            answers[name] = await deliver(http, "slack", "x-1", **given)
        body = json.dumps(body_of("slack", "x-1")).encode()
        signed = SIGNED["slack"](body, "x-1", int(time.time()), SECRETS["slack"])
        kind = {"Content-Type": "application/json"}
        moved = await http.post(
            "/hooks/slack", content=body.replace(b"broken", b"stolen"), headers={**signed, **kind}
        )
        bare = await http.post("/hooks/slack", content=body, headers=kind)
        read = await http.get("/hooks/slack")
        unknown = await deliver(http, "slack", "x-1", path="/hooks/none")
        assert not await is_known(client, "hooks/slack/x-1")
        good = await deliver(http, "slack", "x-1")
        await client.turn(good.json()["turn"]).result()

    found = {name: (one.status_code, one.json()["code"]) for name, one in answers.items()}
    assert found == {name: expected for name, (_, expected) in REFUSED.items()}
    others = [moved.status_code, bare.status_code, read.status_code, unknown.status_code]
    assert others == [401, 401, 405, 404]
    assert answers["no field"].json()["errors"][0]["pointer"] == "#/title"
    lines = [one.getMessage() for one in caplog.records if "refused" in one.getMessage()]
    [line] = lines
    assert line == (
        "hook slack has refused deliveries: 1 with 401; the last: no signature of the delivery"
        " fits its body and a secret of this hook"
    )


@pytest.mark.slow
@pytest.mark.accepts("K1")
async def test_each_of_several_secrets_is_taken(
    runtime: Runtime, hooks: HookFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a secret can be replaced without losing a delivery."""
    monkeypatch.setenv("NEW_SECRET", "the secret that comes next")
    both = table("github", secrets=["NEW_SECRET", VARIABLES["github"]])
    async with (
        runtime(DESK, model=model("Seen.", "Seen.")) as client,
        served(client, hooks=hooks(both)) as http,
    ):
        old = await deliver(http, "github", "s-1")
        new = await deliver(http, "github", "s-2", secret="the secret that comes next")
        third = await deliver(http, "github", "s-3", secret="the secret of another")
        for answer in (old, new):
            await client.turn(answer.json()["turn"]).result()

    assert [one.status_code for one in (old, new, third)] == [202, 202, 401]


@pytest.mark.accepts("K5", "K11")
async def test_filtered_deliveries_and_tests_of_the_address_start_nothing(
    runtime: Runtime, hooks: HookFiles
) -> None:
    """Slack's challenge is answered and GitHub's ping is taken, if they are signed."""
    filtered = {"X-GitHub-Event": "issues", "/action": ["opened", "reopened"]}
    challenge = {"type": "url_verification", "challenge": "3eZbrw1a", "token": "x"}
    async with (
        runtime(DESK, model=model("Seen.")) as client,
        served(client, hooks=hooks(table("github", filter=filtered), table("slack"))) as http,
    ):
        closed = await deliver(http, "github", "f-1", {"action": "closed", "title": "x"})
        ping = await deliver(
            http, "github", "f-2", {"zen": "Keep it simple."}, X_GitHub_Event="ping"
        )
        forged = await deliver(http, "github", "f-3", {}, X_GitHub_Event="ping", secret="x" * 20)
        opened = await deliver(http, "github", "f-4")
        slack = await deliver(http, "slack", "", challenge)
        unsigned = await deliver(http, "slack", "", challenge, secret="x" * 20)
        report = await client.turn(opened.json()["turn"]).result()
        known = [await is_known(client, f"hooks/github/f-{n}") for n in (1, 2, 3)]
        listed = [
            (await http.get("/v1/hooks", headers=as_(who))).json() for who in ("root", "anna")
        ]

    answers = (closed, ping, forged, opened, slack, unsigned)
    assert [one.status_code for one in answers] == [204, 200, 401, 202, 200, 401]
    assert slack.json() == {"challenge": "3eZbrw1a"}
    assert (report.output, known) == ("Seen.", [False] * 3)
    agent = {"agent": "desk", "event": None, "started": 0, "ignored": 1, "refused": 1}
    github = {**agent, "path": "/hooks/github", "verify": "github", "started": 1, "ignored": 2}
    assert listed == [
        {"hooks": [github, {**agent, "path": "/hooks/slack", "verify": "slack"}]},
        {"hooks": []},
    ]


@pytest.mark.accepts("K6")
async def test_text_of_a_delivery_is_data_in_the_task(runtime: Runtime, hooks: HookFiles) -> None:
    """Braces in it insert nothing, and options of the hook hold for the turn."""
    template = "{X-GitHub-Event} {/title} {{/action}}"
    declared = hooks(
        table("github", template=template, labels={"from": "github"}, budget={"tokens": 5_000})
    )
    async with (
        runtime(DESK, model=model("Seen.")) as client,
        served(client, hooks=declared) as http,
    ):
        title = "{/action} {{X-Hub-Signature-256}} \u202e"
        answer = await deliver(http, "github", "t-1", {"action": "opened", "title": title})
        report = await client.turn(answer.json()["turn"]).result()
        status = await client.turn(answer.json()["turn"]).status()

    assert task_of(report) == f"issues {title} {{/action}}"
    assert (status.labels, status.budget) == ({"from": "github"}, Budget(tokens=5_000))


@pytest.mark.accepts("K7", "K3")
async def test_delivery_goes_to_the_session_of_its_key(runtime: Runtime, hooks: HookFiles) -> None:
    """Each once, also at two gateways. A key is encoded, so that it is the key of one session."""
    declared = hooks(table("stripe", session="customer-{/customer}", idle="PT1H"))
    async with (
        runtime(DESK, model=model(*["Seen."] * 4)) as client,
        served(client, hooks=declared) as one,
        served(client, hooks=declared) as other,
    ):

        async def send(id: str, customer: Any) -> list[httpx.Response]:
            body = {**body_of("stripe", id), "customer": customer}
            return list(
                await asyncio.gather(*(deliver(http, "stripe", id, body) for http in (one, other)))
            )

        answers = await send("evt_1", "cus_1")
        await client.session("customer-cus_1").turn_of("stripe:evt_1")
        answers += await send("evt_2", "cus_1")
        answers += await send("evt_3", "../1/messages/x")
        answers += await send("evt_4", 7)
        for session, message in [(a.json()["session"], a.json()["message"]) for a in answers]:
            await (await client.session(session).turn_of(message)).result()
        turns = {
            session: [turn.messages for turn in await client.session(session).turns()]
            for session in dict.fromkeys(answer.json()["session"] for answer in answers)
        }
        refused = [await send(f"evt_{n}", value) for n, value in enumerate((None, "", True, [1]))]

    assert {answer.status_code for answer in answers} == {202}
    assert [answer.json()["session"] for answer in answers[::2]] == [
        "customer-cus_1",
        "customer-cus_1",
        "customer-..%2F1%2Fmessages%2Fx",
        "customer-7",
    ]
    assert {session: sorted(sum(messages, ())) for session, messages in turns.items()} == {
        "customer-cus_1": ["stripe:evt_1", "stripe:evt_2"],
        "customer-..%2F1%2Fmessages%2Fx": ["stripe:evt_3"],
        "customer-7": ["stripe:evt_4"],
    }
    assert {answer.status_code for pair in refused for answer in pair} == {422}


@pytest.mark.accepts("K15", "K3")
async def test_delivery_wakes_the_turn_that_waits_for_it(
    runtime: Runtime, hooks: HookFiles
) -> None:
    """Once, at two gateways at once. One for a turn that is over, or is not there, is refused."""
    agent = Agent(name="desk", model="scripted:x", toolboxes=[waiting()])
    waits = calls(call("wait_for", event="deployed", note="the deployment"))
    declared = hooks(table("github", agent=None, event="deployed", turn="release-{/customer}"))
    async with (
        runtime(agent, model=ScriptedModel(waits, says("Done."))) as client,
        served(client, hooks=declared) as one,
        served(client, hooks=declared) as other,
    ):
        turn = await client.start(agent, "Watch.", id="release-cus_1")
        answers = await asyncio.gather(*(deliver(http, "github", "v-1") for http in (one, other)))
        report = await turn.result()
        late = await deliver(one, "github", "v-2")
        missing = await deliver(one, "github", "v-3", {"customer": "cus_2", "title": "x"})
        [listed] = (await one.get("/v1/hooks", headers=as_("root"))).json()["hooks"]

    assert [answer.status_code for answer in (*answers, late, missing)] == [202, 202, 409, 404]
    assert answers[0].json() == {"turn": "release-cus_1", "event": "github:v-1"}
    assert (report.output, report.tool_calls) == ("Done.", 1)
    assert "It is broken." in str(report.messages[2])
    assert (listed["agent"], listed["event"]) == (None, "deployed")


@pytest.mark.accepts("F21")
async def test_delivery_is_the_result_of_the_call_that_its_token_names(
    runtime: Runtime, hooks: HookFiles
) -> None:
    """Once; a failure as such. A forged token, and one of another tenant, are refused."""
    service, build = Service(), calls(call("deploy", target="shop"))
    model = ScriptedModel(build, build, build, says("Done."))
    given = {"agent": None, "call": "{/customer}", "failed": {"/title": "broken"}}
    declared = hooks(table("github", **given), table("slack", **given, tenant="acme"))
    async with (
        runtime(deployer(service), model=model) as client,
        served(client, hooks=declared) as http,
    ):
        turn = await client.start("deployer", "Go.")
        token = await service.token()
        of_call = {"customer": token, "title": "built"}
        foreign = await deliver(http, "slack", "v-0", body_of("slack", "v-0") | of_call)
        forged = await deliver(http, "github", "v-1", of_call | {"customer": f"{token}A"})
        sent = [await deliver(http, "github", "v-2", of_call) for _ in range(2)]
        second = await service.token(2)
        other = await deliver(http, "github", "v-3", of_call | {"title": "another"})
        broken = {"customer": second, "title": "broken"}
        failed = await deliver(http, "github", "v-4", broken)
        await client.finish_call(await service.token(3), "ok")
        report = await turn.result()

    statuses = [answer.status_code for answer in (foreign, forged, *sent, other, failed)]
    assert statuses == [422, 422, 202, 202, 409, 202]
    assert sent[0].json() == {"turn": turn.id}
    results = [result for step in report.steps for result in step.results]
    assert [(result.content, result.is_error) for result in results] == [
        ("built", False),
        ("broken", True),
        ("ok", False),
    ]


@pytest.mark.accepts("K16")
async def test_delivery_with_a_key_wakes_the_turns_that_wait_for_it(
    runtime: Runtime, hooks: HookFiles
) -> None:
    """Of the tenant of the hook, once, also one that waits later; the key is as the sender has it.

    A delivery whose key is not valid, or names a tenant, is refused.
    """
    key = f"feature/{key_of_test()}"
    given = {"agent": None, "event": "built", "key": "{/customer}"}
    declared = hooks(table("github", **given, tenant="acme"), table("slack", **given))

    async def send(verify: str, id: str, customer: object = key) -> httpx.Response:
        body = body_of(verify, id, "It is built.")
        return await deliver(http, verify, id, {**body, "customer": customer})

    async with (
        runtime(waiter(), model=MODEL) as client,
        served(client, hooks=declared) as http,
    ):
        told = task([{"key": key}], [{"key": key, "timeout": 0.1}])
        turn = await client.start("waiter", told, id=f"@acme/{key}")
        other = await waiting_turn(client, key)
        await until(turn, WaitBegan)
        answers = [await send("github", "k-1") for _ in range(2)]
        late = await client.run("waiter", told, id=f"@acme/late/{key}")
        reports = [await turn.result(), late]
        refused = [
            await send(verify, f"k-{number}", wrong)
            for verify in ("github", "slack")
            for number, wrong in enumerate(("", "@acme/x", "x" * 201, None))
        ]
        state = (await other.status()).state
        untenanted = await send("slack", "u-1")
        await other.result()

    assert [answer.status_code for answer in (*answers, untenanted)] == [202] * 3
    assert answers[0].json() == {"event": "github:k-1", "key": f"@acme/{key}"}
    for report in reports:
        first, second = [step.results[0].content for step in report.steps[:2]]
        assert first.endswith('It holds:\n"It is built."')
        assert "did not come" in second
    assert {answer.status_code for answer in refused} == {422}
    assert state == "waiting"


@pytest.mark.accepts("K9")
async def test_hook_of_a_tenant_starts_turns_of_the_tenant(
    runtime: Runtime, hooks: HookFiles
) -> None:
    """Which its callers see, and no others, within its numbers."""
    declared = hooks(
        table("github", tenant="acme"),
        table("slack", tenant="acme", session="talk-{/customer}"),
        table("stripe", tenant="full"),
        quotas={"acme": Quota(), "full": Quota(turns=0)},
    )
    async with (
        runtime(DESK, model=model("Seen.", "Seen.")) as client,
        served(client, hooks=declared) as http,
    ):
        turn = await deliver(http, "github", "w-1")
        message = await deliver(http, "slack", "w-2")
        full = await deliver(http, "stripe", "w-3")
        report = await client.turn(turn.json()["turn"]).result()
        talk = client.session(message.json()["session"])
        await (await talk.turn_of(message.json()["message"])).result()
        anna = await http.get("/v1/turns/hooks/github/w-1")
        otto = await http.get("/v1/turns/hooks/github/w-1", headers=as_("otto"))

    assert turn.json() == {"turn": "@acme/hooks/github/w-1"}
    assert message.json() == {"session": "@acme/talk-cus_1", "message": "slack:w-2"}
    assert (full.status_code, full.headers["retry-after"]) == (429, "2")
    assert report.output == "Seen."
    assert (anna.status_code, otto.status_code) == (200, 404)


@pytest.mark.slow
@pytest.mark.accepts("K3")
async def test_ids_that_would_not_do_are_replaced_by_their_digest(
    runtime: Runtime, hooks: HookFiles
) -> None:
    """Long ones, those with slashes, and those that are the ends of paths; each is still one id."""
    ids = ["x" * 200, "a/b", "result", "../x", "a b", "@acme"]
    async with (
        runtime(DESK, model=model(*["Seen."] * len(ids))) as client,
        served(client, hooks=hooks(table("stripe"))) as http,
    ):
        answers = [await deliver(http, "stripe", id) for id in ids]
        again = [await deliver(http, "stripe", id) for id in ids]
        for answer in answers:
            await client.turn(answer.json()["turn"]).result()

    turns = [answer.json()["turn"] for answer in answers]
    assert all(re.fullmatch(r"hooks/stripe/[0-9a-f]{32}", turn) for turn in turns)
    assert len(set(turns)) == len(ids)
    assert [answer.json()["turn"] for answer in again] == turns


@pytest.mark.accepts("K4", "K12")
async def test_delivery_is_refused_for_a_moment_if_it_cannot_be_recorded(
    runtime: Runtime, hooks: HookFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that no worker takes in, with 503 and `Retry-After`; the same delivery is taken
    later. Turns need no worker to begin. Of a flood, those that have no place are refused at once.
    """
    answer = limits.HOOK_ANSWER
    monkeypatch.setattr(limits, "HOOK_ANSWER", 3 * limits.HTTP_RETRY)
    monkeypatch.setattr(limits, "HOOK_STARTS", 2)
    monkeypatch.setattr(limits, "HOOK_WAITING", 5)
    declared = hooks(table("github"), table("slack", session="talk-{/customer}"))
    async with runtime(DESK, model=model("Seen.")) as client:
        away = AgentClient.from_temporal(client.temporal, task_queue="nobody-works-here")
        async with served(away, hooks=declared) as http:
            began = time.monotonic()
            flood = [deliver(http, "slack", f"q-{n}") for n in range(12)]
            beside = deliver(http, "github", "q-1"), http.get("/v1/about", headers=as_("root"))
            *refused, turn, about = await asyncio.gather(*flood, *beside)
            took = time.monotonic() - began
            await client.turn(turn.json()["turn"]).cancel()
        monkeypatch.setattr(limits, "HOOK_ANSWER", answer)  # a moment is not enough when it is busy
        async with served(client, hooks=hooks(table("slack", session="told-{/customer}"))) as http:
            taken = await deliver(http, "slack", "q-1")
            session = client.session(taken.json()["session"])
            await (await session.turn_of(taken.json()["message"])).result()
        await client.temporal.get_workflow_handle("talk-cus_1").terminate()
        await client.temporal.get_workflow_handle(turn.json()["turn"]).terminate()

    assert {one.status_code for one in refused} == {503}
    assert {one.headers["retry-after"] for one in refused} == {"2"}
    waited = [one for one in refused if "not recorded in time" in one.json()["detail"]]
    full = [one for one in refused if "5 deliveries of this hook wait" in one.json()["detail"]]
    assert (len(waited), len(full)) == (5, 7)
    assert (turn.status_code, taken.status_code, about.status_code) == (202, 202, 200)
    assert took < 5 * limits.HTTP_RETRY.total_seconds() + 5  # not one after another


@pytest.mark.accepts("K13")
async def test_hook_opens_no_other_door(runtime: Runtime, hooks: HookFiles) -> None:
    """A signature is no token, for any other path; and a path of a hook serves nothing else."""
    paths = ("/v1/turns", "/v1/sessions/x/messages", "/mcp", "/hooks", "/hooks/", "/hooks/github/x")
    async with (
        runtime(DESK, model=ScriptedModel()) as client,
        served(client, hooks=hooks(table("github"))) as http,
    ):
        answers = {path: await deliver(http, "github", "o-1", path=path) for path in paths}
        known = await is_known(client, "hooks/github/o-1")

    statuses = {path: answer.status_code for path, answer in answers.items()}
    assert statuses == dict(zip(paths, (401, 401, 401, 404, 404, 404), strict=True))
    assert not known
