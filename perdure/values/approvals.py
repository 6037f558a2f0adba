"""Approvals: calls that wait for a person, and decisions about them."""

from __future__ import annotations

import hashlib
from datetime import datetime
from operator import not_
from typing import Literal

from pydantic import Field

from perdure.base import Wire
from perdure.text import harmless
from perdure.values.questions import Question

Settlement = Literal["done", "absent", "again"]
"""What a person says of a call whose outcome is unknown.

It has taken effect; or it has not; or nobody knows, and it shall be made again, which only a turn
that waits can do.
"""


Kind = Literal["approval", "outcome", "question", "form", "elsewhere"]
"""What a person is asked for: to approve a call, to say what became of it, or to answer.

A call that is done `elsewhere` asks for no decision: its result is sent by who has its token.
"""


class Decision(Wire):
    """A person's decision about a call.

    `digest` identifies the arguments that were reviewed; `arguments` replaces them, as JSON text.

    `settlement` is set for a call whose outcome is unknown. Without it, such a call can only be
    denied, and then remains unknown.

    `answer` is set for a question, as JSON. Without it, a question can only be denied.

    `by` is the name of the person or program that decided, as the caller gave it; None without a
    name, and in an earlier release.
    """

    call_id: str
    digest: str
    approve: bool
    reason: str = ""
    arguments: str | None = None
    by: str | None = None
    settlement: Settlement | None = Field(default=None, exclude_if=not_)
    answer: str | None = Field(default=None, exclude_if=not_)

    @property
    def kind(self) -> Kind:
        """The kind of calls that the decision is about."""
        if self.settlement is not None:
            return "outcome"
        return "approval" if self.answer is None else "question"

    @property
    def in_words(self) -> str:
        """Format the decision in one line, such as `approved by anna`."""
        verdict = "approved" if self.approve else "denied"
        if self.settlement is not None:
            verdict = f"settled as {self.settlement}"
        if self.answer is not None:
            verdict = "answered"
        return verdict + (f" by {harmless(self.by)}" if self.by else "")


class PendingApproval(Wire):
    """A call that waits for a person.

    `token` identifies the run, the call and its arguments, for an approval that is given later, in
    another process. It is not in history: `pending_approvals` fills it in. `reason` is set if a
    deploy has changed the tool since the call was approved: it describes the change. With
    `is_unknown`, the call was made, and a person has to say what became of it: `reason` tells what
    is known.

    With `is_question`, the model asks a person, or an MCP server does during the call: `question`
    has what, and is not in history either. `reason` tells a further question about the call apart.

    With `is_job`, its tool has started a job, and nobody decides about it: the result comes from
    elsewhere until `expires_at`. `since` is when it began to wait, and `note` names the job.
    `token` is empty: the one by which the result is sent is a secret. It is not in history.
    """

    call_id: str
    tool: str
    arguments: str
    digest: str
    expires_at: datetime
    token: str = ""
    reason: str = ""
    is_unknown: bool = Field(default=False, exclude_if=not_)
    is_question: bool = Field(default=False, exclude_if=not_)
    question: Question | None = Field(default=None, exclude_if=not_)
    is_job: bool = Field(default=False, exclude_if=not_)
    since: datetime | None = Field(default=None, exclude_if=not_)
    note: str = Field(default="", exclude_if=not_)

    @property
    def kind(self) -> Kind:
        """What a person is asked for."""
        if self.is_job:
            return "elsewhere"
        if self.is_unknown:
            return "outcome"
        if not self.is_question:
            return "approval"
        return self.question.kind if self.question else "question"

    def of_run(
        self, run_id: str, arguments: str, reason: str = "", question: Question | None = None
    ) -> PendingApproval:
        """Return the same with its token, its question, and its complete arguments and reason."""
        token = token_of(run_id, self.call_id, self.digest)
        whole = {"token": token, "arguments": arguments, "reason": reason, "question": question}
        return self.model_copy(update=whole)


def token_of(run_id: str, call_id: str, digest: str) -> str:
    """Return the token of what people are asked about a call. `run_id` is that of the first run."""
    named = "\n".join((run_id, call_id, digest)).encode("utf-8", "replace")
    return hashlib.sha256(named).hexdigest()[:_TOKEN_DIGITS]


_TOKEN_DIGITS = 12
