"""Transcripts by reference: cached, read from the tail of history or from all of it, the model gets
the same messages.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker

from perdure import Agent, Usage, errors, tool
from perdure.activities.provider import ModelRequest
from perdure.activities.transcripts import RUN_BYTES, Transcripts
from perdure.testing import ScriptedModel, call, calls, fails, local_runtime, says
from perdure.testing.scripted import Reply
from perdure.turn.facts import Fact, ModelAnswered, Scheduled, ToolReturned
from perdure.turn.fold import fold
from perdure.turn.keys import ModelKey, ToolKey
from perdure.turn.state import TurnState
from perdure.turn.wire import ModelCall, ToolOutput
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Text, ToolCall, canonical
from perdure.values.reports import StopReason
from perdure.worker import AgentWorker, PerdurePlugin

from ...conftest import RecordingClient, Runtime, check_history, eventually
from ...support.counting import BACKWARD, FORWARD, CountingService, counting


@tool(read_only=True)
def look(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + "word " * 20


READER = Agent(
    name="reader", model="scripted:reader", instructions="Read.", tools=[look], max_iterations=60
)


def pages(count: int) -> list[Reply]:
    """Replies that read page after page, one or two at once, with or without call ids, then end."""
    asked = [
        (
            [call("look", page=n)]
            if n % 3
            else [call("look", call_id=f"a{n}", page=n), call("look", page=-n)]
        )
        for n in range(count)
    ]
    return [
        *[calls(*some, usage=Usage(input_tokens=n)) for n, some in enumerate(asked)],
        says("read"),
    ]


class Named:
    """The model of several workers; it records which of them called it."""

    def __init__(self, model: ScriptedModel, name: str, asked: list[str]) -> None:
        self._model, self._name, self._asked = model, name, asked

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self._asked.append(self._name)
        return await self._model.complete(request)

    async def close(self) -> None:
        """Nothing to close, because the test owns the model."""


def worker(client: Client, queue: str, model: ScriptedModel, name: str, asked: list[str]) -> Worker:
    """A worker with its own cache and without a preference for its own activities."""
    app = AgentWorker(READER, providers={"scripted": Named(model, name, asked)})
    return Worker(
        client,
        task_queue=queue,
        plugins=[PerdurePlugin(app)],
        disable_eager_activity_execution=True,
        graceful_shutdown_timeout=timedelta(seconds=1),
    )


async def counted(address: str) -> tuple[Client, CountingService]:
    return counting(await Client.connect(address))


@pytest.mark.slow
async def test_one_worker_remembers_and_reads_no_history(perdure_server: str) -> None:
    """Not even the first model call of the turn reads it: the workflow is in the same process."""
    client, service = await counted(perdure_server)
    queue, model, asked = f"test-{secrets.token_hex(6)}", ScriptedModel(*pages(8)), list[str]()

    async with worker(client, queue, model, "only", asked):
        report = await RecordingClient(await Client.connect(perdure_server), queue).run(
            "reader", "go"
        )

    assert report.output == "read"
    assert len(asked) == 9
    assert (service.calls[FORWARD], service.calls[BACKWARD]) == (0, 0)


@pytest.mark.slow
async def test_two_workers_that_share_a_turn_ask_what_one_would_ask(perdure_server: str) -> None:
    """Each tool and model call may run on either worker; each worker reads only the tail that it
    has not seen.
    """
    queue, model, asked = f"test-{secrets.token_hex(6)}", ScriptedModel(*pages(20)), list[str]()
    alone = ScriptedModel(*pages(20))
    (here, here_counts), (there, there_counts) = [await counted(perdure_server) for _ in range(2)]
    client = RecordingClient(await Client.connect(perdure_server), queue)
    single = RecordingClient(client.temporal, f"{queue}-single")

    async with (
        worker(here, queue, model, "here", asked),
        worker(there, queue, model, "there", asked),
    ):
        turn = await client.start("reader", "go")
        report = await turn.result()
    async with worker(client.temporal, f"{queue}-single", alone, "single", []):
        expected = await single.run("reader", "go")
    await check_history(client.temporal, turn.id, await turn.first_run())

    assert set(asked) == {"here", "there"}
    assert model.requests == alone.requests
    assert report.messages == expected.messages
    assert here_counts.calls[BACKWARD] + there_counts.calls[BACKWARD] > 0
    assert here_counts.calls[FORWARD] + there_counts.calls[FORWARD] <= 2


@pytest.mark.accepts("M4")
@pytest.mark.slow
async def test_worker_that_never_saw_the_turn_reads_all_of_it(perdure_server: str) -> None:
    """The first worker stops while the turn waits for a retry; another one continues with exactly
    the same request.
    """
    queue, asked = f"test-{secrets.token_hex(6)}", list[str]()
    script = [
        *pages(3)[:3],
        fails(errors.LLMRateLimitError("slow down", context={"retry_after_s": 1.5})),
        says("read"),
    ]
    model = ScriptedModel(*script)
    fresh, service = await counted(perdure_server)
    client = RecordingClient(await Client.connect(perdure_server), queue)

    async with worker(client.temporal, queue, model, "first", asked):
        turn = await client.start("reader", "go")
        await eventually(lambda: model.call_count == 4, "the failing attempt")
        await until_waiting(client, turn.id)
    async with worker(fresh, queue, model, "second", asked):
        report = await turn.result()
    await check_history(client.temporal, turn.id, await turn.first_run())

    assert asked == ["first"] * 4 + ["second"]
    assert model.requests[4] == model.requests[3]
    assert (report.output, report.model_calls) == ("read", 5)
    assert service.calls[BACKWARD] == 0


async def until_waiting(client: RecordingClient, turn_id: str) -> None:
    """Wait for the timer before the next attempt."""
    for _ in range(500):
        history = await client.history(client.turn(turn_id))
        if any(event.event_type == EventType.EVENT_TYPE_TIMER_STARTED for event in history.events):
            return
        await asyncio.sleep(0.02)
    pytest.fail("the turn did not wait")


# --- the three ways, separately, on an existing history


@dataclass(frozen=True)
class Recorded:
    """A finished turn, as its activities would have seen it before each model call."""

    client: Client
    history: WorkflowHistory
    facts: Sequence[Fact]

    def before(self, step: int) -> TurnState:
        """The state for the model call of a step."""
        return fold(itertools.takewhile(lambda fact: fact != Scheduled(ModelKey(step)), self.facts))

    def answer(self, step: int) -> ModelAnswer:
        [found] = [
            fact.answer
            for fact in self.facts
            if isinstance(fact, ModelAnswered) and fact.key == ModelKey(step)
        ]
        return found

    def history_steps(self) -> list[int]:
        """The numbers of the steps that have an answer."""
        return [fact.key.step for fact in self.facts if isinstance(fact, ModelAnswered)]

    def results(self, step: int) -> list[ToolReturned]:
        return [
            fact for fact in self.facts if isinstance(fact, ToolReturned) and fact.key.step == step
        ]

    async def load(
        self, transcripts: Transcripts, step: int, client: Client | None = None
    ) -> TurnState:
        """The transcript that a step's model activity would load."""
        state = self.before(step)
        named = ModelCall(digest=state.transcript.digest, model="scripted:reader")
        return await transcripts.load(client or self.client, self.info(step), named)

    def info(self, step: int) -> activity.Info:
        info = ActivityEnvironment.default_info()
        return replace(
            info,
            workflow_id=self.history.workflow_id,
            workflow_run_id=self.history.run_id,
            activity_id=str(ModelKey(step)),
        )


STEPS = 14


@pytest.fixture(scope="module")
async def recorded(perdure_server: str) -> AsyncIterator[Recorded]:
    """A turn of `STEPS` steps and an answer, long enough for several pages of history when it is
    read backwards. The tests read it alone.
    """
    model = ScriptedModel(*pages(STEPS))
    async with local_runtime(READER, model=model, address=perdure_server) as client:
        turn = await client.start(READER, "go")
        await turn.result()
        facts = [event.fact async for event in turn.events()]
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
        await check_history(client.temporal, turn.id, history.run_id)
        yield Recorded(client.temporal, history, facts)


@pytest.mark.slow
async def test_all_of_history_gives_each_steps_transcript(recorded: Recorded) -> None:
    """A cache of zero bytes keeps nothing, so every step reads from the beginning, up to its own
    call.
    """
    transcripts = Transcripts(max_bytes=0)

    for step in range(1, STEPS + 2):
        state = await recorded.load(transcripts, step)
        transcripts.remember_answer(
            recorded.history.run_id, state, ModelKey(step), recorded.answer(step)
        )

        assert state == recorded.before(step)


@pytest.mark.slow
async def test_tail_since_any_answer_gives_each_steps_transcript(recorded: Recorded) -> None:
    """For each pair of steps: with the answer of the first one cached, only the tail is read,
    backwards, and the transcript is that of the second one.
    """
    client, service = counting(recorded.client)

    for known, step in itertools.combinations(range(1, STEPS + 2), 2):
        transcripts = Transcripts()
        transcripts.remember_answer(
            recorded.history.run_id, recorded.before(known), ModelKey(known), recorded.answer(known)
        )
        state = await recorded.load(transcripts, step, client)
        assert (state.transcript.messages, state.transcript.digest) == (
            recorded.before(step).transcript.messages,
            recorded.before(step).transcript.digest,
        )

    assert service.calls[FORWARD] == 0
    assert service.calls[BACKWARD] > 0


@pytest.mark.slow
async def test_what_was_made_here_needs_no_history(recorded: Recorded) -> None:
    """Answers and results that this process produced form the transcript of the next step."""
    client, service = counting(recorded.client)
    transcripts = Transcripts()

    for step in range(1, STEPS + 1):
        transcripts.remember_answer(
            recorded.history.run_id, recorded.before(step), ModelKey(step), recorded.answer(step)
        )
        for call_, fact in zip(
            fold(recorded.facts).steps[step - 1].message.calls, recorded.results(step), strict=True
        ):
            transcripts.remember_result(recorded.history.run_id, fact.key, call_.id, fact.output)
        assert (
            await recorded.load(transcripts, step + 1, client)
        ).transcript.messages == recorded.before(step + 1).transcript.messages

    assert service.calls.total() == 0


@pytest.mark.accepts("Y165")
async def test_state_of_a_workflow_in_this_process_needs_no_history(recorded: Recorded) -> None:
    """It is the state of the model call, also after an answer of an attempt that was given up."""
    client, service = counting(recorded.client)
    transcripts, run_id = Transcripts(), recorded.history.run_id

    transcripts.remember_answer(run_id, recorded.before(1), ModelKey(1), recorded.answer(2))
    transcripts.share(run_id, recorded.before(2))
    state = await recorded.load(transcripts, 2, client)

    assert state == recorded.before(2)
    assert service.calls.total() == 0


@pytest.mark.accepts("Y165")
async def test_state_of_another_moment_is_not_believed(recorded: Recorded) -> None:
    """A workflow task that the server has not accepted has left a state that history has not."""
    client, service = counting(recorded.client)
    transcripts = Transcripts()

    transcripts.share(recorded.history.run_id, recorded.before(5))
    state = await recorded.load(transcripts, 3, client)

    assert state.transcript.messages == recorded.before(3).transcript.messages
    assert service.calls.total() > 0


@pytest.mark.accepts("Y165")
async def test_state_without_the_messages_of_its_session_replaces_nothing(
    recorded: Recorded,
) -> None:
    """What this process has read of the session is not read again with each step."""
    client, service = counting(recorded.client)
    transcripts, run_id = Transcripts(), recorded.history.run_id
    whole = recorded.before(2)
    bare = replace(whole, transcript=replace(whole.transcript, messages=(), absent=3))

    transcripts.share(run_id, whole)
    transcripts.share(run_id, bare)
    state = await recorded.load(transcripts, 2, client)

    assert state == whole
    assert service.calls.total() == 0


ANOTHER = ToolCall(id="another", name="look", arguments='{"page": 99}')


@pytest.mark.slow
@pytest.mark.accepts("Y13")
@pytest.mark.parametrize(
    "parts",
    [
        (Text(text="nothing more"),),
        (ANOTHER,),
        (ANOTHER, ANOTHER.model_copy(update={"id": "third"})),
        (ANOTHER.model_copy(update={"id": ""}),),
    ],
    ids=["no call", "one call", "two calls", "call without id"],
)
async def test_answer_that_history_does_not_have_is_not_believed(
    recorded: Recorded, parts: tuple[Text | ToolCall]
) -> None:
    """An attempt that was given up has answered here; history has the other attempt's answer, so
    each later step has the right transcript.
    """
    stop = StopReason.END if isinstance(parts[0], Text) else StopReason.TOOL_CALLS
    lost = ModelAnswer(message=AssistantMessage(parts=parts), stop=stop, model="scripted")

    for known, step in itertools.combinations((1, 2, 3, 4, 5, STEPS, STEPS + 1), 2):
        transcripts = Transcripts()
        transcripts.remember_answer(
            recorded.history.run_id, recorded.before(known), ModelKey(known), lost
        )
        for fact in recorded.results(known):
            transcripts.remember_result(
                recorded.history.run_id, fact.key, f"call_{known}_{fact.key.call}", fact.output
            )
        assert (await recorded.load(transcripts, step)).transcript.messages == recorded.before(
            step
        ).transcript.messages


def wrong_calls() -> Iterator[tuple[ToolCall, ...]]:
    """Calls of a different attempt, at a place where history has delegates."""
    task = {"agent": "helper", "task": "Help."}
    some = [
        call("delegate_to_agent", **task),
        call("delegate_to_agent", agent=3),
        call("spawn_agents", tasks=[task] * 3),
        call("spawn_agents"),
    ]
    some += [
        call("spawn_agents", tasks=[task]),
        call("list_agents"),
        call("look", page=1),
        call("nothing"),
        call("spawn_agents", tasks="x"),
    ]
    for count in (1, 2):
        yield from itertools.product(some, repeat=count)


@pytest.mark.slow
@pytest.mark.accepts("Y16")
async def test_cached_answer_that_does_not_fit_the_delegates_in_history_is_not_believed(
    runtime: Runtime,
) -> None:
    """A worker that was frozen has the answer of a lost attempt; whatever it is, the transcript is
    that of history.
    """
    task = {"agent": "helper", "task": "Help."}
    delegations = [
        calls(call("spawn_agents", tasks=[task, task])),
        calls(call("delegate_to_agent", **task), call("look", page=1)),
    ]
    lead = Agent(
        name="lead", model="scripted:lead", tools=[look], delegates=["helper"], max_children=9
    )
    helper = Agent(name="helper", model="scripted:helper", description="Helps.")
    models = {
        "lead": ScriptedModel(*delegations, says("done")),
        "helper": ScriptedModel(says("a"), says("b"), says("c")),
    }
    async with runtime([lead, helper], model=models) as client:
        turn = await client.start("lead", "go")
        await turn.result()
        facts = [event.fact async for event in turn.events()]
        recorded = Recorded(client.temporal, await client.history(turn), facts)
        for wrong in wrong_calls():
            answer = ModelAnswer(
                message=AssistantMessage(parts=wrong), stop=StopReason.TOOL_CALLS, model="scripted"
            )
            for known in (1, 2):
                transcripts = Transcripts()
                transcripts.remember_answer(
                    recorded.history.run_id, recorded.before(known), ModelKey(known), answer
                )
                for fact in recorded.results(known):
                    transcripts.remember_result(
                        recorded.history.run_id,
                        fact.key,
                        f"call_{known}_{fact.key.call}",
                        fact.output,
                    )
                loaded = await recorded.load(transcripts, known + 1)
                assert (
                    loaded.transcript.messages == recorded.before(known + 1).transcript.messages
                ), wrong


@pytest.mark.slow
@pytest.mark.accepts("Y13")
async def test_result_that_history_does_not_have_is_not_believed(recorded: Recorded) -> None:
    """A tool that was given up has returned here; the model gets the result in history."""
    transcripts = Transcripts()
    transcripts.remember_answer(
        recorded.history.run_id, recorded.before(1), ModelKey(1), recorded.answer(1)
    )
    [asked, *_] = fold(recorded.facts).steps[0].message.calls
    transcripts.remember_result(
        recorded.history.run_id, ToolKey(1, 1), asked.id, ToolOutput(content="too late")
    )

    state = await recorded.load(transcripts, 2)

    assert state.transcript.messages == recorded.before(2).transcript.messages


@pytest.mark.accepts("Y13")
async def test_transcript_that_history_does_not_hold_is_an_error(recorded: Recorded) -> None:
    """The digest does not match: a typed error, whatever is in the cache."""
    transcripts = Transcripts()
    transcripts.remember_answer(
        recorded.history.run_id, recorded.before(1), ModelKey(1), recorded.answer(1)
    )
    state = recorded.before(2)
    other = ModelCall(digest="0" * 64, model="scripted:reader")

    with pytest.raises(
        errors.TranscriptMismatchError, match=f"{len(state.transcript.messages)} messages"
    ):
        await transcripts.load(recorded.client, recorded.info(2), other)


async def test_finished_turn_is_forgotten_at_once(recorded: Recorded) -> None:
    """Its transcript is not needed any more, so ten thousand finished turns use no memory."""
    transcripts = Transcripts()
    last = recorded.answer(len(recorded.history_steps()))

    transcripts.remember_answer(
        recorded.history.run_id, recorded.before(2), ModelKey(2), recorded.answer(2)
    )
    held = len(transcripts)
    transcripts.remember_answer(recorded.history.run_id, recorded.before(2), ModelKey(2), last)

    assert (held, len(transcripts)) == (1, 0)


@pytest.mark.slow
async def test_cache_forgets_the_run_that_was_used_first(recorded: Recorded) -> None:
    """The cache is limited; a run that was evicted is read from history again."""
    client, service = counting(recorded.client)
    run_id = recorded.history.run_id
    transcripts = Transcripts(max_bytes=recorded.before(3).transcript.size_bytes + RUN_BYTES + 1000)
    transcripts.remember_answer(run_id, recorded.before(2), ModelKey(2), recorded.answer(2))
    for fact in recorded.results(2):
        transcripts.remember_result(
            run_id, fact.key, recorded.answer(2).message.calls[0].id or "call_2_1", fact.output
        )

    kept = await recorded.load(transcripts, 3, client)
    requests_while_kept = service.calls.total()
    transcripts.remember_answer("another run", recorded.before(3), ModelKey(3), recorded.answer(3))
    again = await recorded.load(transcripts, 3, client)

    assert (
        kept.transcript.messages
        == again.transcript.messages
        == recorded.before(3).transcript.messages
    )
    assert requests_while_kept == 0
    assert service.calls[FORWARD] == 1


# --- how history grows


@tool(read_only=True)
def read_much(page: int) -> str:
    """Read a page of 5 KB."""
    return f"page {page} " + "x" * 5_000


@pytest.mark.slow
async def test_history_grows_with_the_transcript_and_not_with_its_square(runtime: Runtime) -> None:
    """Forty steps with results of 5 KB: each message is in history once, and a model call's input
    has none of them.
    """
    agent = replace(READER, tools=[read_much])
    model = ScriptedModel(*[calls(call("read_much", page=n)) for n in range(40)], says("read"))

    async with runtime(agent, model=model) as client:
        turn = await client.start(agent, "go")
        report = await turn.result()
        described = await client.temporal.get_workflow_handle(turn.id).describe()
        history = await client.history(turn)

    transcript = sum(len(canonical(message)) for message in report.messages)
    inputs = [
        event.activity_task_scheduled_event_attributes.input.ByteSize()
        for event in history.events
        if event.activity_task_scheduled_event_attributes.activity_type.name == "perdure.call_model"
    ]
    assert len(report.steps) == 41
    assert transcript > 200_000
    assert (
        described.raw_description.workflow_execution_info.history_size_bytes
        < 1.5 * transcript + 20_000
    )
    assert len(inputs) == 41
    assert max(inputs) < 400
    assert max(inputs) - min(inputs) < 10
