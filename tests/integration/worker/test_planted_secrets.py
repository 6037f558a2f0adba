"""Planted secrets, and every place where they could leak: nothing that is recorded, shown or logged
contains them, in plain or encoded form.

Results of a tool, and the messages of its own exceptions, belong to the tool's author and are
stored in history like any others (docs/tools.md); these tests are about the secrets that Perdure
handles itself.
"""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Mapping
from urllib.parse import quote

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from perdure import Agent, AgentReport, ProposedCall, ToolContext, errors, tool
from perdure.agents.policy import Allow
from perdure.clients import Turn
from perdure.errors import PerdureError
from perdure.testing.stub_provider import StubProvider, StubReply
from perdure.worker import AgentWorker
from perdure.worker.telemetry import Telemetry

from ...conftest import RecordingClient, Runtime
from ...support.loopback import VENDORS, Vendor, error_body
from ...support.secret_forms import encodings
from ...support.thorough import some

PLANTED = {
    "CANARY_KEY": "sk-canary/4f+9Q=zz0123456789",
    "CANARY_TOKEN": "token-canary/7a+3W=yy9876543210",
    "CANARY_IDLE": "idle-canary/1c+5E=xx5555555555",
    "CANARY_BROKEN": "broken-canary/2d+6R=ww4444444444\n",
}
"""Environment variables of the worker: the key of the provider, one that a tool reads, an unused
one, and one that is refused.
"""


def found_in(places: Mapping[str, bytes]) -> list[tuple[str, str]]:
    """The variables whose secret was found, with the place."""
    return [
        (place, variable)
        for place, data in places.items()
        for variable, secret in PLANTED.items()
        if any(form in data for form in encodings(secret.strip()))
    ]


@tool(read_only=True)
def charge(context: ToolContext[None], amount: int) -> str:
    """Use a token without showing it."""
    return f"{amount} charged with a token of {len(context.secret('CANARY_TOKEN'))} characters"


@tool(read_only=True)
def misconfigured(context: ToolContext[None]) -> str:
    """Use a token that cannot be used."""
    return context.secret("CANARY_BROKEN")


@tool(read_only=True)
def absent(context: ToolContext[None]) -> str:
    """Show what there is of the context."""
    return f"{context}"


def policy(call: ProposedCall) -> Allow:
    """Say yes."""
    return Allow()


AGENT = Agent(name="canary", model="vendor:m", tools=[charge, misconfigured, absent], policy=policy)
WORKS: list[StubReply] = [
    {
        "calls": [
            {"name": "charge", "arguments": {"amount": 2}},
            {"name": "misconfigured", "arguments": {}},
            {"name": "absent", "arguments": {}},
        ]
    },
    {"text": "done"},
]
KEY = PLANTED["CANARY_KEY"]
ECHOES: dict[str, list[StubReply]] = {
    "refused": [
        error_body(
            401,
            {
                "message": f"Incorrect API key provided: {KEY}.",
                "type": KEY,
                "code": KEY,
                "param": {"authorization": KEY},
            },
        )
    ],
    "in text": [error_body(403, f"Bearer {KEY} is not allowed")],
    "in details": [
        error_body(
            400, {"detail": [{"input": {"x-api-key": KEY, "authorization": f"Bearer {KEY}"}}]}
        )
    ],
    "escaped": [
        {"status": 401, "raw": json.dumps({"error": {"message": f"no {KEY}"}}).replace("/", "\\/")}
    ],
    "in percents": [error_body(400, f"bad url ?key={quote(KEY, safe='')}")],
    "in base64": [
        error_body(400, f"Basic {base64.b64encode(f'me:{KEY}'.encode()).decode()} is wrong")
    ],
    "in base64 for urls": [
        error_body(400, f"{base64.urlsafe_b64encode(KEY.encode()).decode().rstrip('=')} is wrong")
    ],
    "in hexadecimal": [error_body(400, f"{KEY.encode().hex()} is wrong")],
    "as JSON in JSON": [
        error_body(400, json.dumps({"authorization": f"Bearer {KEY}"}).replace("/", "\\/"))
    ],
    "as escapes in JSON": [error_body(400, "".join(f"\\u{ord(letter):04x}" for letter in KEY))],
    "page": [{"status": 502, "raw": f"<html>{KEY}</html>"}] * 2,
    "header": [
        {
            "status": 401,
            "raw": "{}",
            "headers": {"www-authenticate": f'Bearer realm="{KEY}"', "x-request-id": KEY},
        }
    ],
    "redirect": [
        {
            "status": 302,
            "raw": "",
            "headers": {"location": f"http://127.0.0.1:9/?key={quote(KEY, safe='')}"},
        }
    ],
    "cut": [{"raw": f'{{"error": "{KEY}'}] * 2,
    "in a success": [
        {"raw": json.dumps({"error": {"message": f"no {KEY}", "type": "authentication_error"}})}
    ]
    * 2,
}


class Witness:
    """Everything that can be read afterwards.

    Logs of every level, except httpcore's, whose DEBUG records are the traffic itself.
    """

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        self._caplog = caplog
        self._spans, self._metrics = InMemorySpanExporter(), InMemoryMetricReader()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.telemetry = Telemetry(
            tracer_provider=tracers,
            meter_provider=MeterProvider([self._metrics], shutdown_on_exit=False),
            content=True,
        )
        self.places: dict[str, bytes] = {}

    async def see(self, client: RecordingClient, turn: Turn) -> AgentReport | PerdureError:
        """Wait for the end of a turn, and collect what it leaves."""
        try:
            end: AgentReport | PerdureError = await turn.result()
        except PerdureError as error:
            end = error
            self.places["error"] = "".join(
                [*traceback.format_exception(error), repr(error), json.dumps(error.to_dict())]
            ).encode()
        report = end.report if isinstance(end, PerdureError) else end
        assert report is not None
        self.places["report"] = report.model_dump_json().encode()
        for event in (await client.history(turn)).events:
            self.places[f"event {event.event_id}"] = event.SerializeToString()
        described = await client.temporal.get_workflow_handle(turn.id).describe()
        self.places["memo and search attributes"] = described.raw_description.SerializeToString()
        return end

    def close(self) -> None:
        """The data that was collected on the way."""
        for record in (one for one in self._caplog.records if not one.name.startswith("httpcore")):
            line = self._caplog.handler.format(record) + repr(vars(record))
            self.places["log"] = self.places.get("log", b"") + line.encode()
        for span in self._spans.get_finished_spans():
            self.places[f"span {span.name}"] = span.to_json().encode()
        metrics = self._metrics.get_metrics_data()
        self.places["metrics"] = metrics.to_json().encode() if metrics else b""


@pytest.fixture
def witness(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Witness:
    """With the secrets planted."""
    for variable, secret in PLANTED.items():
        monkeypatch.setenv(variable, secret)
    return Witness(caplog)


def app(
    vendor: Vendor, stub: StubProvider, witness: Witness, key: str = "CANARY_KEY"
) -> AgentWorker:
    """A worker with a model on loopback."""
    return AgentWorker(
        AGENT,
        providers={"vendor": vendor.make(stub.anthropic_url, key)},
        telemetry=witness.telemetry,
    )


@pytest.mark.accepts("G1")
@pytest.mark.parametrize("vendor", some(VENDORS))
async def test_secret_that_was_used_is_nowhere(
    runtime: Runtime, witness: Witness, vendor: Vendor
) -> None:
    """The key was sent with two requests, a tool used its token, another one was refused a token,
    and a third one printed its context.
    """
    with StubProvider(WORKS) as stub:
        async with runtime(app(vendor, stub, witness)) as client:
            end = await witness.see(
                client, await client.start("canary", "go", labels={"team": "a"})
            )
    witness.close()

    assert isinstance(end, AgentReport)
    assert [result.content.split(":")[0] for result in end.steps[0].results][:2] == [
        "2 charged with a token of 31 characters",
        "misconfigured failed",
    ]
    assert found_in(witness.places) == []
    assert {"log", "report", "span invoke_agent canary", "metrics", "event 1"} <= set(
        witness.places
    )


@pytest.mark.accepts("G1")
@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("vendor", some(VENDORS))
@pytest.mark.slow
async def test_key_that_a_vendor_sends_back_is_nowhere(
    runtime: Runtime, witness: Witness, vendor: Vendor, echo: str
) -> None:
    """In the message of an error, next to it, in an HTML page, a header, or a truncated body."""
    with StubProvider(ECHOES[echo]) as stub:
        async with runtime(app(vendor, stub, witness)) as client:
            end = await witness.see(client, await client.start("canary", "go"))
    witness.close()

    assert isinstance(end, errors.LLMError)
    assert found_in(witness.places) == []


@pytest.mark.accepts("G1", "G2")
@pytest.mark.parametrize("vendor", some(VENDORS))
async def test_key_that_cannot_be_one_is_nowhere(
    runtime: Runtime, witness: Witness, vendor: Vendor
) -> None:
    """The error names its variable."""
    with StubProvider(WORKS) as stub:
        async with runtime(app(vendor, stub, witness, key="CANARY_BROKEN")) as client:
            end = await witness.see(client, await client.start("canary", "go"))
    witness.close()

    assert isinstance(end, errors.ConfigurationError)
    assert "CANARY_BROKEN" in end.message
    assert found_in(witness.places) == []


@pytest.mark.parametrize("form", [*encodings("idle-canary/1c+5E=xx5555555555")])
def test_search_finds_every_form(form: bytes) -> None:
    """A search that never finds anything proves nothing."""
    assert found_in({"here": b"before " + form + b" after"}) == [("here", "CANARY_IDLE")]
    assert found_in(
        {"here": base64.b64encode(b"12345" + PLANTED["CANARY_IDLE"].encode() + b"6")}
    ) == [("here", "CANARY_IDLE")]
