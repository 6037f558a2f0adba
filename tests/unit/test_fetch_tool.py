"""The tool that fetches web pages: refused addresses, and its requests.

Servers are on loopback, which the tests allow; resolvers are fakes.
"""

from __future__ import annotations

import contextlib
import gzip
import http.server
import re
import socket
import ssl
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import errors
from perdure.activities.toolboxes import pages
from perdure.activities.toolboxes.addresses import may_connect
from perdure.activities.toolboxes.fetch import FetchedPage
from perdure.agents.tool_context import encode
from perdure.agents.tools import Toolbox, as_tools
from perdure.toolboxes import fetch

from ..support.certificates import certificate
from ..support.loopback import raw_server

__all__ = ["certificate"]

Headers = dict[str, str]
Answer = tuple[int, Headers, bytes]

LOOPBACK = "127.0.0.1/32"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs a second address of loopback")
HTML = {"content-type": "text/html; charset=utf-8"}
TEXT = {"content-type": "text/plain"}


@dataclass
class Site:
    """A web server: `answers` by path, and `requests` in order."""

    port: int = 0
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[tuple[str, Headers]] = field(default_factory=list)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


class Names:
    """A resolver that returns each of these answers once, and then always the last one."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def unknown(host: str, port: int) -> Sequence[str]:
    """A resolver that finds nothing."""
    raise OSError(f"{host}:{port}")


@contextlib.contextmanager
def serving(
    address: str = "127.0.0.1",
    port: int = 0,
    wrap: Callable[[socket.socket], socket.socket] | None = None,
) -> Iterator[Site]:
    """A site on a loopback address."""
    site = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.requests.append(
                (self.path, {name.lower(): value for name, value in self.headers.items()})
            )
            status, headers, body = site.answers.get(self.path, (404, TEXT, b"nothing here"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A closed connection is not an error here."""

    with Server((address, port), Handler) as server:
        if wrap:
            server.socket = wrap(server.socket)
        site.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as served:
        yield served


def opened(site: Site, **options: Any) -> Toolbox:
    """`fetch` with access to the site."""
    return fetch(**{"allow_networks": [LOOPBACK], "allow_ports": [80, 443, site.port], **options})


async def get(box: Toolbox, url: str, **arguments: object) -> FetchedPage:
    """Call the tool as a turn does, with arguments as JSON."""
    (item,) = as_tools(box.tools)
    page = await item.function(**item.arguments.parse(encode({"url": url, **arguments})))
    assert isinstance(page, FetchedPage)
    return page


async def refusal(box: Toolbox, url: str, **arguments: object) -> str:
    with pytest.raises(ValueError) as caught:
        await get(box, url, **arguments)
    return str(caught.value)


# Addresses


def test_tool_reads_only_and_may_wait_for_approval() -> None:
    """It can be repeated; approval can still be required."""
    tools = [as_tools(fetch(requires_approval=wanted).tools)[0] for wanted in (False, True)]

    assert [
        (item.name, item.read_only, item.is_async, item.requires_approval) for item in tools
    ] == [("fetch", True, True, False), ("fetch", True, True, True)]
    assert all(
        # the schema is JSON
        item.description and "offset" in item.arguments.schema["properties"]  # type: ignore[operator]
        for item in tools
    )


INSIDE = {
    "loopback": "http://127.0.0.1/",
    "all of loopback": "http://127.9.9.9/",
    "a port of it": "http://127.0.0.1:80/",
    "unspecified": "http://0.0.0.0/",
    "private 10": "http://10.0.0.1/",
    "private 172": "http://172.31.255.255/",
    "private 192": "http://192.168.1.1/",
    "carrier-grade NAT": "http://100.64.0.1/",
    "link-local, metadata": "http://169.254.169.254/latest/meta-data/",
    "metadata of Alibaba": "http://100.100.100.200/",
    "Azure": "http://168.63.129.16/",
    "protocol assignments": "http://192.0.0.1/",
    "documentation": "http://203.0.113.7/",
    "benchmarks": "http://198.18.0.1/",
    "relay of 6to4": "http://192.88.99.1/",
    "multicast": "http://224.0.0.1/",
    "reserved": "http://240.0.0.1/",
    "broadcast": "http://255.255.255.255/",
    "v6 loopback": "http://[::1]/",
    "v6 unspecified": "http://[::]/",
    "v6 unique local": "http://[fd00:ec2::254]/",
    "v6 link-local": "http://[fe80::1]/",
    "v6 site-local": "http://[fec0::1]/",
    "v6 multicast": "http://[ff02::1]/",
    "v6 documentation": "http://[2001:db8::1]/",
    "v6 benchmarks": "http://[2001:2::1]/",
    "mapped": "http://[::ffff:127.0.0.1]/",
    "mapped in hex": "http://[::ffff:7f00:1]/",
    "compatible": "http://[::127.0.0.1]/",
    "translated": "http://[::ffff:0:127.0.0.1]/",
    "NAT64 to loopback": "http://[64:ff9b::7f00:1]/",
    "NAT64 to metadata": "http://[64:ff9b::169.254.169.254]/",
    "NAT64's local prefix": "http://[64:ff9b:1::808:808]/",
    "6to4 to loopback": "http://[2002:7f00:1::]/",
    "6to4 to a public host": "http://[2002:808:808::1]/",
    "Teredo": "http://[2001:0:7f00:1::]/",
}
ODD = {
    "decimal": "http://2130706433/",
    "hexadecimal": "http://0x7f000001/",
    "hexadecimal parts": "http://0x7f.0.0.0x1/",
    "octal": "http://0177.0.0.1/",
    "octal whole": "http://017700000001/",
    "short": "http://127.1/",
    "bare hexadecimal": "http://0x/",
    "decimal, dot at the end": "http://2130706433./",
    "number too large": "http://256.256.256.256/",
    "five numbers": "http://127.0.0.0.1/",
}
NOT_URLS = {
    "a file": ("file:///etc/passwd", "no http or https URL"),
    "gopher": ("gopher://127.0.0.1:70/_x", "no http or https URL"),
    "ftp": ("ftp://example.com/", "no http or https URL"),
    "data": ("data:text/plain,hello", "no http or https URL"),
    "no scheme": ("//example.com/", "no http or https URL"),
    "no host": ("http:///etc/passwd", "no http or https URL"),
    "words": ("how are you", "no http or https URL"),
    "a user": ("http://example.com@127.0.0.1/", "a user or a password"),
    "a password": ("http://a:b@example.com/", "a user or a password"),
    "an empty user": ("http://:b@example.com/", "a user or a password"),
    "a new line": ("http://example.com/\nHost: x", "no URL"),
    "a NUL": ("http://example.com/\0", "no URL"),
    "a NUL in the host": ("http://exa\0mple.com/", "no URL"),
    "circled digits": ("http://①②⑦.⓪.⓪.①/", "no URL"),
    "a percent in the host": ("http://%31%32%37.0.0.1/", "no name of a host"),
    "a zone": ("http://[fe80::1%25eth0]/", "no"),
    "an empty label": ("http://a..b/", "no name of a host"),
    "a space in the host": ("http://exa mple.com/", "no"),
    "a very long one": ("http://example.com/" + "a" * 2_000, "the limit is 2000"),
    "a very long host": ("http://" + "a." * 200 + "com/", "no"),
    "another port": ("http://example.com:22/", "port 22 is not allowed; allowed: 80, 443"),
    "an impossible port": ("http://example.com:99999/", "port 99999 is not allowed"),
}


@pytest.mark.accepts("G6")
@pytest.mark.parametrize("url", INSIDE.values(), ids=INSIDE)
async def test_address_inside_is_refused(url: str) -> None:
    """This machine, its network and its cloud metadata, in every notation of an address; nothing is
    resolved for it.
    """
    names = Names(["93.184.216.34"])

    assert "is not on the public internet" in await refusal(fetch(resolver=names), url)
    assert names.asked == []


@pytest.mark.accepts("G6")
@pytest.mark.parametrize("url", INSIDE.values(), ids=INSIDE)
async def test_name_of_an_address_inside_is_refused(url: str) -> None:
    """The same for a host name that resolves to one; the error does not say to which."""
    address = url.removeprefix("http://").partition("/")[0].strip("[]").removesuffix(":80")
    reason = await refusal(fetch(resolver=Names([address])), "http://intranet.test/")

    assert (
        reason == "'intranet.test' is not on the public internet, or not only there; it is not read"
    )


@pytest.mark.accepts("G6")
@pytest.mark.parametrize("url", ODD.values(), ids=ODD)
async def test_number_as_a_host_is_refused_in_its_odd_forms(url: str) -> None:
    """System resolvers accept them as addresses, and they have no legitimate use."""
    names = Names(["93.184.216.34"])

    assert re.search("unusual form|is no URL", await refusal(fetch(resolver=names), url))
    assert names.asked == []


@pytest.mark.parametrize(("url", "reason"), NOT_URLS.values(), ids=NOT_URLS)
async def test_what_is_no_plain_url_of_the_web_is_refused(url: str, reason: str) -> None:
    """Schemes, credentials, ports, and characters that two parsers would read differently."""
    names = Names(["93.184.216.34"])

    assert reason in await refusal(fetch(resolver=names), url)
    assert names.asked == []


async def test_name_with_one_address_inside_is_refused_whole(site: Site) -> None:
    """Otherwise the next attempt could use the internal one."""
    assert "or not only there" in await refusal(
        opened(site, resolver=Names(["127.0.0.1", "10.0.0.1"])), site.url("/", "both.test")
    )
    assert "or not only there" in await refusal(
        opened(site, resolver=Names([])), site.url("/", "none.test")
    )
    assert site.requests == []


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "172.32.0.1",
        "100.128.0.1",
        "11.0.0.1",
    ],
)
def test_public_address_is_not_refused(address: str) -> None:
    """Also with NAT64, the only route out of a network without IPv4."""
    assert may_connect(address)


@pytest.mark.parametrize(
    "address",
    ["", "example.com", "2130706433", "127.1", "fe80::1%eth0", "2606:4700::1111%1", "8.8.8.8 "],
)
def test_what_a_resolver_says_must_be_an_address(address: str) -> None:
    """A name would be resolved again."""
    assert not may_connect(address)


@pytest.mark.accepts("G6")
@LINUX
async def test_name_that_means_something_else_later_is_connected_to_as_it_was_checked(
    site: Site,
) -> None:
    """DNS rebinding: the name is resolved once, and the connection goes to that address; a second
    request resolves to an internal address and is refused.
    """
    site.answers["/"] = (200, TEXT, b"outside")
    with serving("127.0.0.2", site.port) as inside:
        inside.answers["/"] = (200, TEXT, b"inside")
        names = Names(["127.0.0.1"], ["127.0.0.2"])
        box = opened(site, resolver=names)
        page = await get(box, site.url("/", "rebinds.test"))
        reason = await refusal(box, site.url("/", "rebinds.test"))

    assert (page.text, inside.requests) == ("outside", [])
    assert "is not on the public internet" in reason
    assert names.asked == [("rebinds.test", site.port)] * 2


async def test_host_is_named_to_the_server_and_nothing_else_is(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The connection goes to the address, with the name in `Host`; without credentials from .netrc
    and without a proxy from the environment.
    """
    (tmp_path / ".netrc").write_text("default login ann password swordfish")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
    ):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    site.answers["/a?b=c"] = (200, TEXT, b"hello")
    page = await get(
        opened(site, resolver=Names(["127.0.0.1"])), site.url("/a?b=c#part", "shop.test")
    )

    assert page == FetchedPage(url=site.url("/a?b=c#part", "shop.test"), status=200, text="hello")
    (request,) = site.requests
    assert request[0] == "/a?b=c"
    assert set(request[1]) == {"host", "accept", "accept-encoding", "user-agent", "connection"}
    assert request[1]["host"] == f"shop.test:{site.port}"


async def test_tls_is_for_the_name_though_the_address_is_connected_to(
    certificate: ssl.SSLContext,
) -> None:
    """The server gets the name by SNI, and its certificate has to be for that name."""
    told = list[str | None]()
    certificate.sni_callback = lambda _, name, __: told.append(name)
    with serving(wrap=lambda inner: certificate.wrap_socket(inner, server_side=True)) as site:
        site.answers["/"] = (200, TEXT, b"sealed")
        box = opened(site, resolver=Names(["127.0.0.1"]))
        page = await get(box, f"https://shop.test:{site.port}/")
        reason = await refusal(box, f"https://other.test:{site.port}/")

    assert (page.text, told) == ("sealed", ["shop.test", "other.test"])
    assert reason == "the host 'other.test' cannot be reached"


@LINUX
async def test_next_address_is_tried_where_no_connection_is_made(site: Site) -> None:
    """A name may have an IPv6 address on a machine without IPv6."""
    site.answers["/"] = (200, TEXT, b"hello")
    box = opened(site, resolver=Names(["127.0.0.3", "127.0.0.1"]), allow_networks=["127.0.0.0/8"])

    assert (await get(box, site.url("/", "two.test"))).text == "hello"
    assert "cannot be reached" in await refusal(
        opened(site, resolver=Names(["127.0.0.3"]), allow_networks=["127.0.0.0/8"]),
        site.url("/", "x.test"),
    )


async def test_host_that_is_not_known_is_an_error_result() -> None:
    """With the name only."""
    assert (
        await refusal(fetch(resolver=unknown), "http://nobody.test/")
        == "the host 'nobody.test' is not known"
    )


# Hosts


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("docs.test", True),
        ("DOCS.test.", True),
        ("a.wiki.test", True),
        ("a.b.wiki.test", True),
        ("wiki.test", False),
        ("other.test", False),
        ("docs.test.evil.test", False),
        ("evildocs.test", False),
        ("evilwiki.test", False),
        ("127.0.0.1", False),
    ],
)
async def test_only_hosts_of_the_list_are_read(site: Site, host: str, is_allowed: bool) -> None:
    """Others are not even resolved: a DNS query can leak data."""
    site.answers["/"] = (200, TEXT, b"hello")
    names = Names(["127.0.0.1"])
    box = opened(site, allow_hosts=["Docs.test", "*.wiki.test"], resolver=names)
    if is_allowed:
        assert (await get(box, site.url("/", host))).text == "hello"
    else:
        assert "is not allowed; allowed: *.wiki.test, docs.test" in await refusal(
            box, site.url("/", host)
        )
        assert names.asked == []


@pytest.mark.parametrize(
    "options",
    [
        {"allow_hosts": "docs.test"},
        {"allow_hosts": ["https://docs.test"]},
        {"allow_hosts": ["*"]},
        {"allow_hosts": ["docs.test:80"]},
        {"allow_hosts": [""]},
        {"allow_hosts": ["bücher.test"]},
        {"allow_networks": ["10.0.0.1/8"]},
        {"allow_networks": ["here"]},
        {"timeout": timedelta(0)},
        {"max_bytes": 0},
    ],
)
def test_setting_that_cannot_work_is_said_at_once(options: dict[str, Any]) -> None:
    """Before an agent has the tool."""
    with pytest.raises(errors.ConfigurationError):
        fetch(**options)


# Redirects


@pytest.mark.accepts("G5")
async def test_redirect_is_followed_without_cookies(site: Site) -> None:
    """Relative ones and ones to another host; cookies of the first response are sent to neither."""
    site.answers["/"] = (302, {"location": "two", "set-cookie": "session=planted"}, b"")
    site.answers["/two"] = (
        308,
        {
            "location": site.url("/three", "other.test"),
            "set-cookie": "session=planted; Domain=test",
        },
        b"",
    )
    site.answers["/three"] = (200, TEXT, b"here")
    names = Names(["127.0.0.1"])
    page = await get(opened(site, resolver=names), site.url("/", "one.test"))

    assert page == FetchedPage(url=site.url("/three", "other.test"), status=200, text="here")
    assert [host for host, _ in names.asked] == ["one.test", "one.test", "other.test"]
    assert [request[1].get("cookie") for request in site.requests] == [None] * 3
    assert not any("planted" in value for _, headers in site.requests for value in headers.values())


@pytest.mark.accepts("G6")
@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://127.0.0.2/", "not on the public internet"),
        ("http://localhost.test/", "not on the public internet"),
        ("//[::1]/", "not on the public internet"),
        ("http://169.254.169.254/latest/meta-data/", "not on the public internet"),
        ("http://[::ffff:169.254.169.254]/", "not on the public internet"),
        ("http://2852039166/", "unusual form"),
        ("file:///etc/passwd", "no http or https URL"),
        ("http://ann:swordfish@127.0.0.1/", "a user or a password"),
        ("http://127.0.0.1:22/", "port 22 is not allowed"),
        ("http://a b/", "no"),
    ],
)
async def test_redirect_to_what_would_be_refused_is_refused(
    site: Site, location: str, reason: str
) -> None:
    """Each target is checked like a requested one."""
    site.answers["/"] = (301, {"location": location}, b"")
    box = opened(site, resolver=Names(["127.0.0.1"], ["127.0.0.2"]))

    assert reason in await refusal(box, site.url("/", "shop.test"))
    assert len(site.requests) == 1


async def test_redirect_leaves_the_list_of_hosts_no_more_than_a_call_does(site: Site) -> None:
    """The list applies to each target."""
    site.answers["/"] = (301, {"location": site.url("/", "evil.test")}, b"")
    box = opened(site, allow_hosts=["docs.test"], resolver=Names(["127.0.0.1"]))

    assert "'evil.test' is not allowed" in await refusal(box, site.url("/", "docs.test"))


async def test_circle_of_redirects_ends(site: Site) -> None:
    """After five of them."""
    site.answers["/"] = (301, {"location": "/"}, b"")

    assert await refusal(opened(site), site.url("/")) == "there are more than 5 redirects"
    assert len(site.requests) == 6


# Bodies


@pytest.mark.parametrize(
    ("headers", "body", "text"),
    [
        ({"content-type": "text/plain; charset=iso-8859-1"}, "Gebühr".encode("latin-1"), "Gebühr"),
        ({"content-type": 'text/plain; charset="UTF-16LE"'}, "Gebühr".encode("utf-16le"), "Gebühr"),
        ({"content-type": "text/plain"}, b"\xef\xbb\xbfone\r\ntwo", "one\ntwo"),
        ({"content-type": "text/plain; charset=utf-8"}, b"a\xffb", "a�b"),
        ({"content-type": "text/plain; charset=rot13"}, b"plain", "plain"),
        ({"content-type": "text/plain; charset=zlib"}, b"plain", "plain"),
        ({"content-type": "text/plain"}, b"red\x1b[31m", "red[31m"),
        ({"content-type": "application/json"}, b'{"a": 1}', '{"a": 1}'),
        ({"content-type": "application/feed+json"}, b"[]", "[]"),
        ({}, b"no type", "no type"),
        ({}, b"<p>no <b>type</b>", "no type"),
        (HTML, b"<title>Shop</title><h1>Tea</h1><p>3 &euro;", "# Tea\n\n3 €"),
        ({**TEXT, "content-encoding": "gzip"}, gzip.compress(b"packed"), "packed"),
        (
            {**TEXT, "content-encoding": "gzip"},
            b"".join(map(gzip.compress, (b"one ", b"", b"two ", b"three"))),
            "one two three",
        ),
        ({**TEXT, "content-encoding": "gzip"}, gzip.compress(b"packed") + bytes(20), "packed"),
        ({**TEXT, "content-encoding": "identity"}, b"plain", "plain"),
    ],
    ids=range(16),  # gzip writes the time into a body
)
async def test_text_is_read_as_it_is_meant(
    site: Site, headers: Headers, body: bytes, text: str
) -> None:
    """In its declared encoding, if that is a text encoding; HTML as text."""
    site.answers["/"] = (200, headers, body)

    assert (await get(opened(site), site.url("/"))).text == text


@pytest.mark.parametrize(
    ("headers", "body", "reason"),
    [
        ({"content-type": "image/png"}, b"x", "this is 'image/png', not text"),
        ({"content-type": "application/octet-stream"}, b"x", "not text"),
        (TEXT, b"GIF89a\0\0", "this is binary, not text"),
        ({**TEXT, "content-encoding": "br"}, b"x", "content encoding 'br'"),
        ({**TEXT, "content-encoding": "gzip, gzip"}, b"x", "content encoding 'gzip, gzip'"),
        ({**TEXT, "content-encoding": "gzip"}, b"no gzip", "the reply cannot be read"),
        (TEXT, b"x" * 100_001, "longer than 100000 bytes"),
        (
            {**TEXT, "content-encoding": "gzip"},
            gzip.compress(b"x" * 50_000_000, 1),
            "longer than 100000 bytes",
        ),
        (
            {**TEXT, "content-encoding": "gzip"},
            gzip.compress(b"x" * 60_000) * 2,
            "longer than 100000 bytes",
        ),
        (
            {**TEXT, "content-encoding": "gzip"},
            gzip.compress(b"") * 20_000,
            "longer than 100000 bytes",
        ),
    ],
    ids=range(10),
)
async def test_what_is_no_text_or_too_long_is_refused(
    site: Site, headers: Headers, body: bytes, reason: str
) -> None:
    """The limit applies after decompression."""
    site.answers["/"] = (200, headers, body)

    assert reason in await refusal(opened(site, max_bytes=100_000), site.url("/"))


@pytest.mark.slow
async def test_bomb_is_not_unpacked(site: Site) -> None:
    """A body of 1 MB that expands to 200 MB uses no more memory than the limit."""
    site.answers["/"] = (
        200,
        {**TEXT, "content-encoding": "gzip"},
        gzip.compress(bytes(200_000_000), 1),
    )
    tracemalloc.start()
    try:
        reason = await refusal(opened(site), site.url("/"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert reason == "this is longer than 2000000 bytes"
    assert peak < 20_000_000


async def test_error_status_is_told_with_its_page(site: Site) -> None:
    """The model can read the response body."""
    assert await get(opened(site), site.url("/gone")) == FetchedPage(
        url=site.url("/gone"), status=404, text="nothing here"
    )


async def test_long_text_comes_in_parts_that_fit_together(site: Site) -> None:
    """Each fits into a tool result as JSON, and has the offset of the next one."""
    whole = "".join(f'"{number}" é\\\n' for number in range(10_000))
    site.answers["/"] = (200, {"content-type": "text/plain; charset=utf-8"}, whole.encode())
    parts, offset = list[FetchedPage](), 0
    while not parts or parts[-1].next_offset is not None:
        parts.append(await get(opened(site), site.url("/"), offset=offset))
        offset = parts[-1].next_offset or 0

    assert "".join(part.text for part in parts) == whole
    assert all(len(encode(part).encode()) < 64 * 1024 for part in parts)
    assert (await get(opened(site), site.url("/"), offset=10_000_000)).text == ""
    assert await refusal(opened(site), site.url("/"), offset=-1) == "offset counts from 0"


@pytest.mark.parametrize(
    ("payload", "then"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    ],
    ids=["nothing", "a slow body", "slow headers", "hints for ever"],
)
@pytest.mark.table(1)
async def test_server_that_never_ends_is_left_in_time(payload: bytes, then: bytes) -> None:
    """The limit is for the whole call, even if data keeps arriving slowly."""
    with raw_server(payload, then=then or b"", every_s=0.05) if then else _silent() as address:
        port = int(address.rpartition(":")[2])
        reason = await refusal(
            fetch(allow_networks=[LOOPBACK], allow_ports=[port], timeout=timedelta(seconds=0.5)),
            address,
        )

    assert reason == f"{address!r} was not read within 0.5 s"


@contextlib.contextmanager
def _silent() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    "payload",
    [
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\ncontent-type: text/plain\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\na b\r\n\r\n",
    ],
)
async def test_reply_that_breaks_off_or_is_no_http_is_an_error_result(payload: bytes) -> None:
    """With our own message."""
    with raw_server(payload) as address:
        reason = await refusal(
            fetch(allow_networks=[LOOPBACK], allow_ports=[int(address.rpartition(":")[2])]), address
        )

    assert reason == f"{address!r}: the connection broke, or the reply cannot be read"


# HTML


def test_page_is_told_as_a_person_reads_it() -> None:
    """Headings, lists, absolute links, code lines; no scripts, styles or comments."""
    page = """<!doctype html><html><head><title> The &amp; Shop </title>\
<style>p { color: red }</style>
      <script>if (1 < 2) document.write("<p>no</p>")</script></head>
      <body><!-- not <p>this</p> --><h2>Tea</h2><ul><li>green<li>\
<a class="x>y" HREF='/black?a=1&amp;b=2'>black</a></ul>
      <p>Write to   <a href="javascript:alert(1)">us</a>,<br>or 1 < 2.</p><pre>a  b
  c</pre><img alt="x"><textarea>hidden</textarea></body>"""

    assert pages.readable(page, "https://shop.test/list/") == pages.Readable(
        title="The & Shop",
        text=(
            "## Tea\n\n- green\n- [black](https://shop.test/black?a=1&b=2)\n\nWrite to us,\nor 1 <"
            " 2.\n\na  b\n  c"
        ),
    )


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p class=don't>one</p><p>it's</p>", "one\n\nit's"),
        ("<!-->one<!--->two<!-- > -->three", "onetwothree"),
        ("one<!-- two", "one"),
        ("one<script>two", "one"),
        ("one<a href='two", "one"),
        ("1 < 2 <> 3 </ 4 & 5 &lt; 6", "1 < 2 <> 3 </ 4 & 5 < 6"),
        ("<SCRIPT>no</p></SCRIPT >yes</scripty>", "yes"),
        ("<a title='a > b' href=/c>one</a>", "[one](https://shop.test/c)"),
        (
            (
                "<a href='data:text/html,x'>one</a> <a href='//other.test/'>two</a> <a"
                " href='http://[x/'>three</a>"
            ),
            "one [two](https://other.test/) three",
        ),
        ("<table><tr><td>a<td>b<tr><td>c</table>", "a\nb\n\nc"),
    ],
)
def test_page_that_is_written_badly_is_read_as_a_browser_reads_it(page: str, text: str) -> None:
    """Stray quotes, unclosed comments and tags, characters that are not tags, links with other
    schemes.
    """
    assert pages.readable(page, "https://shop.test/").text == text


@pytest.mark.table(7)
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<!--",
        "<a ",
        "<a b='",
        '<a b="',
        "<![CDATA[",
        "<!",
        "<?",
        "</",
        "</a",
        "<script>",
        "<title>",
        "<li>",
        "&#",
        "&amp",
        "<a href=x>",
        "<pre>\n",
        " ",
        "<a href",
        "<a b=",
        "<a b=' c=\"",
    ],
)
def test_hostile_page_is_read_promptly(piece: str) -> None:
    """Half a megabyte of adversarial input takes no longer than other input of that size."""
    began = time.thread_time()
    pages.readable(piece * (500_000 // len(piece)), "https://shop.test/")

    assert time.thread_time() - began < 5


@pytest.mark.accepts("C6")
@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("&#" + "9" * 4_301 + ";", "\ufffd"),
        ("&#x" + "f" * 100_000 + ";", "\ufffd"),
        ("&#" + "0" * 5_000 + "65;", "A"),
        ("&#x000041;&#65&#0;&#1114112;&amp;", "AA\ufffd\ufffd&"),
    ],
    ids=["decimal", "hexadecimal", "zeros", "usual"],
)
def test_number_of_a_character_may_have_any_length(written: str, read: str) -> None:
    """An invalid code point becomes the replacement character, as in a browser, in the text, the
    title and a link.
    """
    page = pages.readable(
        f"<title>{written}</title><p>a{written}b</p><a href='/{written}'>c</a>",
        "https://shop.test/",
    )

    assert (page.title, page.text.split("\n")[0]) == (read, f"a{read}b")
