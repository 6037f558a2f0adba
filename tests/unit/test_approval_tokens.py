"""The token that approves a call from another process."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from perdure.values.approvals import PendingApproval


@pytest.mark.accepts("A9")
def test_token_names_run_call_and_arguments() -> None:
    """A call that differs in any of them has another token; `digest` covers the arguments."""
    expires = datetime(2026, 1, 1, tzinfo=UTC)
    asked = [
        ("run", "call", "digest"),
        ("other", "call", "digest"),
        ("run", "other", "digest"),
        ("run", "call", "other"),
    ]
    waiting = [
        (
            run,
            PendingApproval(
                call_id=call, tool="pay", arguments="{}", digest=digest, expires_at=expires
            ),
        )
        for run, call, digest in asked
    ]

    assert len({one.of_run(run, "{}").token for run, one in waiting}) == len(asked)
