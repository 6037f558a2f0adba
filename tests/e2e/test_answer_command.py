"""`perdure answer` as a user runs it: a worker process, and a turn whose model asks."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator

import pytest

from ..support.e2e.command_line import CommandLine, beside_a_worker, wait_until

pytestmark = pytest.mark.slow

AGENTS = """
from perdure import Agent
from perdure.testing import ScriptedModel, call, calls, says
from perdure.toolboxes import asking
from perdure.worker import AgentWorker

FORM = {"type": "object", "properties": {"euros": {"type": "integer"}}, "required": ["euros"]}


class Model:
    async def complete(self, request):
        results = [
            result.content
            for message in request.messages
            for result in getattr(message, "results", ())
        ]
        questions = calls(
            call("ask", question="Which\\x1b[2K?", options=["red", "green"]),
            call("ask", question="How much?", schema=FORM),
            call("ask", question="Why?"),
        )
        answer = says(" ".join(results)) if results else questions
        return await ScriptedModel(answer).complete(request)

    async def close(self):
        pass


app = AgentWorker(
    [Agent(name="clerk", model="mine:m", toolboxes=[asking()])], providers={"mine": Model()}
)
"""


@pytest.fixture(scope="module")
def perdure(perdure_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line beside a worker; it needs no connection options."""
    with beside_a_worker(AGENTS, tmp_path_factory.mktemp("answer"), perdure_server) as here:
        yield here


@pytest.mark.accepts("J11")
def test_person_answers_by_a_suggested_command(perdure: CommandLine) -> None:
    """The list says what kind of call it is, and the turn shows options and form."""
    turn_id = f"ticket {secrets.token_hex(6)}"
    with perdure.started("run", "clerk", "Ask.", "--id", turn_id):
        wait_until(lambda: "call_1_3" in perdure("approvals", turn_id).stdout, "the turn waits")
        listed = perdure("approvals").stdout
        looked = perdure("approvals", turn_id)
        first = json.loads(perdure("approvals", turn_id, "--json").stdout.splitlines()[0])
        approved = perdure("approvals", turn_id, "--approve", "call_1_1")
        wrong = perdure("answer", turn_id, "call_1_1", "blue")
        no_form = perdure("answer", turn_id, "call_1_2", "forty")
        misfit = perdure("answer", turn_id, "call_1_2", '{"euros": "40"}')
        answered = perdure("answer", turn_id, "call_1_1", "green", "--by", "anna", "--json")
        perdure("answer", turn_id, "call_1_2", '{"euros": 40}', "--by", "anna")
        again = perdure("answer", turn_id, "call_1_2", '{"euros": 41}')
        declined = perdure(
            "approvals", turn_id, "--deny", "call_1_3", "--reason", "none of your business"
        )
        wait_until(lambda: "completed" in perdure("show", turn_id).stdout, "the turn ends")
        shown = perdure("show", turn_id).stdout

    assert "ask, question" in listed
    assert "call_1_1  ask, question  expires in" in looked.stdout
    assert "call_1_2  ask, form  expires in" in looked.stdout
    assert "Which\\u001b[2K?" in looked.stdout
    assert '- "green"' in looked.stdout
    assert "form: {" in looked.stdout
    assert f"perdure answer '{turn_id}' call_1_1 ANSWER" in looked.stderr
    assert first["question"]["options"] == ["red", "green"]
    codes = {one.returncode for one in (approved, wrong, no_form, misfit, again)}
    assert codes == {2}
    assert "is a question: answer or deny it" in approved.stderr
    assert 'is "blue", not one of "red", "green"' in wrong.stderr
    assert "the answer is a JSON object" in no_form.stderr
    assert "not of type integer" in misfit.stderr
    assert "already answered by anna" in again.stderr
    assert declined.returncode == 0
    assert json.loads(answered.stdout) == {
        "turn": turn_id,
        "call_id": "call_1_1",
        "decided": "answered",
        "by": "anna",
    }
    words = " ".join(shown.split())
    assert 'call_1_1 answered by anna: "green"' in words
    assert 'call_1_2 answered by anna: {"euros": 40}' in words
    assert "none of your business" in words
