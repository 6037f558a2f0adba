"""Calls of tools that the client runs: which wait, and their tokens. Pure.

Such a call is a job that the turn begins by itself: it waits without an activity, and its token is
for the client.
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.turn import call_tokens
from perdure.turn.keys import ToolKey
from perdure.turn.state import TurnState
from perdure.values.client_tools import ClientCall


def awaited(state: TurnState, turn_id: str) -> Iterator[ClientCall]:
    """Yield the calls that wait for the client, each with its token."""
    for position, open_call in () if state.ended else state.open_step.unfinished:
        wait, job = open_call.wait, open_call.job
        if wait is None or not wait.digest or job is None or job.output is not None:
            continue
        assert state.agent is not None
        key = ToolKey(state.step_count + 1, position)
        yield ClientCall(
            call_id=open_call.call.id,
            tool=open_call.call.name,
            arguments=open_call.edited.arguments,
            token=call_tokens.make(state.agent.call_secret, turn_id, key, wait.digest),
            since=wait.since,
            expires_at=wait.until,
        )
