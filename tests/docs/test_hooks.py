"""Run the code blocks of `docs/hooks.md` with the real `perdure serve`."""

from __future__ import annotations

import json
import re

import httpx
import pytest

from perdure import Agent
from perdure.clients.gateway import hooks_from
from perdure.testing import ScriptedModel, call, calls, says
from perdure.toolboxes import waiting

from ..support.docs.commands import commands
from ..support.gateway.hooks import SECRETS, deliver, task_of
from ..support.gateway.served import served
from .conftest import Tell

FAILED = {
    "id": "evt_1",
    "type": "invoice.payment_failed",
    "data": {"object": {"id": "in_1", "customer": "cus_7", "amount_due": 4000, "attempt_count": 2}},
}
DEPLOYED = {
    "deployment": {"sha": "a1b2c3"},
    "deployment_status": {"state": "success", "environment": "production"},
}
BUILT = {
    "action": "completed",
    "check_run": {"head_sha": "d4e5f6", "name": "tests", "conclusion": "success"},
}
MENTION = {
    "type": "event_callback",
    "event_id": "Ev1",
    "event": {"type": "app_mention", "user": "U1", "channel": "C1", "text": "<@U0> help"},
}


@pytest.mark.slow
@pytest.mark.accepts("K1", "K3", "K14", "P7")
async def test_hooks_start_agents_as_the_page_says(
    tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GitHub's by curl and openssl, those of Stripe and Slack by deliveries of their form."""
    monkeypatch.setenv("STRIPE_WEBHOOK_SECRET", SECRETS["stripe"])
    monkeypatch.setenv("SLACK_SIGNING_SECRET", SECRETS["slack"])
    async with tell("hooks") as story:
        agents = [Agent(name=name, model="main") for name in ("triage", "billing", "helper")]
        agents.append(Agent(name="releaser", model="main", toolboxes=[waiting()]))
        waits = calls(call("wait_for", event="deployed", note="the deployment"))
        builds = calls(call("wait_for", event="build_finished", key="d4e5f6", note="the build"))
        model = ScriptedModel(
            *[says("Done.")] * 3, waits, says("Watched."), builds, says("It is built.")
        )
        client = await story.works(agents, model)
        folder = story.terminal.folder
        github = await story.up_to("A GitHub issue starts an agent", "toml")
        (folder / "hooks.toml").write_text(github.text, encoding="utf-8")
        *exports, serve = commands(await story.up_to("A GitHub issue starts an agent", "console"))
        for export in exports:
            story.terminal.export(export)
        async with story.terminal.stays(serve) as (_, printed):
            [url] = re.findall(r"http://[^;\s]+", printed)
            story.terminal.environment["PERDURE"] = url
            issue = await story.up_to("Try a delivery", "json")
            (folder / "issue.json").write_text(issue.text, encoding="utf-8")
            await story.through("Try a delivery")
        report = await client.turn("hooks/github/72d3162e").result()
        stripe = await story.up_to("A failed payment goes to the session of the customer", "toml")
        slack = await story.up_to("A mention in Slack", "toml")
        deployed = await story.up_to("A deployment wakes a turn that waits", "toml")
        built = await story.up_to("A build wakes the turns that wait for it", "toml")
        secret = story.terminal.environment["GITHUB_WEBHOOK_SECRET"]
        monkeypatch.setenv("GITHUB_WEBHOOK_SECRET", secret)
        (folder / "others.toml").write_text(
            "\n".join([stripe.text, slack.text, deployed.text, built.text]), encoding="utf-8"
        )
        async with served(client, hooks=hooks_from(folder / "others.toml")) as http:
            answers: list[httpx.Response] = [
                await deliver(http, "stripe", "evt_1", FAILED),
                await deliver(http, "slack", "Ev1", MENTION),
                await deliver(http, "stripe", "evt_2", {**FAILED, "type": "invoice.paid"}),
            ]
            told = [
                await (await client.session(answer["session"]).turn_of(answer["message"])).result()
                for answer in (answers[0].json(), answers[1].json())
            ]
            turn = await client.start("releaser", "Watch.", id="release-a1b2c3")
            event = await deliver(
                http,
                "github",
                "d-1",
                DEPLOYED,
                path="/hooks/deployments",
                secret=secret,
                X_GitHub_Event="deployment_status",
            )
            woken = await turn.result()
            by_key = await deliver(
                http,
                "github",
                "d-2",
                BUILT,
                path="/hooks/builds",
                secret=secret,
                X_GitHub_Event="check_run",
            )
            late = await client.run("releaser", "Watch the build.")

    assert task_of(report) == (
        f"Issue 7 of acme/house: {json.loads(issue.text)['issue']['title']}\n\nSince Monday.\n"
    )
    assert [answer.status_code for answer in answers] == [202, 202, 204]
    assert event.json() == {"turn": "release-a1b2c3", "event": "deployments:d-1"}
    assert "success: production" in str(woken.messages[2])
    assert by_key.json() == {"event": "builds:d-2", "key": "d4e5f6"}
    assert "tests: success" in str(late.messages[2])
    assert answers[0].json() == {"session": "customer-cus_7", "message": "stripe:evt_1"}
    assert [task_of(one) for one in told] == [
        "Invoice in_1 of 4000 cents was not paid, attempt 2.",
        "<@U1> says: <@U0> help",
    ]
