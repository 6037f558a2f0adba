"""Run the code blocks of `docs/telemetry.md`."""

import contextlib
import io
import linecache
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from perdure import Agent, tool
from perdure.activities.error_log import log_raised
from perdure.agents.tracebacks import raised
from perdure.providers import ModelAnswer, ModelRequest
from perdure.testing import ScriptedModel, call, calls, says
from perdure.worker.logs import Lines

from ..support.docs.until import until
from .conftest import Tell

PROVIDER: list[TracerProvider] = []


@contextlib.contextmanager
def span(name: str) -> Iterator[None]:
    """A span of an instrumented library."""
    with PROVIDER[-1].get_tracer("a library").start_as_current_span(name):
        yield


@tool(read_only=True)
def search_handbook(words: str) -> str:
    """Search the handbook."""
    with span("SELECT"):
        return "30 days"


def log_of_a_refund() -> str:
    """The worker's log for a tool that raises in line 41 of its file."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(Lines())
    lines = [*["\n"] * 39, "def refund():\n", '    return PAYMENTS["key"]\n']
    linecache.cache["/app/tools.py"] = (len(lines), None, lines, "/app/tools.py")
    tools: dict[str, Any] = {"PAYMENTS": {}}
    exec(compile("".join(lines), "/app/tools.py", "exec"), tools)
    logging.getLogger("perdure").addHandler(handler)
    try:
        tools["refund"]()
    except KeyError as error:
        log_raised(f"the tool 'refund' raised {raised(error)}", error, level=logging.WARNING)
    finally:
        logging.getLogger("perdure").removeHandler(handler)
        del linecache.cache["/app/tools.py"]
    return out.getvalue()


class Posting(ScriptedModel):
    """A model behind an HTTP client that creates spans."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """The next reply."""
        with span("POST"):
            return await super().complete(request)


@pytest.mark.slow
async def test_trace_of_a_turn_is_that_of_the_page(tell: Tell) -> None:
    """Its spans, and the spans of libraries below them; a worker starts with an endpoint in its
    environment.
    """
    model = Posting(calls(call("search_handbook", words="notice")), says("30 days"))
    seen = InMemorySpanExporter()
    async with tell("telemetry") as story:
        app = await story.defining("app")
        PROVIDER.append(story["tracer_provider"])
        story["tracer_provider"].add_span_processor(SimpleSpanProcessor(seen))
        drawn = await story.up_to("What a trace of a turn looks like", "text")
        logged = await story.up_to("Where is the traceback of my tool?", "text")
        agent = Agent(name="support", model="openai:gpt-5-mini", tools=[search_handbook])
        client = await story.works(replace(app, agents=agent), model)
        await client.run("support", "How long?")
        spans = await until(lambda: whole(seen), "the span of the turn is there")
        story["tracer_provider"].shutdown()

    told = re.sub(r"^\S+Z", logged.text.split()[0], log_of_a_refund())
    assert [line for line in logged.text.splitlines() if line not in told.splitlines()] == []
    assert tree(spans) == [re.split(r" {3,}(?=\w)", line)[0] for line in drawn.text.splitlines()]


async def whole(seen: InMemorySpanExporter) -> Sequence[ReadableSpan]:
    """The spans, once the span of the turn is among them."""
    spans = seen.get_finished_spans()
    return spans if any(span.name.startswith("invoke_agent") for span in spans) else ()


def tree(spans: Sequence[ReadableSpan], parent: int | None = None, before: str = "") -> list[str]:
    """The names of spans as a tree, in order of their start."""
    under = [one for one in spans if (one.parent.span_id if one.parent else None) == parent]
    lines = []
    for index, one in enumerate(sorted(under, key=lambda one: one.start_time or 0)):
        last = index == len(under) - 1
        branch, rest = (
            ("", "") if parent is None else ("└── ", "    ") if last else ("├── ", "│   ")
        )
        assert one.context is not None
        lines += [before + branch + one.name, *tree(spans, one.context.span_id, before + rest)]
    return lines
