"""An MCP server in a simulation, which asks people before it goes on with a call.

It is the witness, too: it notes what it has asked, and what it was told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

from pydantic import JsonValue

from perdure.agents.mcp_servers import ListedTool, MCPServer, toolbox
from perdure.agents.mcp_tasks import TaskCalls
from perdure.testing.simulation.calls.jobs import StartedJob
from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.server.runs import Activity
from perdure.turn.keys import ToolKey, parse_key
from perdure.turn.wire import ToolRun
from perdure.values.inquiries import GivenAnswers, Inquiry, ServerQuestion
from perdure.values.messages import ToolCall
from perdure.values.questions import Question

ABOUT_SERVERS = "servers"
"""The sequence of what an MCP server asks, and of what people answer."""

_FORM: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}
_PARAMETERS: dict[str, JsonValue] = {"type": "object", "properties": {"a": {"type": "integer"}}}
_MOST_ROUNDS = 3
_ASKS = ("nothing", "a form", "a form", "consent", "two forms")
_ANSWERS = ("right", "right", "right", "twice", "wrong", "deny", "approve", "-")


def _never_called(*arguments: object) -> NoReturn:
    raise AssertionError("the server of a simulation is made up")


DESK = toolbox(
    MCPServer(name="desk", url="http://127.0.0.1/desk", tasks=timedelta(seconds=60)),
    (
        ListedTool("book", "Book something.", _PARAMETERS),
        ListedTool("stay", "Begin something long.", _PARAMETERS, may_be_task=True),
    ),
    lambda name, digest: _never_called,
    lambda name: TaskCalls(poll=_never_called, cancel=_never_called),
)
"""The tools of the server: `desk__book` has its result at once, and `desk__stay` begins a task."""


@dataclass(frozen=True)
class AskingCall:
    """A call by its turn and its place there: the id of the turn, the step and the position."""

    turn_id: str
    step: int
    call: int


@dataclass(frozen=True)
class ToldAnswers:
    """What an attempt of a call, or a poll of its job, has told the server."""

    activity: Activity
    place: AskingCall
    answers: GivenAnswers
    is_poll: bool


class AskingServer:
    """The MCP server.

    Attributes:
        asked: The place of the call during which each question was asked, by the key of the
            question. No two questions have the same key.
        forms: The keys of the questions with a form; the others ask for consent.
        told: What it was told, in order.
    """

    def __init__(self, choices: Choices) -> None:
        self.asked: dict[str, AskingCall] = {}
        self.forms: set[str] = set()
        self.told: list[ToldAnswers] = []
        self._choices = choices

    def inquiry(self, activity: Activity, run: ToolRun) -> Inquiry | None:
        """Return what the server asks before it goes on with a call; None if it goes on."""
        return self._asked(activity, run, is_poll=False)

    def inquiry_of_poll(self, jobs: Sequence[StartedJob], run: ToolRun) -> Inquiry | None:
        """Return what the server asks before it goes on with a task; None if it goes on."""
        if run.answers is None:
            return None
        activity = next(job.activity for job in jobs if job.handle == run.handle)
        return self._asked(activity, run, is_poll=True)

    def _asked(self, activity: Activity, run: ToolRun, *, is_poll: bool) -> Inquiry | None:
        if run.answers is None:
            return None
        key = parse_key(activity.key)
        assert isinstance(key, ToolKey)
        place = AskingCall(activity.run.id, key.step, key.call)
        self.told.append(ToldAnswers(activity, place, run.answers, is_poll))
        asks = self._choices.pick(_ASKS, beside=ABOUT_SERVERS)
        if asks == "nothing" or list(self.asked.values()).count(place) >= _MOST_ROUNDS:
            return None
        count = 2 if asks == "two forms" else 1
        questions = [self._question(place, has_form=asks != "consent") for _ in range(count)]
        state = "" if is_poll else f"state {len(self.asked)}"
        return Inquiry(server="desk", questions=tuple(questions), state=state)

    def _question(self, place: AskingCall, *, has_form: bool) -> ServerQuestion:
        key = f"question {len(self.asked) + 1};"
        self.asked[key] = place
        self.forms |= {key} if has_form else set()
        return ServerQuestion(key=key, text=f"{key} which?", form=_FORM if has_form else None)


def some_server_call(choices: Choices) -> ToolCall:
    """Return a call of a tool of the server."""
    name = choices.pick(("desk__book", "desk__book", "desk__stay"), beside=ABOUT_SERVERS)
    arguments = choices.pick(("{}", '{"a": 1}', '{"a": 4}'), beside=ABOUT_SERVERS)
    return ToolCall(id="", name=name, arguments=arguments)


def some_decisions(
    choices: Choices, question: Question, number: int
) -> list[tuple[bool, str | None]]:
    """Return what people decide about a question of a server: whether they approve, and an answer.

    The answer is JSON. The answers to forms are numbers from `number` on, and no two are equal, if
    each decision has another number.
    """
    right = [json.dumps({"n": number + more}) for more in (0, 1)]
    if question.form is None:
        right = [json.dumps(question.options[0])] * 2
    match choices.pick(_ANSWERS, beside=ABOUT_SERVERS):
        case "right":
            return [(True, right[0])]
        case "twice":
            return [(True, answer) for answer in right]
        case "wrong":
            return [(True, '{"n": "one"}'), (True, "5")]
        case "deny":
            return [(False, None)]
        case "approve":
            return [(True, None)]
        case _:
            return []
