"""Approvals: calls that wait for a person, and decisions about them."""

from __future__ import annotations

import hashlib
from datetime import datetime

from perdure.base import Wire
from perdure.text import harmless


class Decision(Wire):
    """A person's decision about a call.

    `digest` identifies the arguments that were reviewed; `arguments` replaces them, as JSON text.

    `by` is the name of the person or program that decided, as the caller gave it; None without a
    name, and in an earlier release.
    """

    call_id: str
    digest: str
    approve: bool
    reason: str = ""
    arguments: str | None = None
    by: str | None = None

    @property
    def in_words(self) -> str:
        """Format the decision in one line, such as `approved by anna`."""
        return ("approved" if self.approve else "denied") + (
            f" by {harmless(self.by)}" if self.by else ""
        )


class PendingApproval(Wire):
    """A call that waits for a person.

    `token` identifies the run, the call and its arguments, for an approval that is given later, in
    another process. It is not in history: `pending_approvals` fills it in. `reason` is set if a
    deploy has changed the tool since the call was approved: it describes the change.
    """

    call_id: str
    tool: str
    arguments: str
    digest: str
    expires_at: datetime
    token: str = ""
    reason: str = ""

    def of_run(self, run_id: str, arguments: str, reason: str = "") -> PendingApproval:
        """Return the same with its token, and with its complete arguments and reason."""
        named = "\n".join((run_id, self.call_id, self.digest)).encode("utf-8", "replace")
        token = hashlib.sha256(named).hexdigest()[:_TOKEN_DIGITS]
        return self.model_copy(update={"token": token, "arguments": arguments, "reason": reason})


_TOKEN_DIGITS = 12
