"""Approvals as people see them: the call that waits, and the decision about it."""

from __future__ import annotations

import hashlib
from datetime import datetime

from perdure.base import Wire
from perdure.text import harmless


class Decision(Wire):
    """What a person says about a call.

    `digest` names the arguments that were looked at; `arguments` replaces them, as JSON text.

    `by` is who decided, as the caller named them; None where it named nobody, and in an earlier
    release.
    """

    call_id: str
    digest: str
    approve: bool
    reason: str = ""
    arguments: str | None = None
    by: str | None = None

    @property
    def in_words(self) -> str:
        """`approved by anna`, in one line."""
        return ("approved" if self.approve else "denied") + (
            f" by {harmless(self.by)}" if self.by else ""
        )


class PendingApproval(Wire):
    """A call that waits for a person.

    `token` names the run, the call and its arguments, for who is to approve it later, in another
    process. History does not hold it: `pending_approvals` fills it in. `reason` is set where a
    deploy has changed the tool since the call was let run: it says what changed.
    """

    call_id: str
    tool: str
    arguments: str
    digest: str
    expires_at: datetime
    token: str = ""
    reason: str = ""

    def of_run(self, run_id: str, arguments: str, reason: str = "") -> PendingApproval:
        """The same with its token, and with its arguments and its reason whole."""
        named = "\n".join((run_id, self.call_id, self.digest)).encode("utf-8", "replace")
        token = hashlib.sha256(named).hexdigest()[:_TOKEN_DIGITS]
        return self.model_copy(update={"token": token, "arguments": arguments, "reason": reason})


_TOKEN_DIGITS = 12
