"""A deploy: for a while, workers of the previous release and of this one share a task queue."""

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.worker import Replayer

from perdure import AgentReport, Budget, Outcome, errors
from perdure.clients import Sent, Session, Turn
from perdure.testing.stub_provider import StubReply, completion
from perdure.turn.facts import CallFailed
from perdure.values.messages import ToolMessage, UserMessage
from perdure.workflows.session.agent_session import AgentSession
from perdure.workflows.single_input import OneInput

from ..conftest import assert_no_task_failed, check_history, eventually
from ..support.e2e.releases import (
    PREVIOUS,
    THIS,
    Deploy,
    Hands,
    hands,
    hands_in,
    previous_release,
)
from ..support.e2e.stories import (
    GONE_S,
    LOST,
    UNKNOWN,
    Improviser,
    Story,
    Tell,
    asks,
    assert_recorded_once,
    results,
    says,
    use,
)
from ..support.e2e.two_releases_app import AGENT
from ..support.losses import timeless

__all__ = ["previous_release"]

BRIEFLY_S = 0.05
LONGEST_S = 240.0
"""From the start of a turn to its end, with the starts of four workers in between."""
MODEL_CALLS = 3
"""The budget of turns that need more."""


def thinks(thought: str, reply: StubReply, *, place: int) -> StubReply:
    """The same reply, with the model's reasoning at this point of the script."""
    body = completion(reply, place, "stub")
    body["choices"][0]["message"]["reasoning_content"] = thought
    return {"raw": json.dumps(body), "delay_s": BRIEFLY_S}


CONVERSATION = [
    asks(use("look", "one"), delay_s=BRIEFLY_S),
    asks(use("count", "two", numbers=[1, 2]), use("charge", "three"), delay_s=BRIEFLY_S),
    says("done", delay_s=BRIEFLY_S),
    # the turn that reads what has waited
    asks(use("look", "four"), use("charge", "six"), delay_s=BRIEFLY_S),
    says("done again", delay_s=BRIEFLY_S),
]

REPLIES = [
    asks(use("look", "one"), delay_s=BRIEFLY_S),
    asks(use("count", "two", numbers=[1, 2]), use("fail", "three"), delay_s=BRIEFLY_S),
    asks(use("nothing", "four"), use("count", "five", numbers="many"), delay_s=BRIEFLY_S),
    thinks("Six and seven.", asks(use("charge", "six"), use("look", "seven")), place=3),
    says("done", delay_s=BRIEFLY_S),
    # the task for a turn that continues from earlier messages
    asks(use("charge", "eight"), use("count", "nine", numbers=[10**20, -1]), delay_s=BRIEFLY_S),
    says("done again", delay_s=BRIEFLY_S),
]

HELD = {"one": 0, "two": 1, "seven": 6}
"""Calls in which turns are cancelled, and how many have their result by then."""


def told(turn: Turn) -> list[str]:
    """The results that the model receives for the calls of a turn."""
    if "/then" in turn.id:
        return [f'{{"charged":"eight","turn":"{turn.id}","at":NaN}}', str(10**20 - 1)]
    first = [
        f"saw one for {turn.id}",
        "3",
        "fail failed: ValueError: no luck with three",
        "There is no tool named 'nothing'. The tools are: look, count, charge, fail.",
        "count was not called, its arguments are not valid: numbers: Input should be a valid array",
        f'{{"charged":"six","turn":"{turn.id}","at":NaN}}',
        f"saw seven for {turn.id}",
    ]
    return first[: HELD.get(turn.id.rpartition("-")[2])]


def differences(turn: Turn, report: AgentReport) -> list[tuple[str | None, str | None]]:
    """Where the model received something else, unless the worker of a call that is not repeated was
    killed.
    """
    lost = {f"{name}: {text}" for name in ("charge", "fail") for text in (LOST, UNKNOWN)}
    given = (
        results_so_far(report)[: len(told(turn))]
        if report.outcome is Outcome.CANCELLED
        else results(report)
    )
    return [
        (one, other)
        for one, other in zip_longest(given, told(turn))
        if one != other and one not in lost
    ]


def results_so_far(report: AgentReport) -> list[str]:
    """The same, including the results of an open step.

    A step stays open if a repeatable call lost its worker just before the cancel.
    """
    told = [message for message in report.messages if isinstance(message, ToolMessage)]
    return [timeless(result.content) for message in told for result in message.results]


class Patient(Improviser):
    """A provider that gives the first answer of each conversation once it is let go."""

    def __init__(self, replies: Sequence[StubReply], log: Path) -> None:
        super().__init__(replies, log)
        self.let_go = threading.Event()

    def answer(
        self, body: dict[str, Any], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """The answer, once it may be given."""
        answer = super().answer(body, headers)
        if not any(message["role"] == "assistant" for message in body["messages"]):
            self.let_go.wait(GONE_S)
        return answer


async def start(story: Story, name: str, **options: Any) -> Turn:
    """Start a turn."""
    return await story.client.start(
        AGENT, f"{name}, go", id=f"{story.client.task_queue}/{name}", **options
    )


async def ended(story: Story, turn: Turn) -> AgentReport:
    """The report of a turn that completes or is cancelled; its model received the expected
    results.
    """
    try:
        async with asyncio.timeout(LONGEST_S):
            found: AgentReport | None = await turn.result()
    except TimeoutError:
        pytest.fail(f"{turn.id} does not end: {await story_of(story, turn)}")
    except errors.TurnCancelledError as error:
        found = error.report
    assert found is not None
    assert differences(turn, found) == []
    return found


async def cancel(story: Story, turn: Turn) -> None:
    """Cancel a turn in the call that it is blocked in."""
    call = f"{turn.id.rpartition('-')[2]} for {turn.id}"
    await eventually(lambda: bool(story.keys(call)), f"{call} begins", within_s=LONGEST_S)
    await turn.cancel("enough")


async def story_of(story: Story, turn: Turn) -> str:
    """The last events of a history and the reasons of failed workflow tasks, for a turn that does
    not end.
    """
    events = (await story.client.history(turn)).events
    failed = {event.workflow_task_failed_event_attributes.failure.message for event in events} - {
        ""
    }
    return f"{[EventType.Name(event.event_type) for event in events[-6:]]}, {failed}"


async def requests_within_budget(story: Story, turn: Turn) -> int:
    """The number of requests to the provider for a turn that its budget ends."""
    with pytest.raises(errors.TurnBudgetExceededError):
        async with asyncio.timeout(LONGEST_S):
            await turn.result()
    task = f"{turn.id.rpartition('/')[2]}, go"
    return sum(task in json.dumps(body) for body in story.stub.requests)


async def check_history_of(story: Story, turn: Turn) -> None:
    """The turn replays on this release and folds to its own summary; no workflow task failed, and
    no model call except by a kill.
    """
    await check_history(story.temporal, turn.id, await turn.first_run())
    facts = await story.facts(turn)
    assert_recorded_once(facts)
    assert [fact for fact in facts if isinstance(fact, CallFailed) and not fact.lost] == []


def check_journal(story: Story) -> None:
    """Every call ran under one key, whichever release ran it, and none ran twice that may not."""
    ran: dict[str, list[str]] = {}
    for entry in story.journal():
        ran.setdefault(entry.what, []).append(entry.key)
    once = [keys for what, keys in ran.items() if what.startswith(("three ", "six ", "eight "))]
    assert [len(set(keys)) for keys in ran.values()] == [1] * len(ran)
    assert [len(keys) for keys in once] == [1] * len(once)


def check_hands(went: Sequence[Hands]) -> None:
    """Every process took part, most turns used both releases, and calls that one release scheduled
    were made by the other.
    """
    processes = {f"{release}-{number}" for release in (PREVIOUS, THIS) for number in (1, 2)}
    assert frozenset[str]().union(*(one.decided for one in went)) == processes
    assert frozenset[str]().union(*(one.worked for one in went)) == processes
    assert any(one.are_of_both for one in went)
    assert sum(one.crossed for one in went) >= len(went) / 2


@pytest.mark.slow
@pytest.mark.accepts("Y10", "Y12")
async def test_turns_that_workers_of_two_releases_share_all_end_as_they_should(
    tell: Tell, previous_release: Path
) -> None:
    """Twenty turns on both releases, while each release loses a worker: results, effects and
    histories are those of a single release. Four others end at their budgets.
    """
    story = await tell(*REPLIES)
    deploy = Deploy(story, previous_release)
    held = [
        await start(story, f"held-{number}-{call}", labels={"held": call})
        for call in HELD
        for number in range(2)
    ]
    first = [await start(story, f"first-{number}") for number in range(8)]
    budget = Budget(model_calls=MODEL_CALLS)
    poor = [await start(story, f"poor-{number}", budget=budget) for number in range(4)]

    async with asyncio.TaskGroup() as group:
        reports = [group.create_task(ended(story, turn)) for turn in (*held, *first)]
        asked = [group.create_task(requests_within_budget(story, turn)) for turn in poor]
        await asyncio.gather(deploy.start(PREVIOUS), deploy.start(THIS))
        await story.asked(20)
        await deploy.replace(PREVIOUS)
        await story.asked(40)
        await deploy.replace(THIS)
        then = [
            await start(
                story, f"then-{number}", history=(await reports[len(held) + number]).messages
            )
            for number in range(6)
        ]
        reports += [group.create_task(ended(story, turn)) for turn in then]
        for turn in held:
            await cancel(story, turn)
    stopped, said = [
        [report.result() for report in some]
        for some in (reports[: len(held)], reports[len(held) :])
    ]
    turns = [*held, *first, *then]

    for turn in (*turns, *poor):
        await check_history_of(story, turn)
    check_journal(story)
    check_hands([await hands(story, turn) for turn in turns])
    assert max(count.result() for count in asked) <= MODEL_CALLS
    assert [report.outcome for report in (*said, *stopped)] == [Outcome.COMPLETED] * 14 + [
        Outcome.CANCELLED
    ] * 6
    assert [report.output.partition(" #")[0] for report in said] == ["done"] * 8 + [
        "done again"
    ] * 6


async def talk(story: Story, name: str) -> tuple[Session, list[Sent[Any]]]:
    """Send five messages to a session, four of them while its first turn asks its model."""
    session = story.client.session(f"{story.client.task_queue}/{name}", AGENT)
    sent = [await session.say(f"{name}, first")]
    await eventually(
        lambda: any(f"{name}, first" in json.dumps(body) for body in story.stub.requests),
        f"{name} begins",
        within_s=LONGEST_S,
    )
    sent += [await session.say("third"), await session.say("fourth")]
    sent += [await session.say("second", if_busy="steer"), await session.say("fifth")]
    return session, sent


async def answered(sent: Sequence[Sent[Any]]) -> None:
    """Wait until two turns have read these messages."""
    async with asyncio.timeout(LONGEST_S):
        reports = [await message.result() for message in (sent[0], sent[-1])]
    assert [report.output.partition(" #")[0] for report in reports] == ["done", "done again"]
    assert [report.unread for report in reports] == [(), ()]


async def hands_of_session(story: Story, session: Session) -> Hands:
    """The processes that took part in a session, which replays on this release."""
    history = await story.temporal.get_workflow_handle(session.id).fetch_history()
    assert_no_task_failed(history)
    replayer = Replayer(workflows=[AgentSession], interceptors=[OneInput()])
    await replayer.replay_workflow(history)
    return hands_in(history.events)


@pytest.mark.slow
@pytest.mark.accepts("Y153")
async def test_sessions_that_workers_of_two_releases_share_read_each_message_once_in_order(
    perdure_server: str, tmp_path: Path, previous_release: Path
) -> None:
    """Messages that wait and a message to a running turn, while each release loses a worker."""
    provider = Patient(CONVERSATION, tmp_path / "requests.jsonl")
    async with Story(perdure_server, tmp_path, stub=provider) as story:
        deploy = Deploy(story, previous_release)
        await asyncio.gather(deploy.start(PREVIOUS), deploy.start(THIS))
        talks = await asyncio.gather(*(talk(story, f"talk-{number}") for number in range(6)))
        provider.let_go.set()
        async with asyncio.TaskGroup() as group:
            for _, sent in talks:
                group.create_task(answered(sent))
            await story.asked(10)
            await deploy.replace(PREVIOUS)
            await story.asked(20)
            await deploy.replace(THIS)
        sessions = [session for session, _ in talks]
        done = [[message.disposition.value for message in sent] for _, sent in talks]
        turns = [turn for one in sessions for turn in await turns_of(story, one)]
        for turn in turns:
            await check_history_of(story, turn)
        went = [await hands(story, turn) for turn in turns]
        worked = [await hands_of_session(story, one) for one in sessions]
        read = [texts_of(await one.messages()) for one in sessions]

    assert done == [["started", "queued", "queued", "steered", "queued"]] * 6
    assert all(texts[0].endswith(", first") for texts in read)
    assert [texts[1:] for texts in read] == [["second", "third", "fourth", "fifth"]] * 6
    check_journal(story)
    assert all(one.decided_by_both for one in worked)
    assert any(one.are_of_both for one in went)


async def turns_of(story: Story, session: Session) -> list[Turn]:
    """The turns of a session."""
    return [story.client.turn(turn.turn_id) for turn in await session.turns()]


def texts_of(messages: Sequence[Any]) -> list[str]:
    """What the user said."""
    return [message.text for message in messages if isinstance(message, UserMessage)]
