"""`perdure hooks`: what is in a file of hooks, and what a recorded delivery would start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ...support.e2e.command_line import InProcess
from ...support.gateway.hooks import SECRETS, VARIABLES, body_of, table


@pytest.fixture
def perdure(tmp_path: Path) -> InProcess:
    """The command line in a folder with hooks and a delivery."""
    here = InProcess(tmp_path)
    here.environment |= {VARIABLES[verify]: SECRETS[verify] for verify in SECRETS}
    tables = (
        table("slack", filter={"/action": "opened"}),
        table("stripe", session="c-{/customer}"),
        table("github", agent=None, event="seen", turn="t-{/customer}"),
    )
    (tmp_path / "hooks.toml").write_text("\n".join(tables), encoding="utf-8")
    (tmp_path / "body.json").write_text(json.dumps(body_of("slack", "d-1")), encoding="utf-8")
    closed = {**body_of("slack", "d-1"), "action": "closed"}
    (tmp_path / "closed.json").write_text(json.dumps(closed), encoding="utf-8")
    (tmp_path / "wrong.json").write_text('{"event_id": "d-1", "action": "opened"}', "utf-8")
    (tmp_path / "test.json").write_text('{"type": "url_verification"}', "utf-8")
    return here


@pytest.mark.accepts("K14")
def test_command_shows_the_hooks_of_a_file_and_their_addresses(perdure: InProcess) -> None:
    """A file that is not valid is refused as by `perdure serve`."""
    shown = perdure("hooks", "hooks.toml", "--url", "https://agents.example.com/")
    refused = perdure("hooks", "hooks.toml", **{VARIABLES["slack"]: ""})

    assert shown.stdout == (
        "https://agents.example.com/hooks/slack  slack: starts a turn of desk\n"
        "https://agents.example.com/hooks/stripe  stripe: sends a message to a session of desk\n"
        "https://agents.example.com/hooks/github  github: sends the event seen to a turn\n"
    )
    assert (shown.returncode, refused.returncode) == (0, 2)
    assert "hook 1 of hooks.toml (/hooks/slack) is not valid: secrets: " in refused.stderr


@pytest.mark.parametrize(
    ("path", "body", "shown"),
    [
        ("/hooks/slack", "body.json", "turn hooks/slack/d-1 of desk:\n\nIt is broken.\n"),
        ("/hooks/slack", "closed.json", "nothing: the filter leaves it out\n"),
        ("/hooks/slack", "test.json", "nothing: it is a test of the address, which is answered\n"),
        (
            "/hooks/stripe",
            "body.json",
            "message stripe:d-1 to session c-cus_1 of desk:\n\nIt is broken.\n",
        ),
        ("/hooks/slack", "wrong.json", "422 INVALID_REQUEST: the delivery is not valid: /title"),
        ("/hooks/none", "body.json", "there is no hook '/hooks/none'"),
        ("/hooks/slack", "none.json", "none.json cannot be read"),
    ],
)
@pytest.mark.accepts("K14")
def test_command_shows_what_a_delivery_would_start(
    perdure: InProcess, path: str, body: str, shown: str
) -> None:
    """Without its signature, and without a server; it says why a delivery would be refused."""
    perdure.environment["TEMPORAL_ADDRESS"] = "127.0.0.1:1"
    ended = perdure("hooks", "hooks.toml", "--path", path, "--body", body)

    if ended.returncode == 0:
        assert ended.stdout == shown
    else:
        assert shown in ended.stderr


@pytest.mark.accepts("K14")
def test_command_refuses_a_delivery_without_a_path(perdure: InProcess) -> None:
    """And a header without a value."""
    lonely = perdure("hooks", "hooks.toml", "--body", "body.json")
    header = perdure("hooks", "hooks.toml", "--header", "X-Event")

    assert "give --path and --body, or none of them" in lonely.stderr
    assert "'X-Event' is not NAME:VALUE" in header.stderr
