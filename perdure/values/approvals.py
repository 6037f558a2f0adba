"""Approvals: calls that wait for a person, and decisions about them."""

from __future__ import annotations

import hashlib
from datetime import datetime
from operator import not_
from typing import Literal

from pydantic import Field

from perdure.base import Wire
from perdure.text import harmless

Settlement = Literal["done", "absent", "again"]
"""What a person says of a call whose outcome is unknown.

It has taken effect; or it has not; or nobody knows, and it shall be made again, which only a turn
that waits can do.
"""


class Decision(Wire):
    """A person's decision about a call.

    `digest` identifies the arguments that were reviewed; `arguments` replaces them, as JSON text.

    `settlement` is set for a call whose outcome is unknown. Without it, such a call can only be
    denied, and then remains unknown.

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

    @property
    def in_words(self) -> str:
        """Format the decision in one line, such as `approved by anna`."""
        verdict = "approved" if self.approve else "denied"
        if self.settlement is not None:
            verdict = f"settled as {self.settlement}"
        return verdict + (f" by {harmless(self.by)}" if self.by else "")


class PendingApproval(Wire):
    """A call that waits for a person.

    `token` identifies the run, the call and its arguments, for an approval that is given later, in
    another process. It is not in history: `pending_approvals` fills it in. `reason` is set if a
    deploy has changed the tool since the call was approved: it describes the change. With
    `is_unknown`, the call was made, and a person has to say what became of it: `reason` tells what
    is known.
    """

    call_id: str
    tool: str
    arguments: str
    digest: str
    expires_at: datetime
    token: str = ""
    reason: str = ""
    is_unknown: bool = Field(default=False, exclude_if=not_)

    def of_run(self, run_id: str, arguments: str, reason: str = "") -> PendingApproval:
        """Return the same with its token, and with its complete arguments and reason."""
        named = "\n".join((run_id, self.call_id, self.digest)).encode("utf-8", "replace")
        token = hashlib.sha256(named).hexdigest()[:_TOKEN_DIGITS]
        return self.model_copy(update={"token": token, "arguments": arguments, "reason": reason})


_TOKEN_DIGITS = 12
