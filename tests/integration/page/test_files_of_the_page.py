"""The page for people, as files: what protects it, and what it is made of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from perdure import Agent, errors
from perdure.clients.gateway import Permission, app
from perdure.clients.gateway.static_page import FOLDER
from perdure.testing import ScriptedModel

from ...conftest import Runtime
from ...support.gateway.served import as_, by_name, served, told

DESK = Agent(name="desk", model="main")
FILES = sorted(FOLDER.iterdir())
UNSAFE = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser"
    r"|\beval\b|new Function|setAttribute\(\s*\"(?:on|style)|localStorage|\.cookie|https?://"
)


@pytest.mark.accepts("H63", "H71")
async def test_page_is_served_without_a_token_and_with_a_strict_policy(runtime: Runtime) -> None:
    """Below any prefix; other paths of the folder are 404, and it is asked for again when it has
    changed.
    """
    async with runtime(DESK, model=ScriptedModel()) as client, served(client) as http:
        http.headers.pop("authorization")
        start = [await http.get(path) for path in ("/", "/ui")]
        index = await http.get("/ui/")
        files = {path.name: await http.get(f"/ui/{path.name}") for path in FILES}
        again = await http.get("/ui/", headers={"If-None-Match": index.headers["etag"]})
        strange = [
            await http.get(path)
            for path in ("/ui/nothing.js", "/ui/../about.py", "/ui/%2e%2e/about.py", "/ui/%00")
        ]
        post = await http.post("/ui/")
        transport = httpx.ASGITransport(Starlette(routes=[Mount("/agents", app(client, by_name))]))
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as mounted:
            below = await mounted.get("/agents/", follow_redirects=True)

    assert [(one.status_code, one.headers["location"]) for one in start] == [(307, "/ui/")] * 2
    assert {one.status_code for one in (index, *files.values())} == {200}
    policy = index.headers["content-security-policy"]
    assert policy.split("; ") == [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    ]
    for one in (index, again, *files.values()):
        assert one.headers["content-security-policy"] == policy
        assert one.headers["referrer-policy"] == "no-referrer"
        assert one.headers["x-content-type-options"] == "nosniff"
        assert one.headers["cache-control"] == "no-cache"
    assert again.status_code == 304
    assert (below.status_code, below.url.path, below.content) == (
        200,
        "/agents/ui/",
        index.content,
    )
    assert [told(one) for one in strange] == [(404, "NOT_FOUND")] * 4
    assert told(post) == (405, "METHOD_NOT_ALLOWED")


@pytest.mark.accepts("H63", "H64", "H71")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_file_of_the_page_makes_no_html_of_texts_and_names_no_other_host(path: Path) -> None:
    """No text becomes HTML or script, nothing is fetched from elsewhere, no token is stored."""
    text = path.read_text(encoding="utf-8")

    assert UNSAFE.findall(text) == []
    if path.suffix == ".js":
        assert [line for line in text.splitlines() if len(line) > 100] == []


@pytest.mark.accepts("H73")
async def test_gateway_says_what_the_caller_may_and_where_temporal_is(runtime: Runtime) -> None:
    """The address of Temporal's UI, which shows all tenants, only to a caller without a tenant."""
    ui = "http://localhost:8233/"
    async with (
        runtime(DESK, model=ScriptedModel()) as client,
        served(client, temporal_ui=ui) as http,
        served(client) as without,
    ):
        about = {
            name: (await http.get("/v1/about", headers=as_(name))).json()
            for name in ("root", "rita")
        }
        unknown = (await without.get("/v1/about", headers=as_("root"))).json()
        with pytest.raises(errors.ConfigurationError, match=r"give one such as http://"):
            app(client, by_name, temporal_ui="javascript:alert(1)")
        namespace = client.temporal.namespace

    assert about["root"] | {"version": ""} == {
        "version": "",
        "subject": "root@example.com",
        "tenant": None,
        "may": sorted(get_args(Permission)),
        "temporal_ui": f"http://localhost:8233/namespaces/{namespace}/workflows",
        "session_ends_at": None,
    }
    assert (about["rita"]["tenant"], about["rita"]["may"]) == ("acme", ["read"])
    assert about["rita"]["temporal_ui"] is unknown["temporal_ui"] is None
