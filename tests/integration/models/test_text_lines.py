"""Live text comes from the worker that generates it, to those who may read the turn in Temporal."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from perdure import errors
from perdure.activities.live_text import Listening, LiveTexts, TextOfCall
from perdure.clients import AgentClient, TextBegins
from perdure.clients.reading.live_output import Ear, Heard
from perdure.clients.reading.text_line import TextLine
from perdure.live_text import lines
from perdure.live_text.values import LiveText, TextSource
from perdure.temporal.histories.runs import describe
from perdure.temporal.payloads import pack, unpack
from perdure.turn.keys import ModelKey
from perdure.worker import AgentWorker
from perdure.worker.settings import WorkerSettings

from ...conftest import Runtime, eventually
from ...support.counting import counting
from ...support.speaking import ADDER, Speaker, speaking
from ...support.telemetry import Reversing, queue

KEY = ModelKey(1)
PLAIN = DataConverter()
SECONDS = 20


@contextlib.asynccontextmanager
async def listening(client: Client, where: Listening | None = None) -> AsyncIterator[LiveTexts]:
    """The texts of a worker that listens on loopback."""
    texts = LiveTexts(where or Listening(only_loopback=True))
    async with contextlib.AsyncExitStack() as opened, asyncio.timeout(SECONDS):
        await texts.open(opened, client)
        yield texts


@contextlib.asynccontextmanager
async def served(client: Client) -> AsyncIterator[tuple[TextOfCall, TextSource]]:
    """One text of a worker, and where it is found."""
    async with listening(client) as texts:
        with texts.text(PLAIN) as text:
            assert text.source is not None
            yield text, text.source


@pytest.fixture
async def temporal(perdure_server: str) -> Client:
    return await Client.connect(perdure_server)


@contextlib.asynccontextmanager
async def connected(
    source: TextSource,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = source.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer_to(source: TextSource, *said: bytes) -> bytes:
    """What the worker answers to some bytes, until it closes the connection."""
    async with connected(source) as (reader, writer):
        writer.write(b"".join(said))
        return await reader.read()


async def heartbeats(client: Client, turn_id: str) -> list[LiveText]:
    """What the heartbeats of the calls in flight carry."""
    running = (await describe(client, turn_id)).pending_activities
    payloads = [one for activity in running for one in activity.heartbeat_details.payloads]
    return [unpack(RawValue(payload), LiveText) for payload in payloads]


def pending(key: ModelKey, text: LiveText) -> DescribeWorkflowExecutionResponse:
    """What Temporal says of a turn whose model call has sent a heartbeat."""
    activity = PendingActivityInfo(activity_id=str(key))
    activity.heartbeat_details.payloads.append(pack(text).payload)
    return DescribeWorkflowExecutionResponse(pending_activities=[activity])


@pytest.mark.accepts("E185")
async def test_every_piece_is_heard_alone_without_a_question_to_the_server(
    runtime: Runtime,
) -> None:
    """Each piece is given only when the one before it was heard; heartbeats would bring some
    together, and each of them would take a question.
    """
    pieces = [f"{number} " for number in range(60)]
    async with speaking(runtime, *pieces) as (speaker, client, turn):
        temporal, service = counting(client.temporal)
        told, heard = AgentClient.from_temporal(temporal).turn(turn.id), list[str]()
        async with asyncio.timeout(SECONDS):
            async for said in told.text():
                if isinstance(said, str):
                    heard.append(said)
                    if len(heard) == 2:
                        asked = service.calls["describe_workflow_execution"]
                    if len(heard) < len(pieces):
                        speaker.gates[len(heard) - 1].set()
                    else:
                        more = service.calls["describe_workflow_execution"] - asked
                        break

    assert heard == pieces
    assert more <= 2  # a line that is silent for seconds is looked after


@pytest.mark.accepts("E185")
async def test_one_who_comes_late_hears_a_long_text_from_its_beginning(runtime: Runtime) -> None:
    """Heartbeats carry only the end of it."""
    long = "".join(f"{number} äöü " for number in range(10_000))
    async with speaking(runtime, long, "and the end") as (speaker, _, turn):
        heard = list[object]()
        async with asyncio.timeout(SECONDS):
            async for said in turn.text():
                heard.append(said)
                speaker.go_on()

    assert heard == [TextBegins(1), long, "and the end"]


@pytest.mark.accepts("E186")
async def test_without_a_way_to_the_worker_heartbeats_bring_the_text(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeats name no way, for there is none."""
    monkeypatch.setenv("PERDURE_LIVE_TEXT", "off")
    async with speaking(runtime, "one ", "two") as (speaker, client, turn):
        heard, beats = list[object](), list[LiveText]()
        async with asyncio.timeout(SECONDS):
            async for said in turn.text():
                heard.append(said)
                if said == "one ":
                    beats = await heartbeats(client.temporal, turn.id)
                    speaker.go_on()

    assert heard == [TextBegins(1), "one ", "two"]
    assert beats == [LiveText(text="one ")]


@pytest.mark.accepts("E186")
async def test_heartbeats_go_on_where_a_line_breaks(temporal: Client) -> None:
    """The worker closes its port in the middle of a text; nothing is said twice."""
    news = asyncio.Event()
    async with served(temporal) as (text, source):
        text.add("one ")
        heartbeat = LiveText(text="one ", source=source)

        async def describe() -> DescribeWorkflowExecutionResponse:
            return pending(KEY, heartbeat)

        ear = Ear(describe, PLAIN, news.set)
        await ear.listen(0)
        await news.wait()
        [by_line] = await ear.listen(0)
    heartbeat = LiveText(text="one two ", source=source)

    async with asyncio.timeout(SECONDS):
        while Heard(KEY, 0, "one two ") not in await ear.listen(0):
            pass
    await ear.close()

    assert by_line == Heard(KEY, 0, "one ")


@pytest.mark.accepts("E187")
async def test_text_needs_the_key_of_the_heartbeat(temporal: Client) -> None:
    """A wrong key, another text's, a name without its key, and the proof of another connection."""
    async with listening(temporal) as texts:
        with texts.text(PLAIN) as text, texts.text(PLAIN) as another:
            source, other = text.source, another.source
            assert source is not None
            assert other is not None
            text.add("secret")
            read = list[bytes]()
            for key in (lines.new_key(), other.key):
                async with connected(source) as (reader, writer):
                    writer.write(lines.name_of(source.key) + bytes(16))
                    number = await reader.readexactly(16)
                    writer.write(lines.Codes(key, bytes(16), number).proof)
                    read.append(await reader.read())
            overheard = lines.Codes(source.key, bytes(16), number).proof
            replayed = await answer_to(source, lines.name_of(source.key), bytes(16), overheard)
            read.append(replayed[16:])
            read.append(await answer_to(source, secrets.token_bytes(32)))
            read.append(await answer_to(source, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))

            line = TextLine(KEY, source, PLAIN, lambda: None)
            await eventually(lambda: line.text == "secret", "the text")
            await line.close()

    assert read == [b""] * 5


@pytest.mark.accepts("E187")
@pytest.mark.parametrize("forged", ["another key", "repeated", "changed", "endless"])
async def test_reader_takes_no_text_from_a_stranger(forged: str) -> None:
    """Whoever listens at the address has to know the key as well."""
    key = lines.new_key()
    message = pack(LiveText(text="forged")).payload.SerializeToString()

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, number = await lines.asked(reader)
        writer.write(bytes(16))
        used = lines.new_key() if forged == "another key" else key
        codes = lines.Codes(used, number, bytes(16))
        good = pack(LiveText(text="good ")).payload.SerializeToString()
        framed = lines.framed(good, codes)
        if forged == "repeated":
            writer.write(framed + framed)
        elif forged == "changed":
            writer.write(framed + lines.framed(message, codes).replace(b"forged", b"FORGED"))
        elif forged == "endless":
            writer.write(framed + b"\xff" * 100)
        else:
            writer.write(lines.framed(message, codes))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(pretend, "127.0.0.1", 0)
    async with server, asyncio.timeout(SECONDS):
        port = server.sockets[0].getsockname()[1]
        source = TextSource(address=f"127.0.0.1:{port}", key=key)
        line = TextLine(KEY, source, PLAIN, lambda: None)
        await line.ended()

    assert line.text == ("" if forged == "another key" else "good ")


@pytest.mark.accepts("E187")
async def test_text_goes_through_the_codec(temporal: Client) -> None:
    """With encryption, nobody on the way reads it."""
    encrypting = DataConverter(payload_codec=Reversing())
    async with listening(temporal) as texts:
        with texts.text(encrypting) as text:
            source = text.source
            assert source is not None
            text.add("a secret plan")
            async with connected(source) as (reader, writer):
                codes = await lines.ask(reader, writer, source.key)
                async with contextlib.aclosing(lines.messages(reader, codes)) as messages:
                    message = await anext(messages)
            line = TextLine(KEY, source, encrypting, lambda: None)
            await eventually(lambda: line.text == "a secret plan", "the text")
            await line.close()

    assert b"secret" not in message
    [raw] = await encrypting.decode([Payload.FromString(message)], [RawValue])
    assert unpack(raw, LiveText).text == "a secret plan"


@pytest.mark.accepts("E187")
async def test_many_who_do_not_ask_for_a_text_keep_nobody_out(temporal: Client) -> None:
    """Those who say nothing are sent away after some seconds, and one too many at once."""
    async with served(temporal) as (text, source):
        text.add("hi")
        async with contextlib.AsyncExitStack() as silent:
            ends = []
            for _ in range(129):
                reader, _ = await silent.enter_async_context(connected(source))
                ends.append(asyncio.create_task(reader.read()))
            first, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            assert first == {ends[-1]}
            assert await asyncio.gather(*ends) == [b""] * 129
        line = TextLine(KEY, source, PLAIN, lambda: None)
        await eventually(lambda: line.text == "hi", "the text")
        await line.close()


@pytest.mark.accepts("E188")
async def test_worker_listens_where_it_is_told_to(temporal: Client) -> None:
    """The next port, if the first is taken; the address with which it reaches Temporal."""
    async with listening(temporal, Listening("127.0.0.1", 0)) as first:
        with first.text(PLAIN) as one:
            taken = one.source
            assert taken is not None
            port = int(taken.address.rpartition(":")[2])
            async with listening(temporal, Listening("", port)) as second:
                with second.text(PLAIN) as text:
                    source = text.source
                    assert source is not None
                    host, _, next_port = source.address.rpartition(":")

    assert host == "127.0.0.1"
    assert port < int(next_port) <= port + 15


@pytest.mark.accepts("E188")
@pytest.mark.parametrize("value", ["7300", "host:", ":70000", "on", "a:b"])
def test_setting_that_is_no_address_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_LIVE_TEXT", value)
    with pytest.raises(errors.ConfigurationError, match="PERDURE_LIVE_TEXT is HOST:PORT"):
        WorkerSettings.from_environment()


@pytest.mark.accepts("E188")
async def test_address_of_another_machine_is_refused_when_the_worker_starts(
    temporal: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_LIVE_TEXT", "192.0.2.1:7300")
    app = AgentWorker(ADDER, providers={"vendor": Speaker("hi")}, task_queue=queue())
    with pytest.raises(errors.ConfigurationError, match=r"live text on '192\.0\.2\.1' port 7300"):
        await app.build(temporal).run()
