"""Streams of a real server: in all three APIs, the assembled events equal the non-streamed
answer.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from perdure import Agent, UserMessage
from perdure.activities.provider import ModelRequest
from perdure.values.options import RequestOptions
from perdure.values.reports import StopReason
from perdure.worker import AgentWorker

from ..conftest import Runtime
from ..support.loopback import VENDORS, Vendor

ASKED = ModelRequest(
    model="smollm2",
    messages=(UserMessage.of("What is the capital of France? Answer in one sentence."),),
    options=RequestOptions(max_output_tokens=60, temperature=0),
)
CUT = replace(ASKED, options=RequestOptions(max_output_tokens=5, temperature=0))


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize(
    ("request_", "stop"),
    [(ASKED, StopReason.END), (CUT, StopReason.MAX_TOKENS)],
    ids=["whole", "cut"],
)
async def test_stream_of_a_real_server_is_the_answer(
    small_model: str, vendor: Vendor, request_: ModelRequest, stop: StopReason
) -> None:
    """Message, stop reason and usage are those of the whole answer, except for cached tokens, which
    differ between requests.
    """
    whole = await vendor.ask(small_model, request_)
    streamed, heard = await vendor.hear(small_model, request_)

    assert (streamed.message, streamed.stop) == (whole.message, stop)
    assert (streamed.usage.input_tokens, streamed.usage.output_tokens) == (
        whole.usage.input_tokens,
        whole.usage.output_tokens,
    )
    assert len(heard) > 2
    assert "".join(heard) == whole.message.text


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
@pytest.mark.parametrize("live", [False, True], ids=["whole", "live"])
async def test_turn_on_a_real_server_tells_its_text(
    small_model: str, runtime: Runtime, vendor: Vendor, live: bool
) -> None:
    """In all three APIs: the pieces together are the answer, and the turn's usage is the
    server's.
    """
    agent = Agent(
        name="teller",
        model="small:smollm2",
        options=CUT.options.model_copy(update={"max_output_tokens": 60}),
    )
    async with runtime(
        AgentWorker(agent, providers={"small": vendor.make(small_model, None)})
    ) as client:
        turn = await client.start(
            agent, "What is the capital of France? Answer in one sentence.", live=live
        )
        said = [piece async for piece in turn.text() if isinstance(piece, str)]
        report = await turn.result()

    assert report.output
    assert "".join(said) == report.output
    assert report.usage.input_tokens > 0 < report.usage.output_tokens
    assert report.model_calls == 1
