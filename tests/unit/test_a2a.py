"""Rules of A2A: published agents, and the forms of tasks and messages."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from a2a.types import Message, Part, TaskState
from a2a.utils.errors import A2AError, ContentTypeNotSupportedError, InvalidParamsError
from google.protobuf.json_format import MessageToDict, ParseDict

from perdure import errors
from perdure.clients import AgentClient
from perdure.clients.gateway import A2AAgent, Auth, a2a_agents_from, app
from perdure.clients.gateway.a2a.cards import card
from perdure.clients.gateway.a2a.messages import answer_of, content_of
from perdure.clients.gateway.a2a.tasks import TaskIds, data_part, status_of
from perdure.clients.turns.status import TurnStatus, Wait
from perdure.errors import Severity
from perdure.values.messages import Media, Text
from perdure.values.reports import Outcome
from perdure.values.states import State

IDS = TaskIds("c/1", "c")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.accepts("H50")
def test_agents_of_a_file_are_published(tmp_path: Path) -> None:
    """With what the file says of them."""
    path = tmp_path / "agents.toml"
    path.write_text(
        '[[agent]]\nname = "desk"\ndescription = "Pays."\ntags = ["money"]\n'
        '[[agent]]\nname = "clerk"\ndescription = "Knows."\nurl = "https://x.example/a2a/clerk"\n',
        encoding="utf-8",
    )

    assert a2a_agents_from(path) == (
        A2AAgent("desk", "Pays.", tags=("money",)),
        A2AAgent("clerk", "Knows.", url="https://x.example/a2a/clerk"),
    )


@pytest.mark.parametrize(
    "text",
    [
        None,
        "no TOML",
        "agent = 1",
        '[[agent]]\nname = "desk"',
        '[[agent]]\nname = "desk"\ndescription = "x"\nskils = []',
    ],
    ids=str,
)
def test_file_of_agents_that_is_not_valid_is_refused(text: str | None, tmp_path: Path) -> None:
    """With the name of the file, before anything is served."""
    path = tmp_path / "agents.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")

    with pytest.raises(errors.ConfigurationError, match=re.escape(str(path))):
        a2a_agents_from(path)


@pytest.mark.parametrize(
    "given",
    [
        {"name": "a/b"},
        {"name": ""},
        {"description": " "},
        {"description": "\ud800"},
        {"tags": "money"},
        {"tags": ("",)},
        {"url": "agents.example.com"},
        {"url": "javascript:x"},
        {"url": "https://[x"},
    ],
    ids=str,
)
def test_agent_that_is_not_valid_is_refused(given: dict[str, Any]) -> None:
    """When it is made."""
    with pytest.raises(errors.ConfigurationError, match=next(iter(given))):
        A2AAgent(**{"name": "desk", "description": "Pays.", **given})


@pytest.mark.slow
def test_missing_packages_are_named() -> None:
    """When the application is made; without agents, none are needed."""
    code = (
        "import sys; sys.modules['a2a'] = None\n"
        "from perdure.clients.gateway import A2AAgent, app\n"
        "app(None, None)\n"
        "try: app(None, None, a2a_agents=[A2AAgent('desk', 'Pays.')])\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == (
        "ConfigurationError agents over A2A need more packages: pip install 'perdure[a2a]'\n"
    )


@pytest.mark.slow
def test_agent_is_not_served_twice() -> None:
    """Its tasks would be those of the other."""
    agents = [A2AAgent("desk", "Pays."), A2AAgent("desk", "Knows.")]

    with pytest.raises(errors.ConfigurationError, match="agent 'desk' is served twice"):
        app(cast("AgentClient", None), cast("Auth", None), a2a_agents=agents)


@pytest.mark.accepts("H50")
def test_card_says_that_a_token_is_needed() -> None:
    """In the form of the protocol; its tags are those of the agent, or its name."""
    told = card(A2AAgent("desk", "Pays."), "http://127.0.0.1:8000/a2a/desk")

    assert list(told.security_requirements[0].schemes) == ["bearer"]
    assert list(told.security_schemes) == ["bearer"]
    assert list(told.skills[0].tags) == ["desk"]


def status(**given: Any) -> TurnStatus:
    return TurnStatus(
        id="a2a/desk/c/1",
        run_id="r",
        agent="desk",
        doing="",
        since=NOW,
        **{"state": State.RUNNING, **given},
    )


def failed(code: str) -> TurnStatus:
    error = errors.ErrorInfo(code=code, severity=Severity.ERROR, message="No.")
    return status(state=State.ENDED, outcome=Outcome.FAILED, error=error)


@pytest.mark.accepts("H51")
@pytest.mark.parametrize(
    ("seen", "state", "words"),
    [
        (status(), TaskState.TASK_STATE_WORKING, None),
        (
            status(waits=(Wait(kind="provider", turn_id="x"),)),
            TaskState.TASK_STATE_WORKING,
            None,
        ),
        (
            status(waits=(Wait(kind="budget", turn_id="x", reason="0.50 USD are spent"),)),
            TaskState.TASK_STATE_INPUT_REQUIRED,
            "0.50 USD are spent",
        ),
        (
            status(state=State.ENDED, outcome=Outcome.TRUNCATED),
            TaskState.TASK_STATE_COMPLETED,
            None,
        ),
        (failed("GUARDRAIL"), TaskState.TASK_STATE_REJECTED, "GUARDRAIL: No."),
        (failed("LLM_ERROR"), TaskState.TASK_STATE_FAILED, "LLM_ERROR: No."),
    ],
    ids=["runs", "provider", "budget", "truncated", "guardrail", "model"],
)
def test_state_and_reason_of_a_task_follow_from_its_turn(
    seen: TurnStatus, state: TaskState, words: str | None
) -> None:
    """A message says what a task waits for, or why it has no answer."""
    told = status_of(IDS, seen)

    assert told.state == state
    assert told.timestamp.ToDatetime(UTC) == NOW
    assert told.HasField("message") == (words is not None)
    assert words is None or words in told.message.parts[0].text


@pytest.mark.parametrize(
    "task", ["", "1", "/1", "c/", "c/x", "c/-1", "c/²", "c/1/2", "c/" + "1" * 10]
)
def test_other_texts_are_no_ids_of_tasks(task: str) -> None:
    """They are not asked for in Temporal."""
    assert TaskIds.of(task) is None
    assert TaskIds.of("c/12") == TaskIds("c/12", "c")


@pytest.mark.accepts("H51")
def test_data_keeps_whole_numbers_and_any_depth() -> None:
    """Data that is deeper than the protocol allows is text."""
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    shallow = {"n": 40, "x": 0.5, "many": [2**53, None, True]}
    message = Message(parts=[Part(text="See:"), data_part(shallow)])

    assert content_of(message) == 'See:\n\n{"many":[9007199254740992,null,true],"n":40,"x":0.5}'
    assert MessageToDict(data_part({"x": float("nan")}))["data"] == {"x": None}
    assert data_part(deep).text == "[" * 150 + "1" + "]" * 150


FILES: dict[str, tuple[Part, type[A2AError]]] = {
    "of no type": (Part(raw=b"x"), ContentTypeNotSupportedError),
    "of no known type": (Part(url="https://x.example.com/a"), ContentTypeNotSupportedError),
    "on a disk": (Part(url="file:///etc/passwd", media_type="text/plain"), InvalidParamsError),
    "empty": (Part(), ContentTypeNotSupportedError),
}


@pytest.mark.accepts("H247")
@pytest.mark.parametrize("name", FILES)
def test_files_that_cannot_be_read_are_refused(name: str) -> None:
    """With the error of the protocol."""
    part, error = FILES[name]

    with pytest.raises(error):
        content_of(Message(parts=[Part(text="Look."), part]))


@pytest.mark.accepts("H247")
def test_files_have_the_type_that_is_said_or_seen() -> None:
    """By the part, the name of the file, or its address; text beside them stays in its place."""
    parts = [
        Part(raw=b"png", media_type="image/png"),
        Part(text=" "),
        Part(raw=b"pdf", filename="bill.pdf"),
        Part(url="https://x.example.com/a.jpg?size=2"),
        Part(text="What is it?"),
    ]

    assert content_of(Message(parts=parts)) == [
        Media(media_type="image/png", data="cG5n"),
        Media(media_type="application/pdf", data="cGRm"),
        Media(media_type="image/jpeg", url="https://x.example.com/a.jpg?size=2"),
        Text(text="What is it?"),
    ]


@pytest.mark.accepts("H52")
@pytest.mark.parametrize(
    "data",
    [
        {"approve": True},
        {"approve": "yes", "callId": "c", "token": "t"},
        {"approve": True, "callId": "c", "token": "t", "by": "otto"},
        {"approve": True, "callId": 7, "token": "t"},
        {"approve": True, "callId": "c", "token": "t", "arguments": [1]},
    ],
    ids=str,
)
def test_decision_that_is_not_valid_is_refused(data: dict[str, Any]) -> None:
    """It is neither taken as another decision nor sent to the model as text."""
    part = ParseDict({"data": data}, Part())

    with pytest.raises(InvalidParamsError):
        answer_of(Message(parts=[part]))


@pytest.mark.accepts("H52")
def test_decision_is_the_only_part_of_its_message() -> None:
    """Other data is no decision."""
    decision = ParseDict({"data": {"approve": False, "callId": "c", "token": "t"}}, Part())
    answer = answer_of(Message(parts=[decision]))

    assert answer is not None
    assert (answer.approve, answer.call_id) == (False, "c")
    assert answer_of(Message(parts=[Part(text="approve"), data_part({"x": 1})])) is None
    with pytest.raises(InvalidParamsError):
        answer_of(Message(parts=[decision, Part(text="please")]))
