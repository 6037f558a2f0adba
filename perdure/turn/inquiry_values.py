"""What is recorded of the questions that a server asks people during a call."""

from __future__ import annotations

from operator import not_
from typing import Literal

from pydantic import Field, JsonValue

from perdure import limits
from perdure.base import Wire
from perdure.text import size
from perdure.values.inquiries import GivenAnswers, Inquiry, ServerAnswer, ServerQuestion


class CallInquiry(Wire):
    """The questions of a server during a call. People are asked one after the other.

    Attributes:
        server: The name of the server.
        questions: The questions without an answer; people are asked the first.
        answers: The answers so far, in the order in which they were given.
        state: What the server wants back with the answers.
        number: The number of the first of `questions` among all that people were asked about the
            call, from 1. Two questions of a call have different numbers.
    """

    server: str
    questions: tuple[ServerQuestion, ...] = ()
    answers: tuple[ServerAnswer, ...] = Field(default=(), exclude_if=not_)
    state: str = Field(default="", exclude_if=not_)
    number: int = 1

    @property
    def reason(self) -> str:
        """What tells the question from others about the call; empty for the first."""
        if self.number == 1:
            return ""
        return f"the MCP server {self.server!r} asks; this is question {self.number} of the call"

    def plus(self, inquiry: Inquiry) -> CallInquiry:
        """Return the same with further questions, which are asked instead of the earlier ones."""
        changes = {"questions": inquiry.questions, "state": inquiry.state}
        return self.model_copy(update=changes)

    def answered(
        self, action: Literal["accept", "decline"], content: dict[str, JsonValue]
    ) -> CallInquiry:
        """Return the same with an answer to the first question."""
        question, *others = self.questions
        answers = (*self.answers, ServerAnswer(key=question.key, action=action, content=content))
        changes = {
            "questions": tuple(others),
            "answers": _within(answers),
            "number": self.number + 1,
        }
        return self.model_copy(update=changes)

    def dismissed(self) -> CallInquiry:
        """Return the same after nobody has answered in time: all questions are cancelled."""
        cancelled = (ServerAnswer(key=each.key, action="cancel") for each in self.questions)
        changes = {
            "questions": (),
            "answers": _within((*self.answers, *cancelled)),
            "number": self.number + len(self.questions),
        }
        return self.model_copy(update=changes)

    def over(self) -> CallInquiry:
        """Return what remains once the server has what it asked for: the number of questions."""
        number = self.number + len(self.questions)
        return CallInquiry(server=self.server, number=number)

    @property
    def of_run(self) -> GivenAnswers:
        """What the next run of the call, or the next poll, tells the server."""
        return GivenAnswers(given=self.answers, state=self.state)


def _within(answers: tuple[ServerAnswer, ...]) -> tuple[ServerAnswer, ...]:
    """Return the last of these answers, as many as a payload holds; the last one always.

    A server that has asked so much has had the earlier ones.
    """
    room, kept = limits.TOOL_RESULT_BYTES, 0
    for answer in reversed(answers):
        room -= size(answer.model_dump_json())
        if room < 0 and kept:
            break
        kept += 1
    return answers[len(answers) - kept :]
