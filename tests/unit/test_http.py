"""Rules of the HTTP gateway: statuses, callers, tokens, ids, and its document."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openapi_spec_validator import validate
from sse_starlette.event import ServerSentEvent
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message

from perdure import errors, limits
from perdure.clients.gateway import Caller, Quota, app, extras, one_token, tokens_from
from perdure.clients.gateway.application import operations
from perdure.clients.gateway.ids import RESERVED
from perdure.clients.gateway.inputs import Bodies, Nothing, body_of, bytes_of, least_values
from perdure.clients.gateway.problems import STATUS, RefusedError, response_to
from perdure.clients.gateway.rest import session_events
from perdure.clients.gateway.rest.sessions import SendMessage
from perdure.clients.gateway.streams import EventStream, OpenRequests, begun
from perdure.session.facts import SessionFact

from ..support.docs import openapi_document

CALLER = Caller("anna", "acme")


def callers() -> list[type[errors.PerdureError]]:
    """The errors of the branch `caller` in the tree of errors, as drawn in its module."""
    drawn = (errors.__doc__ or "").partition("caller: nothing ran")[2]
    return [getattr(errors, name) for name in re.findall(r"\w+Error\b", drawn)]


def test_every_error_of_callers_has_a_status() -> None:
    """Those that only the operator can fix are 500, and say nothing of the reason."""
    found = {one.__name__: response_to(one("because")) for one in callers()}

    assert {name for name, one in found.items() if one.status_code == 500} == {
        "UnknownVersionError",
        "PayloadDecodeError",
        "DecryptionError",
        "ConfigurationError",
    }
    for name, one in found.items():
        assert ("because" in bytes(one.body).decode()) == (one.status_code != 500), name
    assert set(STATUS) <= {*callers(), errors.TooLargeError, errors.TurnBudgetExceededError}


@pytest.mark.accepts("H119")
def test_errors_that_pass_say_when_to_try_again() -> None:
    """Too many updates are the caller's to slow down; a server that is away is not."""
    found = [
        response_to(one("because"))
        for one in (errors.TooManyRequestsError, errors.ServerUnreachableError)
    ]

    assert [one.status_code for one in found] == [429, 503]
    assert [one.headers["retry-after"] for one in found] == ["1", "1"]


def test_unexpected_errors_are_logged_and_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Neither their message nor their type."""
    found = response_to(ValueError("secret"))

    assert found.status_code == 500
    assert json.loads(bytes(found.body))["code"] == "INTERNAL"
    assert "secret" not in bytes(found.body).decode()
    assert "secret" in caplog.text


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("x", "@acme/x"),
        ("@acme/x", "@acme/x"),
        ("@other/x", "@acme/@other/x"),
        ("@ACME/x", "@acme/@ACME/x"),
        ("../@other/x", "@acme/../@other/x"),
        ("", "@acme/"),
    ],
)
def test_any_id_that_a_tenant_gives_is_its_own(given: str, wanted: str) -> None:
    """Whatever it begins with."""
    assert CALLER.own(given) == wanted
    assert Caller("root", None).own(given) == given


@pytest.mark.parametrize(
    "fields",
    [
        {"subject": ""},
        {"subject": "a\nb"},
        {"subject": "a" * (limits.BY_CHARACTERS + 1)},
        {"tenant": ""},
        {"tenant": "a/b"},
        {"tenant": "a" * (limits.TENANT_CHARACTERS + 1)},
        {"may": frozenset({"everything"})},
        {"may": "read"},
    ],
    ids=str,
)
def test_caller_that_is_not_valid_is_refused(fields: dict[str, Any]) -> None:
    """When it is made."""
    with pytest.raises(errors.ConfigurationError, match=next(iter(fields))):
        Caller(**{"subject": "anna", "tenant": "acme", **fields})


def request(authorization: str | None) -> Request:
    headers = [] if authorization is None else [(b"authorization", authorization.encode())]
    return Request({"type": "http", "headers": headers})


def test_tokens_of_a_file_are_known_by_their_digest(tmp_path: Path) -> None:
    """The file has no token."""
    path = tmp_path / "tokens.toml"
    digests = [hashlib.sha256(one).hexdigest() for one in (b"one" * 16, b"two" * 16)]
    path.write_text(
        f'[[caller]]\nsha256 = "{digests[0]}"\nsubject = "anna"\ntenant = "acme"\nmay = ["read"]\n'
        f'[[caller]]\nsha256 = "{digests[1]}"\nsubject = "root"\n',
        encoding="utf-8",
    )
    known = tokens_from(path)
    found = [
        known(request(one and one.replace("one", "one" * 16).replace("two", "two" * 16)))
        for one in ("Bearer one", "bearer two", "Bearer three", "Basic one", "one", "Bearer ", None)
    ]

    assert found == [
        Caller("anna", "acme", frozenset({"read"})),
        Caller("root", None),
        *[None] * 5,
    ]


@pytest.mark.accepts("H115")
def test_file_of_tokens_has_the_numbers_of_tenants(tmp_path: Path) -> None:
    """Those that it does not name are the defaults, as are all of a tenant without an entry."""
    path = tmp_path / "tokens.toml"
    tenants = {"a" * 32: "acme", "b" * 32: "acme", "c" * 32: "other"}
    path.write_text(
        "".join(
            f'{entry(token.encode(), token)}tenant = "{tenant}"\n'
            for token, tenant in tenants.items()
        )
        + '[[tenant]]\nname = "acme"\nturns = 500\nbatches = 0\n',
        encoding="utf-8",
    )
    known = tokens_from(path)
    found = [known(request(f"Bearer {token}")) for token in tenants]

    assert [one.quota for one in found if isinstance(one, Caller)] == [
        Quota(turns=500, batches=0),
        Quota(turns=500, batches=0),
        Quota(),
    ]


@pytest.mark.parametrize(
    "text",
    [
        None,
        "no TOML",
        "caller = 1",
        '[[caller]]\nsha256 = "abc"\nsubject = "anna"',
        f'[[caller]]\nsha256 = "{"0" * 64}"\nsubject = "anna"\ntennant = "acme"',
        f'[[caller]]\nsha256 = "{"0" * 64}"\nsubject = "anna"\nmay = ["all"]',
        f'[[caller]]\nsha256 = "{"0" * 64}"\nsubject = "a"\n' * 2,
        f'[[caller]]\nsha256 = "{"0" * 64}"\nsubject = "a"\n[[tenant]]\nname = "acme"',
        (
            f'[[caller]]\nsha256 = "{"0" * 64}"\nsubject = "a"\ntenant = "acme"\n'
            '[[tenant]]\nname = "acme"\nturns = -1'
        ),
        *(
            f'[[caller]]\nsha256 = "{"0" * 64}"\nsubject = "a"\ntenant = "acme"\n{numbers}'
            for numbers in (
                '[[tenant]]\nname = "acme"\n' * 2,
                '[[tenant]]\nname = "acme"\nturns = "5"',
                '[[tenant]]\nname = "acme"\nstreams = 5',
                "[[tenant]]\nturns = 5",
                '[[tenant]]\nname = "ACME"\nturns = 5',
            )
        ),
        "".join(
            f'[[caller]]\nsha256 = "{digit * 64}"\nsubject = "a"\ntenant = "{tenant}"\n'
            for digit, tenant in (("0", "acme"), ("1", "ACME"))
        ),
    ],
    ids=str,
)
def test_file_of_tokens_that_is_not_valid_is_refused(text: str | None, tmp_path: Path) -> None:
    """With the name of the file, before anything is served."""
    path = tmp_path / "tokens.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")

    with pytest.raises(errors.ConfigurationError, match=re.escape(str(path))):
        tokens_from(path)


def entry(token: bytes, subject: str) -> str:
    return f'[[caller]]\nsha256 = "{hashlib.sha256(token).hexdigest()}"\nsubject = "{subject}"\n'


@pytest.mark.accepts("H16", "H128")
def test_file_of_tokens_is_read_again_when_it_has_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not while it is being written. One that is not valid changes nothing, and without one nobody
    is let in, until it is back.
    """
    path = tmp_path / "tokens.toml"
    tokens = {name: name * 16 for name in ("one", "two")}

    def write(text: str, age_s: float) -> None:
        path.write_text(text, encoding="utf-8")
        written = time.time() - age_s
        os.utime(path, (written, written))

    def callers() -> list[str]:
        found = (known(request(f"Bearer {one}")) for one in tokens.values())
        return [one.subject for one in found if isinstance(one, Caller)]

    one, two = entry(tokens["one"].encode(), "anna"), entry(tokens["two"].encode(), "bert")
    write(one, 60)
    path.chmod(0o600)
    known = tokens_from(path)
    seen = [callers()]
    write(two, 0)
    seen.append(callers())
    write(two, 5)
    seen.append(callers())
    write(one + "[[caller", 4)
    seen += [callers(), callers()]
    path.unlink()
    seen += [callers(), callers()]
    write(one + two, -3600)
    seen.append(callers())

    assert seen == [["anna"], ["anna"], *[["bert"]] * 3, [], [], ["anna", "bert"]]
    said = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert [level for level, _ in said] == ["ERROR", "ERROR", "WARNING"]
    assert "stay as they were" in said[0][1]
    assert said[1:] == [
        ("ERROR", f"{path} is gone: the gateway lets nobody in until it is back"),
        ("WARNING", f"other users may read {path}; chmod 600 ends that"),
    ]


@pytest.mark.accepts("H128")
def test_token_of_a_file_that_is_short_is_not_taken(tmp_path: Path) -> None:
    """It could be guessed from its SHA-256, which the file has."""
    path, tokens = tmp_path / "tokens.toml", ("x" * 31, "y" * 32)
    path.write_text("".join(entry(one.encode(), one) for one in tokens), encoding="utf-8")
    known = tokens_from(path)

    assert known(request(f"Bearer {tokens[0]}")) is None
    assert isinstance(known(request(f"Bearer {tokens[1]}")), Caller)


def test_places_of_streams_are_returned() -> None:
    """Also after an error; no caller is kept in memory."""
    places = OpenRequests(2, 1)
    with pytest.raises(ValueError, match="x"), places.one_of(CALLER):
        raise ValueError("x")

    assert not places._open


@pytest.mark.accepts("H91")
def test_callers_of_one_tenant_leave_streams_to_others() -> None:
    """Together they have half of the places, however many subjects the tenant has."""
    places, codes = OpenRequests(4, 1), []
    with contextlib.ExitStack() as held:
        for subject, tenant in (("a", "acme"), ("b", "acme"), ("c", "acme"), ("d", "umbrella")):
            try:
                held.enter_context(places.one_of(Caller(subject, tenant)))
            except RefusedError as refused:
                codes.append(refused.status)
            else:
                codes.append(200)

    assert codes == [200, 200, 429, 200]


@pytest.mark.accepts("H18")
async def test_bodies_of_a_process_have_a_memory_of_their_own() -> None:
    """One without room is read to its end and refused, and the memory is returned."""
    bodies, ends = Bodies(most_bytes=10), asyncio.Event()
    sending = asyncio.create_task(body_of(_sends(b'{"text"', ends), SendMessage, bodies))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(RefusedError) as refused:
        await body_of(_sends(b'{"text":1}'), SendMessage, bodies)
    ends.set()
    with pytest.raises(RefusedError, match="EOF"):
        await sending
    small = await body_of(_sends(b"{}"), Nothing, bodies)

    assert (refused.value.status, refused.value.code) == (503, "TOO_MANY_REQUESTS")
    assert small == Nothing()
    assert bodies.keep(10)


@pytest.mark.accepts("H18")
async def test_large_bodies_are_validated_one_at_a_time_with_pauses() -> None:
    """Others are served in the pauses."""
    bodies, order = Bodies(), []

    async def one(name: str, size: int) -> None:
        async with bodies.turn_of(size):
            order.append(name)
            time.sleep(0.02)  # noqa: ASYNC251 - as validation does

    began = time.perf_counter()
    await asyncio.gather(one("large", 10**6), one("larger", 10**6), one("small", 1))
    took = time.perf_counter() - began

    assert order == ["large", "small", "larger"]
    assert took >= 0.16


@pytest.mark.accepts("H18")
async def test_bodies_of_other_protocols_have_the_same_limits() -> None:
    """The number of values, also for small ones, and a large body waits until it is its turn."""
    bodies = Bodies()
    many = b"[" + b"1," * limits.HTTP_BODY_VALUES + b"1]"
    with pytest.raises(RefusedError, match="more than 20000 values") as refused:
        await bytes_of(_sends(many), bodies)
    large = b" " * 10**6
    async with bodies.turn_of(len(large)):
        waits = asyncio.create_task(bytes_of(_sends(large), bodies))
        small = await bytes_of(_sends(b"not JSON"), bodies)
        await asyncio.sleep(0.05)
        has_waited = not waits.done()

    assert refused.value.status == 413
    assert small == b"not JSON"
    assert has_waited
    assert await waits == large


@pytest.mark.accepts("H145")
async def test_path_that_is_too_long_is_refused_before_anything_else() -> None:
    """To match it with routes would take longer than to refuse a token, and needs none. The path
    of the longest id is taken, also encoded.
    """
    nothing: Any = None
    transport = httpx.ASGITransport(app(nothing, lambda _: None))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
        deep = await http.get("/v1/sessions/" + "messages/" * 6_000)
        known = await http.get(f"/v1/turns/{'%C3%A4' * 1_000}/messages/{'%C3%A4' * 100}")
        openai = await http.get("/openai/v1/responses/" + "messages/" * 6_000)

    assert (deep.status_code, deep.json()["code"]) == (414, "URI_TOO_LONG")
    assert deep.headers["cross-origin-resource-policy"] == "same-origin"
    assert (openai.status_code, openai.json()["error"]["code"]) == (400, "URI_TOO_LONG")
    assert openai.headers["x-request-id"].startswith("req_")
    assert openai.headers["cross-origin-resource-policy"] == "same-origin"
    assert known.status_code == 401


def _sends(data: bytes, ends: asyncio.Event | None = None) -> Request:
    """A request with a body, whose last part comes when the event is set."""
    parts = [data] if ends is None else [data, b""]

    async def receive() -> Message:
        part = parts.pop(0)
        if ends is not None and not parts:
            await ends.wait()
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    headers = [(b"content-type", b"application/json")]
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


async def _endless(ended: list[str]) -> AsyncGenerator[int, None]:
    """Items without end, the second one after a day."""
    try:
        yield 1
        await asyncio.sleep(86_400)
    finally:
        ended.append("closed")


async def test_stream_ends_at_its_time() -> None:
    """With the end of its body; what it waits for is closed, and its place is free."""
    ended: list[str] = []
    sent: list[Message] = []
    held = contextlib.ExitStack()
    held.callback(ended.append, "released")

    async def messages() -> AsyncGenerator[ServerSentEvent, None]:
        async with contextlib.aclosing(_endless(ended)) as items:
            async for one in items:
                yield ServerSentEvent(one)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    stream = EventStream(messages(), held, longest=timedelta(milliseconds=20))
    await stream({"type": "http", "method": "GET"}, receive, send)

    assert [one.get("more_body", False) for one in sent[1:]] == [True, True, False]
    assert ended == ["closed", "released"]


async def test_iterator_that_nobody_reads_does_not_wait_for_ever() -> None:
    """As when a client is gone before its stream begins."""
    ended: list[str] = []
    items = _endless(ended)
    await anext(items)
    with contextlib.ExitStack() as held:
        found = await begun(items, held)
    async with asyncio.timeout(60):
        while not ended:  # noqa: ASYNC110 - the loop closes it
            await asyncio.sleep(0)

    assert found is not None


async def test_error_with_which_an_iterator_begins_is_raised_before_the_response() -> None:
    """And one without items is None."""

    async def failing() -> AsyncGenerator[int, None]:
        raise errors.InvalidRequestError("bad")
        yield 1  # type: ignore[unreachable]  # it makes this a generator

    async def empty() -> AsyncGenerator[int, None]:
        return
        yield 1  # type: ignore[unreachable]  # it makes this a generator

    with contextlib.ExitStack() as held:
        with pytest.raises(errors.InvalidRequestError):
            await begun(failing(), held)
        assert await begun(empty(), held) is None


@pytest.mark.accepts("H8")
def test_document_is_valid_and_that_of_the_operations() -> None:
    """`python -m tests.support.docs.openapi_document` updates it; then `make typescript`."""
    document = openapi_document.document()
    validate(document)

    assert openapi_document.FILE.read_text(encoding="utf-8") == openapi_document.text()
    described = {
        (one["operationId"], path)
        for methods in document["paths"].values()
        for path, one in methods.items()
    }
    assert described == {(one.name, one.method.lower()) for one in operations()}


def test_every_fact_of_a_session_has_a_public_view() -> None:
    """A new one is described, too."""
    assert set(session_events.SHOWN) == set(get_args(SessionFact))
    for fact, (_, names) in session_events.SHOWN.items():
        assert set(names) <= {field.name for field in dataclasses.fields(fact)}


def test_ends_of_paths_below_an_id_are_reserved() -> None:
    """Otherwise the path of a resource is that of another one's part."""
    ends = {
        one.path.partition("{id:path}/")[2]
        for one in operations()
        if "{id:path}/" in one.path and one.method == "GET"
    }

    assert ends - {"messages/{message_id}"} <= RESERVED


def test_protocol_without_its_extra_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway then serves without it."""
    gateway: Any = None
    served = [route.path for route in extras.routes(gateway) if isinstance(route, Route)]
    described = {operation.path for operation in operations()}
    for package in ("ag_ui", "mcp"):
        monkeypatch.setitem(sys.modules, package, None)

    assert (served, list(extras.routes(gateway))) == (["/agui/{agent}", "/mcp"], [])
    assert described - {operation.path for operation in operations()} == {"/agui/{agent}"}


@pytest.mark.accepts("H125")
@pytest.mark.parametrize("token", ["short", "x" * 31, "ü" * 32, "xy z" * 16, "x" * 40 + "\n"])
def test_token_that_is_short_or_fits_no_header_is_refused(token: str) -> None:
    """Without quoting it, and with a command that makes a better one."""
    with pytest.raises(errors.ConfigurationError, match="openssl rand -hex 32") as refused:
        one_token(token)

    assert token not in refused.value.message


@pytest.mark.slow
def test_protocols_are_imported_with_their_first_request() -> None:
    """Each takes half a second, which `perdure serve` would need at its start."""
    code = (
        "import sys\n"
        "from perdure.clients.gateway import app\n"
        "app(None, None)\n"
        "print(sorted({'ag_ui', 'mcp', 'a2a'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


ODD = st.text(alphabet='"\\a:,{[')
DOCUMENTS = st.recursive(
    st.none() | st.integers() | ODD,
    lambda inner: st.lists(inner) | st.dictionaries(ODD, inner),
    max_leaves=30,
)


def values_in(document: object) -> int:
    """The number of members and elements, at any depth."""
    match document:
        case dict():
            return len(document) + sum(map(values_in, document.values()))
        case list():
            return len(document) + sum(map(values_in, document))
        case _:
            return 0


@pytest.mark.accepts("H18")
@given(DOCUMENTS)
def test_number_of_values_is_not_overestimated(document: object) -> None:
    """Whatever quotes and backslashes are in them; one of many members is recognized."""
    for separators in ((",", ":"), (" , ", " : ")):
        assert least_values(json.dumps(document, separators=separators).encode()) <= values_in(
            document
        )
    many = {f"f{number}": document for number in range(1000)}
    assert least_values(json.dumps(many).encode()) >= 500
