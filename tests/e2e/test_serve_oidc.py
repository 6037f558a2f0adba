"""`perdure serve --oidc` as a process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from perdure.testing import FakeIssuer

from ..support.e2e.command_line import CommandLine, InProcess
from ..support.e2e.gateways import url_of
from ..support.gateway.identity import ANNA, AUDIENCE, COOKIE_KEY, access

CLAIMS = """
[claims]
tenant = "org"
permissions = "groups"

[may]
staff = ["operator", "budget"]
readers = ["viewer"]

[tenants]
org-1 = "acme"
"""
TOKENS = """
[[caller]]
sha256 = "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12c4a1f5d3a2a3a4c7e5f8a9b0"
subject = "anna"
may = ["superuser"]
"""
BAD = {
    "bad.toml": '[may]\nstaff = ["boss"]\n',
    "twice.toml": '[claims]\ntenant = "o"\n[tenants]\na = "x"\nb = "X"\n',
    "without.toml": '[tenants]\na = "x"\n',
    "tokens.toml": TOKENS,
}
ISSUER = ("--oidc", "https://id.example.com")
COMPLETE = (*ISSUER, "--audience", "a")


@pytest.fixture
def perdure(perdure_server: str, tmp_path: Path) -> CommandLine:
    """The command line beside a server."""
    here = CommandLine(tmp_path)
    here.environment["TEMPORAL_ADDRESS"] = perdure_server
    for name, text in {"claims.toml": CLAIMS, **BAD}.items():
        (here.folder / name).write_text(text, encoding="utf-8")
    return here


@pytest.fixture
def here(perdure: CommandLine) -> InProcess:
    """The same, in this process."""
    here = InProcess(perdure.folder)
    here.environment = perdure.environment
    return here


@pytest.mark.slow
@pytest.mark.accepts("G72", "G80")
async def test_login_goes_on_in_another_process(perdure: CommandLine) -> None:
    """After the one where it has begun was killed, with the same key and the same secret."""
    with FakeIssuer() as issuer:
        issuer.person, issuer.secrets = ANNA, {"page": "a-secret"}
        command = [
            *("serve", "--port", "0", "--oidc", issuer.url, "--audience", AUDIENCE),
            *("--claims", "claims.toml", "--client-id", "page", "--rate", "3/h"),
        ]
        given = {"PERDURE_COOKIE_KEY": COOKIE_KEY, "PERDURE_OIDC_SECRET": "a-secret"}
        with (
            perdure.started(*command, **given) as one,
            perdure.started(*command, **given) as other,
        ):
            urls = [await url_of(process) for process in (one, other)]
            async with httpx.AsyncClient(verify=False, timeout=60) as browser:
                begun = await browser.get(f"{urls[0]}/ui/login")
                one.process.kill()
                await asyncio.to_thread(one.process.wait, 30)
                returned = await browser.get(begun.headers["location"])
                query = returned.headers["location"].partition("?")[2]
                # where it has begun is its redirect URI, so the provider would not take this one
                refused = await browser.get(f"{urls[1]}/ui/callback?{query}")
                again = await browser.get(f"{urls[1]}/ui/login")
                back = await browser.get(again.headers["location"])
                done = await browser.get(back.headers["location"])
                about = await browser.get(f"{urls[1]}/v1/about")
                headers = access(issuer, sub="u-9", groups=["readers"])
                program = [
                    await browser.get(f"{urls[1]}/v1/about", headers=headers) for _ in range(4)
                ]
            with perdure.started(*command, **given) as third:
                async with httpx.AsyncClient(
                    cookies=browser.cookies, verify=False, timeout=60
                ) as same:
                    kept = await same.get(f"{await url_of(third)}/v1/about")

    assert (refused.status_code, done.status_code) == (403, 303)
    assert about.json()["may"] == ["budget", "control", "decide", "read", "start"]
    assert [answer.status_code for answer in program] == [200, 200, 200, 429]
    assert kept.json()["subject"] == "anna"


@pytest.mark.accepts("G65", "G69", "G80")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--audience", "a"), "name it with --oidc"),
        (("--client-id", "a"), "name it with --oidc"),
        (ISSUER, "needs an audience"),
        (("--oidc", "http://id.example.com", "--audience", "a"), "must be an address with https"),
        ((*COMPLETE, "--url", "http://agents.example.com"), "must be an address with https"),
        ((*COMPLETE, "--claims", "nothing.toml"), "the claims of nothing.toml cannot be read"),
        ((*COMPLETE, "--claims", "bad.toml"), "'boss' is neither a permission"),
        ((*COMPLETE, "--claims", "twice.toml"), "differ by case only"),
        ((*COMPLETE, "--claims", "without.toml"), "does not say which claim has it"),
        (("--tokens", "tokens.toml"), "'superuser' is neither a permission"),
        (("--rate", "20"), "'20' is not a rate; write it like 20/s"),
    ],
    ids=str,
)
@pytest.mark.table(1)
def test_gateway_with_a_mistake_does_not_start(
    here: InProcess, arguments: tuple[str, ...], words: str
) -> None:
    """In one line, with the exit code of a mistake."""
    done = here("serve", *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
