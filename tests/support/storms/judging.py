"""The judges of a storm: what the provider and the service were asked for, what the senders were
told, and what the histories say.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from temporalio.worker import Replayer

from perdure.clients import Turn
from perdure.events import CallFinished, Decided, Emitted, ToolLost
from perdure.temporal.data_converter import chosen
from perdure.temporal.histories.runs import describe, runs_up_to
from perdure.workflows import WORKFLOWS
from perdure.workflows.single_input import OneInput

from ...conftest import assert_no_task_failed, check_history
from ..e2e.stories import UNKNOWN
from ..losses import timeless
from .scripts import Call, parts, script
from .senders import Sending
from .storm import Storm

MESSAGE = "psst"
"""A message to a running turn, which ends its waits."""
WOKEN = "the user has sent a message"


def results(requests: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """The result of each call as the model read it, by task and id: the same in each request."""
    told: dict[str, dict[str, str]] = defaultdict(dict)
    for body in requests:
        for task, since in parts(body):
            for message in since:
                if message["role"] == "tool":
                    content = told[task].setdefault(message["tool_call_id"], message["content"])
                    assert content == message["content"], f"{task}: two results of one call"
    return told


async def facts_of(turn: Turn) -> list[Any]:
    """The facts of all runs of a turn."""
    return [event.fact async for event in turn.events()]


@dataclass
class Recorded:
    """What the history of a turn has of what was sent: contents by the id of an event, or by the
    name of a call.
    """

    events: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    answers: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    results: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @staticmethod
    def of(task: str, told: Mapping[str, str], facts: list[Any]) -> Recorded:
        """What the facts of a turn say. `told` has the ids of its calls in order."""
        recorded, steps = Recorded(), script(task)
        names = dict(zip(told, (call.what for step in steps for call in step), strict=True))
        for fact in facts:
            match fact:
                case Emitted(event):
                    recorded.events[event.id].append(json.loads(event.body))
                case Decided(decision):
                    assert decision.answer is not None
                    answer = json.loads(decision.answer)
                    recorded.answers[names[decision.call_id]].append(answer)
                case CallFinished(key, output):
                    call = steps[key.step - 1][key.call - 1]
                    recorded.results[call.what].append(output.content)
        return recorded


def check_turn(task: str, storm: Storm, told: Mapping[str, str], facts: list[Any]) -> Counter[str]:
    """The model has read one result of each call: what its call waited for.

    Returns:
        How many calls there were of each kind, and how many ended otherwise.
    """
    turn = Judged(storm, Recorded.of(task, told, facts), facts)
    calls = [
        (call, (step, place))
        for step, made in enumerate(script(task), 1)
        for place, call in enumerate(made, 1)
    ]
    for (call, place), content in zip(calls, told.values(), strict=True):
        turn.ends[call.kind] += 1
        turn.check(call, place, content)

    assert len(set(turn.given)) == len(turn.given), f"{task}: an event was given twice"
    check_sendings(task, storm, turn.recorded)
    return turn.ends


@dataclass
class Judged:
    """What is known of a turn that is judged.

    Attributes:
        given: The ids of the events that its calls got.
        ends: How many calls there were of each kind, and how many ended otherwise.
    """

    storm: Storm
    recorded: Recorded
    facts: list[Any]
    given: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)

    def check(self, call: Call, place: tuple[int, int], content: str) -> None:
        """The result of a call is what it waited for."""
        match call.kind:
            case "time":
                assert content.startswith("Waited "), content
            case "event" | "twins":
                self._check_event(call, content)
            case "question":
                assert self.recorded.answers[call.what] == [content]
            case "build":
                assert content == self.storm.polled[call.what]
            case "order" if timeless(content).endswith(UNKNOWN):
                lost = [fact.key for fact in self.facts if isinstance(fact, ToolLost)]
                assert place in [(key.step, key.call) for key in lost]
                assert not self.recorded.results[call.what]
                self.ends["unknown"] += 1
            case _:
                assert self.recorded.results[call.what] == [content]

    def _check_event(self, call: Call, content: str) -> None:
        if WOKEN in content:
            assert any(getattr(fact, "text", "") == MESSAGE for fact in self.facts)
            self.ends["woken"] += 1
            return
        sent = {one.content for one in self.storm.sendings if one.what == call.what}
        [body] = [body for body in sent if body in content]
        self.given.append(body.rpartition(" by ")[0])
        assert self.recorded.events[self.given[-1]] == [body]


def check_sendings(task: str, storm: Storm, recorded: Recorded) -> None:
    """What was acknowledged is recorded once, and what was refused is not recorded."""
    sendings = [one for one in storm.sendings if one.turn_id == storm.turns[task].id]
    assert all(one.ends for one in sendings)
    groups: dict[tuple[str, str, str, str], list[Sending]] = defaultdict(list)
    for one in sendings:
        groups[one.kind, one.what, one.id, one.content].append(one)
    for (kind, what, id, content), same in groups.items():
        match kind:
            case "event":
                contents, is_one_event = recorded.events[id], True
            case "answer":
                contents, is_one_event = recorded.answers[what], False
            case _:
                contents, is_one_event = recorded.results[what], False
        assert len(contents) <= 1, f"{what}: {contents}"
        if any(one.is_acknowledged for one in same):
            # of two events with one id, the first counts
            assert contents == [content] or (is_one_event and contents), f"{same}: {contents}"
        elif all(one.is_refused for one in same):
            assert content not in contents, f"{same}: {contents}"


def check_jobs(storm: Storm) -> None:
    """Each job is begun once for its key, and one that may not run again is asked for once."""
    keys, tokens = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for line in storm.jobs.asked():
        keys[line.what].add(line.key)
        tokens[line.what].add(line.token)
    orders = {call.what for call in all_calls(storm) if call.kind == "order"}
    asked = Counter(line.what for line in storm.jobs.asked() if line.what in orders)
    assert all(len(found) == 1 for found in (*keys.values(), *tokens.values()))
    assert len(set().union(*keys.values())) == len(keys)
    assert not asked or max(asked.values()) == 1


def all_calls(storm: Storm) -> Iterator[Call]:
    """The calls of all turns."""
    return (call for task in storm.turns for step in script(task) for call in step)


async def check_histories(storm: Storm) -> None:
    """No workflow task failed, readers agree with the turns, and each run replays."""
    client, replayer = (
        storm.story.temporal,
        Replayer(data_converter=chosen(), workflows=WORKFLOWS, interceptors=[OneInput()]),
    )
    sessions = {turn.id.partition("/")[0] for turn in storm.turns.values() if "/" in turn.id}
    for turn in storm.turns.values():
        await check_history(client, turn.id, await turn.first_run())
    for id in (*sessions, *(turn.id for turn in storm.turns.values())):
        for run in await runs_up_to(client, await describe(client, id)):
            history = await client.get_workflow_handle(id, run_id=run).fetch_history()
            assert_no_task_failed(history)
            await replayer.replay_workflow(history)
