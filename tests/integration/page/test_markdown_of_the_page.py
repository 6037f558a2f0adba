"""Markdown that somebody wrote to stop the page, or to get markup into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ...support.browser import opened
from ...support.gateway.large import Large, serving

if TYPE_CHECKING:
    from playwright.async_api import Browser

SIZE = 100_000
HOSTILE = {
    "stars": "*" * SIZE,
    "open stars": "*a " * (SIZE // 3),
    "brackets": "[" * SIZE,
    "links": "[a](" * (SIZE // 4),
    "ticks": "`" * SIZE,
    "odd ticks": "`a``" * (SIZE // 4),
    "quotes": "> " * (SIZE // 2),
    "quoted lines": "> a\n" * (SIZE // 4),
    "items": "- " * (SIZE // 2),
    "deep items": "".join(f"{' ' * (n % 200)}- a\n" for n in range(SIZE // 100)),
    "spaces": f"# {' ' * SIZE}x",
    "bars": "|" * SIZE + "\n" + "|-" * (SIZE // 2),
    "fences": "```\n" * (SIZE // 4),
    "addresses": "https://a.b/ " * (SIZE // 13),
    "backslashes": "\\" * SIZE,
    "json": "[" * SIZE + "]" * SIZE,
    "objects": '{"a":' * (SIZE // 5) + "1" + "}" * (SIZE // 5),
}
RENDER = """async ([name, text]) => {
  const { written } = await import(new URL("detail.js", location.href));
  const began = performance.now();
  const element = written(text);
  element.querySelector("button")?.click();
  const took = performance.now() - began;
  const odd = [...element.querySelectorAll("*")].filter((one) =>
    ["SCRIPT", "IMG", "IFRAME", "STYLE", "OBJECT", "FORM", "INPUT"].includes(one.tagName)
      || [...one.attributes].some(({ name }) => name.startsWith("on") || name === "style"));
  const links = [...element.querySelectorAll("a")].map((one) => new URL(one.href).protocol);
  return [took, odd.length, [...new Set(links)], element.textContent.length];
}"""
TRICKS = """
<script>alert(1)</script> [a](javascript:alert(1)) [b](JaVaScRiPt:alert) [c](data:text/html,x)
[d](//evil.example) ![e](https://evil.example/x.png) <https://ok.example> [f](\x01javascript:x)
**<img src=x onerror=alert(1)>** `<b>` [g](mailto:a@b.example) [<i>h</i>](https://ok.example "t")
"""


@pytest.mark.slow
@pytest.mark.accepts("H208", "H225")
async def test_hostile_markdown_takes_a_moment_and_makes_no_markup(chromium: Browser) -> None:
    """Each of a hundred thousand characters; addresses of other kinds stay text."""
    large = Large({}, [], [])
    found = {}
    async with (
        serving(large) as address,
        opened(chromium, f"{address}/ui/", wait_until="load") as watched,
    ):
        for name, text in {**HOSTILE, "tricks": TRICKS}.items():
            found[name] = await watched.page.evaluate(RENDER, [name, text])

    assert {name: one[0] for name, one in found.items() if one[0] > 2_000} == {}
    assert {name: one[1] for name, one in found.items() if one[1]} == {}
    assert found["tricks"][2] == ["https:", "mailto:"]
    assert watched.elsewhere(address) == []
