"""Transcripts of turns by reference.

A model call refers to its transcript by digest. This process usually has it: the workflow that
makes the call runs here, or the answer and the tool results of the previous step were made here.
Otherwise it reads the workflow's history: the tail since the last answer that it knows, or all of
it. A process's cache may be wrong: a worker
that was frozen may hold the answer of an attempt that was given up as lost. The digest detects
that. A digest that does not match even after reading the whole history is an error, and nothing is
sent.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from dataclasses import dataclass, replace

from temporalio import activity
from temporalio.client import Client

from perdure import errors, limits
from perdure.activities.history_folds import fold_all, fold_tail
from perdure.temporal import outcomes
from perdure.temporal.histories.origins import with_session
from perdure.temporal.recent import Recent
from perdure.turn import steps, take_over
from perdure.turn.calls import asks_again, ready_for, runs_tools
from perdure.turn.facts import ModelAnswered
from perdure.turn.fold import apply
from perdure.turn.keys import ModelKey, ToolKey, parse_key
from perdure.turn.state import TurnState
from perdure.turn.transcript import Transcript
from perdure.turn.wire import ModelCall, ToolOutput
from perdure.values.answers import ModelAnswer

RUN_BYTES = 32 * 1024
"""The size of a run besides its messages: the agent's definition, steps, containers.

Measured: 15 KB with three tools.
"""


@dataclass(eq=False)
class _Known:
    """What is cached of a run: a state, and what was made here since, folded when it is needed.

    Usually it is not: the workflow, in the same process, shares its own state with the next call.
    """

    before: TurnState
    answer: ModelAnswered | None = None
    results: tuple[tuple[ToolKey, str, ToolOutput], ...] = ()

    @functools.cached_property
    def answered(self) -> TurnState:
        """The state after the last answer."""
        return self.before if self.answer is None else apply(self.before, self.answer)

    @property
    def state(self) -> TurnState:
        """The state with the tool results."""
        state = self.answered
        for key, call_id, output in self.results:
            if _waits_for(state, key, call_id):
                state = apply(state, outcomes.returned(key, output))
        return state

    @property
    def size_bytes(self) -> int:
        """About the memory that it takes."""
        results = sum(len(output.content) for _, _, output in self.results)
        return RUN_BYTES + self.before.transcript.size_bytes + results


class Transcripts:
    """A cache of the most recently used transcripts, up to `max_bytes` of messages.

    A quarter as many bytes are kept of the messages of sessions, by their digest, for the next turn
    of the session. It is thread-safe.
    """

    def __init__(self, max_bytes: int = limits.TRANSCRIPT_CACHE_BYTES) -> None:
        self._runs = Recent[str, _Known](max_bytes, lambda known: known.size_bytes)
        self._sessions = Recent[str, Transcript](
            max_bytes // 4, lambda transcript: transcript.size_bytes
        )
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """The number of cached runs."""
        with self._lock:
            return len(self._runs)

    def share(self, run_id: str, state: TurnState) -> None:
        """Cache the state from which a workflow in this process makes a model call.

        A state without the messages of the session before the turn is less than what is cached.
        """
        if not state.transcript.absent:
            with self._lock:
                self._runs.put(run_id, _Known(state))

    def remember_answer(
        self, run_id: str, state: TurnState, key: ModelKey, answer: ModelAnswer
    ) -> None:
        """Cache an answer that was made here from a state, unless it is the turn's last."""
        known = _Known(state, ModelAnswered(key, answer))
        with self._lock:
            if runs_tools(answer) or asks_again(known.answered):
                self._runs.put(run_id, known)
                return
            self._runs.drop(run_id)
            if state.request is not None and state.request.session:
                after = known.answered.transcript
                self._sessions.put(after.digest, after)

    def remember_result(self, run_id: str, key: ToolKey, call_id: str, output: ToolOutput) -> None:
        """Add the result of a tool that ran here."""
        with self._lock:
            known = self._runs.get(run_id)
            if known is not None and known.answer is not None:
                known.results += ((key, call_id, output),)
                self._runs.put(run_id, known)

    def awaits(self, run_id: str, key: ToolKey) -> bool:
        """Return whether the answer that made this call was made here, and it has no result."""
        with self._lock:
            known = self._runs.get(run_id)
        return known is not None and steps.is_open(known.state, key)

    async def load(self, client: Client, info: activity.Info, call: ModelCall) -> TurnState:
        """Return the state with the transcript that `call` refers to.

        Raises:
            TranscriptMismatchError: History does not hold the transcript.
            TurnNotFoundError: The history of the turn's session is gone.
        """
        state = await self._find(client, info, call)
        return await self._whole(client, info, state)

    async def _whole(self, client: Client, info: activity.Info, state: TurnState) -> TurnState:
        """Return the state with the messages of the session before the turn, if it lacks them.

        This process has them if it ran the last call of the turn before.
        """
        origin = state.origin
        if not state.transcript.absent or origin is None:
            return state
        with self._lock:
            before = self._sessions.get(origin.digest)
        if before is not None:
            return take_over.complete(state, before.messages)
        assert info.workflow_id
        transcript = (
            await with_session(client, info.workflow_id, state, is_worker=True)
        ).transcript
        before = replace(transcript, messages=transcript.messages[: origin.steps])
        with self._lock:
            self._sessions.put(origin.digest, before)
        return replace(state, transcript=transcript)

    async def _find(self, client: Client, info: activity.Info, call: ModelCall) -> TurnState:
        """Return the state with the transcript that `call` refers to, if history holds it."""
        assert info.workflow_id
        assert info.workflow_run_id
        turn_id, run_id = info.workflow_id, info.workflow_run_id
        own_key = parse_key(info.activity_id)
        with self._lock:
            known = self._runs.get(run_id)
        if known is not None:
            # what is known may be an answer that history does not have, and then nothing fits
            with contextlib.suppress(Exception):
                state = known.state if own_key is None else ready_for(known.state, own_key)
                if _matches(state, call):
                    return state
                state = await fold_tail(client, turn_id, run_id, own_key, known.answered)
                if _matches(state, call):
                    return state
        for _ in range(2):
            state = await fold_all(client, turn_id, run_id, own_key)
            if _matches(state, call):
                return state
        raise errors.TranscriptMismatchError(
            f"the turn's transcript has the digest {call.digest}, its history gives"
            f" {state.transcript.length} messages with"
            f" {state.transcript.digest[: len(call.digest)]}; nothing was sent"
        )

    async def read(self, client: Client, info: activity.Info) -> TurnState:
        """Return the state of the activity's turn, up to that activity."""
        assert info.workflow_id
        assert info.workflow_run_id
        state = await fold_all(
            client, info.workflow_id, info.workflow_run_id, parse_key(info.activity_id)
        )
        return await self._whole(client, info, state)


def _matches(state: TurnState, call: ModelCall) -> bool:
    return state.agent is not None and state.transcript.digest.startswith(call.digest)


def _waits_for(state: TurnState, key: ToolKey, call_id: str) -> bool:
    return steps.is_open(state, key) and state.open_step.at(key.call).call.id == call_id
