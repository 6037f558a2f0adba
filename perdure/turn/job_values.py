"""What is recorded of the job of a call whose result comes later."""

from __future__ import annotations

from operator import not_

from pydantic import Field

from perdure.base import Wire
from perdure.text import head
from perdure.turn.wire import ToolOutput


class CallJob(Wire):
    """The job of a call.

    Attributes:
        begun: What the tool returned when it had started the job; None while it runs.
        output: The result of the job, which may come before that; None as long as there is none.
        by: Who sent the result, as named by the caller; None without one.
        stopped: What became of the request to cancel the job; empty if there was none.
    """

    begun: ToolOutput | None = None
    output: ToolOutput | None = None
    by: str | None = Field(default=None, exclude_if=not_)
    stopped: str = Field(default="", exclude_if=not_)

    @property
    def handle(self) -> str:
        """What the function returned."""
        return (self.begun.handle or "") if self.begun else ""

    @property
    def is_known(self) -> bool:
        """Whether it is known what became of it."""
        return self.output is not None and not self.output.is_unknown

    @property
    def in_words(self) -> str:
        """What is known of a job without a result."""
        stopped = f"; {self.stopped}" if self.stopped else ""
        if not self.handle:
            return "the client has not sent a result"
        return f"the job {head(self.handle, 200)!r} has no result yet{stopped}"

    @property
    def proof(self) -> str:
        """The digest of the token by which the result is sent; empty while the tool runs."""
        return self.begun.proof if self.begun else ""


class FinishCall(Wire):
    """The result of a call, by its token. `content` is text for the model. `by` is who sends it."""

    token: str = Field(repr=False)
    content: str
    is_error: bool = False
    by: str | None = None
