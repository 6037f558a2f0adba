"""Files of hooks: what is wrong is named when the gateway starts."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import errors
from perdure.clients.gateway import Quota, hooks_from

from ..support.gateway.hooks import HookFiles, table


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HookFiles:
    """Files of hooks, with their secrets in the environment."""
    return HookFiles(tmp_path, monkeypatch)


@pytest.mark.accepts("K8")
def test_file_has_hooks_with_their_secrets_and_options(files: HookFiles) -> None:
    """The secrets are in no text about them."""
    github, stripe = files(
        table("github", filter={"X-GitHub-Event": "issues", "/action": ["opened", "edited"]}),
        table(
            "stripe",
            session="customer-{/customer}",
            budget={"usd": "0.50"},
            idle="PT1H",
            replay_window="PT10M",
            tenant="acme",
        ),
    )

    assert (github.name, github.table.filter) == (
        "github",
        {"X-GitHub-Event": ("issues",), "/action": ("opened", "edited")},
    )
    assert (stripe.caller.tenant, stripe.caller.subject) == ("acme", "hook /hooks/stripe")
    assert stripe.table.replay_window == timedelta(minutes=10)
    assert stripe.table.common(stripe.caller)["budget"].usd == 0.5
    assert all(str(key) not in repr(hook) for hook in (github, stripe) for key in hook.keys)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no path": ({"path": None}, r"hook 1 of \S+ \(without a path\).*path: Field required"),
    "a path of the API": ({"path": "/v1/turns"}, r"\(/v1/turns\) .*path: .*a path is /hooks/"),
    "a path below another": ({"path": "/hooks/a/b"}, "path: .*a path is /hooks/"),
    "a long path": ({"path": "/hooks/" + "a" * 25}, "path: .*1 to 24 letters"),
    "a path with a parameter": ({"path": "/hooks/{id}"}, "path: .*a path is /hooks/"),
    "an unknown scheme": ({"verify": "none"}, r"\(/hooks/github\) .*verify: .*'standard-webhooks'"),
    "no secret": ({"secrets": []}, "secrets: .*at least 1"),
    "many secrets": ({"secrets": ["A"] * 6}, "secrets: .*at most 5"),
    "a secret that is not set": (
        {"secrets": ["NO_SUCH"]},
        "secrets: .*NO_SUCH is not set$",
    ),
    "a short secret": ({"secrets": ["SHORT"]}, "secrets: .*SHORT does not hold .*16 characters"),
    "a secret of another kind": (
        {"verify": "standard-webhooks"},
        "GITHUB_SECRET does not hold 'whsec_' and the base64 of 24 to 64 bytes",
    ),
    "no agent": ({"agent": None}, "give an agent, or an event and either the turn that gets it"),
    "a key for an agent": ({"key": "{/id}"}, "not both"),
    "a key without an event": ({"agent": None, "key": "{/id}"}, "give an agent, or an event and"),
    "an event with a turn and a key": (
        {"agent": None, "event": "deployed", "turn": "t-{/id}", "key": "{/id}"},
        "either the turn that gets it or its key",
    ),
    "an event for nobody": ({"agent": None, "event": "deployed"}, "give an agent, or an event and"),
    "an event for an agent": ({"event": "deployed", "turn": "t-{/id}"}, "not both"),
    "an option of an event": (
        {"agent": None, "event": "deployed", "turn": "t-{/id}", "labels": {"a": "b"}},
        "labels needs an agent",
    ),
    "an event for any turn": (
        {"agent": None, "event": "deployed", "turn": "{/id}"},
        "turn begins with text of your own",
    ),
    "an empty agent": ({"agent": ""}, "agent: .*at least 1"),
    "an empty template": ({"template": ""}, "template: .*at least 1"),
    "a brace": ({"template": "{"}, "template: .*single {"),
    "a filter by nothing": ({"filter": {"a b": "c"}}, "filter.*neither a JSON pointer"),
    "a filter by a table": ({"filter": {"/a": {"b": "c"}}}, "filter"),
    "a session of the sender's choice": (
        {"session": "{/customer}"},
        "session begins with text of your own",
    ),
    "an option without a session": ({"idle": "PT1H"}, "idle needs a session"),
    "a message that may be refused": (
        {"session": "a-{/customer}", "if_busy": "reject"},
        "if_busy: Input should be 'queue', 'steer' or 'interrupt'",
    ),
    "no window": ({"replay_window": "PT0S"}, "replay_window: .*at most 60 minutes"),
    "a long window": ({"replay_window": "P1D"}, "replay_window: .*at most 60 minutes"),
    "an unknown field": ({"agents": "desk"}, "agents: Extra inputs"),
    "an option of a wrong type": ({"budget": {"usd": 0.5}}, "budget.usd"),
    "a tenant that is not valid": ({"tenant": "a b"}, "tenant"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.accepts("K8")
def test_hook_that_is_not_valid_keeps_the_gateway_from_starting(
    files: HookFiles, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """The error names the file, the hook and the field."""
    monkeypatch.setenv("SHORT", "sesame")
    fields, words = WRONG[wrong]

    with pytest.raises(errors.ConfigurationError, match=words) as refused:
        files(table("github", **fields))

    assert "hooks.toml" in refused.value.message
    assert "sesame" not in refused.value.message


@pytest.mark.accepts("K8")
def test_file_that_cannot_be_read_or_has_a_path_twice_is_refused(
    files: HookFiles, tmp_path: Path
) -> None:
    """Also if the paths differ by case only, and if there is no hook."""
    for tables, words in (
        ([table("github"), table("slack", path="/hooks/GitHub")], "hooks 1 and 2 .* same path"),
        (["[[hook]"], "cannot be read"),
        ([""], "hook: Field required"),
        (["hook = []"], "hook: .*at least 1"),
        (["[[hooks]]"], "hooks: Extra inputs"),
    ):
        with pytest.raises(errors.ConfigurationError, match=words):
            files(*tables)
    with pytest.raises(errors.ConfigurationError, match="cannot be read"):
        hooks_from(tmp_path / "none.toml")


@pytest.mark.accepts("K9")
def test_tenant_of_a_hook_is_one_of_the_file_of_tokens(files: HookFiles) -> None:
    """With the numbers that it has there."""
    quotas = {"acme": Quota(turns=3)}
    [hook] = files(table("github", tenant="acme"), quotas=quotas)

    assert hook.caller.quota == Quota(turns=3)
    with pytest.raises(errors.ConfigurationError, match=r"tenant: there is no caller of .*'acmee'"):
        files(table("github", tenant="acmee"), quotas=quotas)
