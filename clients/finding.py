"""Find what a namespace has: handles by their ids, and lists."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import JsonValue
from temporalio.client import Client

from perdure import errors, validation
from perdure.agents.agent import Agent
from perdure.clients.auditing.entries import AuditEntry
from perdure.clients.auditing.filters import AuditFilter
from perdure.clients.auditing.reading import Auditor
from perdure.clients.batches import listing as batch_listing
from perdure.clients.batches.handle import Batch
from perdure.clients.batches.listing import BatchEntry
from perdure.clients.erasing.erasure import GRACE, erase
from perdure.clients.erasing.receipts import ErasureReceipt
from perdure.clients.logins import LoginLink, Logins, answer
from perdure.clients.reading.feed import Feeds
from perdure.clients.reading.lists import Listing
from perdure.clients.schedules.definition import MOMENT
from perdure.clients.schedules.handle import Schedule
from perdure.clients.schedules.starting import Schedules
from perdure.clients.schedules.status import ScheduleEntry
from perdure.clients.sessions import listing as session_listing
from perdure.clients.sessions.listing import SessionEntry
from perdure.clients.turns import by_version, decisions, finishing, listing, waiting
from perdure.clients.turns.by_version import VersionSummary
from perdure.clients.turns.decisions import DecidedCall
from perdure.clients.turns.entries import TurnEntry
from perdure.clients.turns.filters import Filter, member, turn_state
from perdure.clients.turns.forks import Forks
from perdure.clients.turns.handle import Turn
from perdure.temporal import access
from perdure.temporal.encryption import data_subjects
from perdure.temporal.encryption.rewrapping import RewrapReceipt, rewrap
from perdure.temporal.names import SESSION
from perdure.temporal.search_marks import Marks
from perdure.text import word
from perdure.values.approvals import PendingApproval
from perdure.values.reports import AgentReport, Outcome
from perdure.values.states import State
from perdure.values.turn_options import Subject, Version

logger = logging.getLogger("perdure")
_AgentFilter = Annotated[
    Agent[Any] | str,
    validation.Must(
        "a string that UTF-8 can hold",
        lambda value: isinstance(value, Agent) or validation.accepts(validation.Unicode, value),
    ),
]


class Finder:
    """The half of `AgentClient` that finds what exists, and starts nothing."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue
        self._marks = Marks(client)
        self._feeds = Feeds(client)
        self._forks = Forks(client, self._marks, lambda started: self._turn(*started))
        self._schedules = Schedules(client, task_queue, self._marks)
        self._logins = Logins(client)

    def turn(self, id: str) -> Turn[Any]:
        """Return the handle of a turn that was started here or elsewhere. Asks no server.

        If the id was used more than once, it is the latest turn when the handle first asks about
        it. Use `Turn.typed` to set the type of its output.

        Raises:
            InvalidRequestError: The id is not valid.
        """
        return self._turn(access.TURN.known_id(id))

    @validation.arguments("the result of the call")
    async def finish_call(
        self,
        token: validation.Text,
        result: JsonValue = None,
        *,
        is_error: validation.Flag = False,
        by: validation.By | None = None,
    ) -> str:
        """Send the result of a call of a tool with `later=True`, which waits for it.

        The same result by the same token takes effect once, so a request that was interrupted can
        be repeated while the turn runs. Needs a worker that runs the turn.

        Args:
            token: `ctx.call_token`, as the tool got it.
            result: What the model reads: a text, or another JSON value, which it reads as JSON. At
                most 64 KiB.
            is_error: Whether the job failed, and the result says why.
            by: The person or program that sends it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked.

        Returns:
            The id of the turn.

        Raises:
            CallFinishedError: The call has another result already, or is not waited for any more.
            TurnOverError: The turn is over or about to end.
            TooLargeError: The result is too large.
            InvalidRequestError: It is not the token of an open call, or another value is not valid.
            ServerUnreachableError: No worker accepted it within 30 s; one may still do so later.
            TurnNotFoundError: Temporal does not have the turn.
        """
        return await finishing.finish(self._client, token, result, is_error=is_error, by=by)

    @validation.arguments("the list")
    def turns(
        self,
        agent: _AgentFilter | None = None,
        *,
        outcome: Outcome | str | None = None,
        state: State | str | None = None,
        labels: validation.FilterTexts | None = None,
        parent: validation.Unicode | None = None,
        task_queue: validation.Unicode | None = None,
        schedule: validation.Unicode | None = None,
        id_prefix: validation.Unicode | None = None,
        version: Version | None = None,
        subject: Subject | None = None,
        limit: validation.Count | None = None,
    ) -> Listing[TurnEntry]:
        """List the turns of the namespace, of all task queues.

        Turns that are not over come first, then ended turns, the last ended first. They are
        iterated, or read by `page`. Temporal's list may lag a second behind.

        Args:
            agent: Only turns of this agent.
            outcome: Only turns with this outcome.
            state: Only turns that are `running`, `waiting`, `paused` or `ended`.
            labels: Only turns with all of these labels.
            parent: Only turns to which the turn of this id delegated, or of the batch of this id.
            task_queue: Only turns that were started on this task queue.
            schedule: Only turns that the schedule of this id started.
            id_prefix: Only turns whose id begins with this, delegates included.
            version: Only turns that were started with this version of their agent.
            subject: Only turns of this data subject, also after it was erased.
            limit: The largest number of turns; without it, all of them, read page by page.

        Raises:
            ConfigurationError: A filter needs search attributes that the namespace lacks;
                `perdure setup` registers them.
            InvalidRequestError: There is no such outcome or state, the limit is below 1, or another
                value is not valid.
            ServerUnreachableError: Temporal does not answer.
        """
        name = agent.name if isinstance(agent, Agent) else agent
        filters = Filter(
            agent=name,
            outcome=member(Outcome, outcome),
            state=turn_state(state),
            labels=dict(labels or {}),
            parent=parent,
            task_queue=task_queue,
            schedule=schedule,
            id_prefix=id_prefix,
            version=version,
            subject=subject,
        )
        return listing.turns(self._client, self._marks.index, filters, limit)

    @validation.arguments("the versions")
    async def versions(
        self,
        agent: _AgentFilter,
        *,
        id_prefix: validation.Unicode | None = None,
        last: validation.Count = 1_000,
    ) -> tuple[VersionSummary, ...]:
        """Return what has become of the turns of an agent, for each of its versions, by name.

        The turns that are not over and those that ended last are read from Temporal's list, which
        may lag a second behind. Delegates count as well.

        Args:
            agent: The name of the agent, or the agent itself.
            id_prefix: Only turns whose id begins with this.
            last: The largest number of turns to read.

        Raises:
            PerdureError: As `turns` does.
        """
        return await by_version.summaries(self.turns(agent, id_prefix=id_prefix, limit=last))

    def batch(self, id: str) -> Batch[Any]:
        """Return the handle of a batch that was started here or elsewhere. Asks no server.

        Use `Batch.typed` to set the type of its answers.

        Raises:
            InvalidRequestError: The id is not valid.
        """
        return self._batch(access.BATCH.known_id(id), None)

    @validation.arguments("the list")
    def batches(
        self,
        agent: _AgentFilter | None = None,
        *,
        id_prefix: validation.Unicode | None = None,
        limit: validation.Count | None = None,
    ) -> Listing[BatchEntry]:
        """List the batches of the namespace, those that are not over first, then the last ended.

        They are iterated, or read by `page`. Temporal's list may lag a second behind.

        Args:
            agent: Only batches of this agent.
            id_prefix: Only batches whose id begins with this.
            limit: The largest number of batches; without it, all of them, read page by page.

        Raises:
            InvalidRequestError: A value is not valid.
            ServerUnreachableError: Temporal does not answer.
        """
        name = agent.name if isinstance(agent, Agent) else agent
        return batch_listing.batches(self._client, self._marks.index, name, id_prefix, limit)

    def schedule(self, id: str) -> Schedule:
        """Return the handle of a schedule that was created here or elsewhere. Asks no server.

        Raises:
            InvalidRequestError: The id is not valid.
        """
        return Schedule(self._client, self._marks, access.SCHEDULE.known_id(id))

    @validation.arguments("the list")
    def schedules(
        self, *, id_prefix: validation.Unicode | None = None, limit: validation.Count | None = None
    ) -> Listing[ScheduleEntry]:
        """List the schedules of the namespace that start turns, of all task queues.

        They are iterated, or read by `page`. Temporal's list may lag a second behind.

        Args:
            id_prefix: Only schedules whose id begins with this.
            limit: The largest number of schedules; without it, all of them, read page by page.

        Raises:
            InvalidRequestError: A value is not valid.
            ServerUnreachableError: Temporal does not answer.
        """
        return self._schedules.list(id_prefix or "", limit)

    def schedule_ids(self, id_prefix: str = "") -> Listing[str]:
        """List the ids of the schedules that start turns. It asks less of the server than a list.

        Raises:
            ServerUnreachableError: Temporal does not answer.
        """
        return self._schedules.ids(id_prefix)

    @validation.arguments("the list")
    def sessions(
        self,
        agent: _AgentFilter | None = None,
        *,
        labels: validation.FilterTexts | None = None,
        id_prefix: validation.Unicode | None = None,
        subject: Subject | None = None,
        limit: validation.Count | None = None,
    ) -> Listing[SessionEntry]:
        """List the sessions of the namespace, open sessions first, then the last ended first.

        They are iterated, or read by `page`. Temporal's list may lag a second behind.

        Args:
            agent: Only sessions that were begun with this agent.
            labels: Only sessions with all of these labels.
            id_prefix: Only sessions whose id begins with this.
            subject: Only sessions of this data subject, also after it was erased.
            limit: The largest number of sessions; without it, all of them, read page by page.

        Raises:
            ConfigurationError: A filter needs search attributes that the namespace lacks;
                `perdure setup` registers them.
            InvalidRequestError: A value is not valid.
            ServerUnreachableError: Temporal does not answer.
        """
        name = agent.name if isinstance(agent, Agent) else agent
        filters = Filter(
            agent=name,
            labels=dict(labels or {}),
            id_prefix=id_prefix,
            subject=subject,
            workflows=(SESSION,),
        )
        return session_listing.sessions(self._client, self._marks.index, filters, limit)

    @validation.arguments("the erasure")
    async def erase(
        self,
        subject: Subject,
        *,
        by: validation.By | None = None,
        grace: validation.Time = GRACE,
    ) -> ErasureReceipt:
        """Destroy the key of a data subject, after ending what is open of it.

        Schedules are deleted; turns, sessions and batches are cancelled, and terminated if they
        have not ended after `grace`. Nobody can read any of it afterwards, also not in a backup of
        Temporal. An erasure that was interrupted is completed by another one.

        Args:
            subject: The data subject.
            by: The person or program that erases it: one line, at most 200 characters. It is in the
                receipt and in an audit.
            grace: How long what is open may take to end.

        Returns:
            What was done at each place, and what retention will do.

        Raises:
            InvalidRequestError: The store of keys has never had a key of the subject, or a value is
                not valid.
            ConfigurationError: The client has no store of keys.
            KeyStoreError: The store of keys does not answer.
            ServerUnreachableError: Temporal does not answer, or does not end what is open; the key
                is kept.
        """
        return await erase(self._client, self._task_queue, subject, by, grace)

    async def rewrap_keys(self) -> RewrapReceipt:
        """Wrap the keys of all data subjects with the first key of `PERDURE_ENCRYPTION_KEYS`.

        The keys stay the same, so nothing that runs is disturbed, and an erased key stays erased.
        It may be repeated.

        Returns:
            How many were wrapped, and which cannot be.

        Raises:
            ConfigurationError: The client has no store of keys, or the store cannot list them.
            KeyStoreError: The store does not answer.
        """
        return await rewrap(data_subjects.keys_of(self._client))

    async def login_link(self, turn_id: str, call_id: str) -> LoginLink:
        """Return the login at an MCP server that a call of a turn waits for.

        Raises:
            InvalidRequestError: The call waits for no login.
            PerdureError: As `Turn.pending_approvals` does.
        """
        return await self._logins.link(self.turn(turn_id), call_id)

    async def begin_login(self, link: LoginLink, redirect_uri: str) -> str:
        """Return the address of the authorization server to which a person is sent to log in.

        The person comes back to `redirect_uri`, with the query that `complete_login` takes. Give
        the address to nobody but the data subject: who logs in there gives the agent access.

        Raises:
            LoginError: The server, or its authorization server, cannot be used.
            PerdureError: As `login_link`.
        """
        return await self._logins.begin(self.turn(link.turn_id), link, redirect_uri)

    async def complete_login(
        self, query: Mapping[str, str], *, by: validation.By | None = None
    ) -> LoginLink:
        """Keep the tokens of a person who has logged in, and let the turns go on.

        The calls of this turn that wait for the login are answered, and those of the other turns of
        the data subject.

        Args:
            query: The query of the request to the `redirect_uri`.
            by: Who has logged in, as for an answer; without it, the data subject.

        Raises:
            InvalidRequestError: The login was not begun by a process with these keys, or too long
                ago.
            LoginError: The person has declined, or the authorization server refuses the login.
            ErasedError: The subject is being erased.
            KeyStoreError: The store of the keys does not answer.
        """
        link = await self._logins.complete(query)
        turns = {link.turn_id: self.turn(link.turn_id)}
        # lists by subject may need search attributes that this namespace, or this process, lacks
        with contextlib.suppress(errors.ConfigurationError, errors.InvalidRequestError):
            async for entry in self.turns(state=State.WAITING, subject=link.subject):
                turns.setdefault(entry.id, self.turn(entry.id))
        await answer(turns.values(), link, by or link.subject)
        return link

    async def pending_approvals(
        self,
        agent: Agent[Any] | str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        task_queue: str | None = None,
        id_prefix: str | None = None,
    ) -> AsyncIterator[tuple[TurnEntry, PendingApproval]]:
        """Return every call that waits for a person or for a job, with its turn.

        A call of the kind `elsewhere` waits for the result of a job; nobody decides about it.
        A turn that this process cannot decode is left out, with a warning in the log `perdure`.
        `turns(state="waiting")` includes it, with its `error`.

        Args:
            agent: Only of this agent's turns.
            labels: Only of turns with all of these labels.
            task_queue: Only of turns of this task queue.
            id_prefix: Only of turns whose id begins with this.

        Raises:
            PerdureError: As `turns` does.
        """
        entries = self.turns(
            agent, state=State.WAITING, labels=labels, task_queue=task_queue, id_prefix=id_prefix
        )
        async for entry, approval_or_error in waiting.of_all(self._client, entries):
            if isinstance(approval_or_error, PendingApproval):
                yield entry, approval_or_error
            else:
                logger.warning(
                    "the calls of %s that wait are left out: %s",
                    word(entry.id),
                    approval_or_error.message,
                )

    async def decisions(
        self,
        agent: Agent[Any] | str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        task_queue: str | None = None,
        id_prefix: str | None = None,
    ) -> tuple[DecidedCall, ...]:
        """Return what people have decided lately about calls, and who, the last first.

        The histories of the first 50 turns of `turns` are read: of those that are not over, and of
        the last that ended. Decisions of earlier runs of a long turn are not among them.

        Args:
            agent: Only of this agent's turns.
            labels: Only of turns with all of these labels.
            task_queue: Only of turns of this task queue.
            id_prefix: Only of turns whose id begins with this.

        Raises:
            PerdureError: As `turns` does.
        """
        entries = self.turns(agent, labels=labels, task_queue=task_queue, id_prefix=id_prefix)
        return tuple(await decisions.of_all(self._client, entries))

    @validation.arguments("the audit")
    def audit(
        self,
        since: MOMENT,
        *,
        until: MOMENT | None = None,
        subject: validation.Unicode | None = None,
        id_prefix: validation.Unicode | None = None,
    ) -> AsyncGenerator[AuditEntry, None]:
        """Return what people and programs have done, in the order of its times.

        The histories of all runs that are not over, or have ended since, are read before the first
        entry comes. An entry that cannot be decoded says so in its `problem`. Temporal's list may
        lag a second behind.

        Args:
            since: The earliest time, with a time zone.
            until: The time before which it was done; without it, all since then.
            subject: Only what was done to turns, sessions and schedules of this data subject.
            id_prefix: Only what was done to ids that begin with this.

        Raises:
            ConfigurationError: The filter needs search attributes that the namespace lacks.
            InvalidRequestError: A value is not valid.
            ServerUnreachableError: Temporal does not answer.
        """
        filters = AuditFilter(since=since, until=until, subject=subject, id_prefix=id_prefix)
        return Auditor(self._client, self._marks.index, self._schedules, filters).entries()

    def _batch(self, batch_id: str, output: Any) -> Batch[Any]:
        return Batch(self._client, batch_id, self._report, output)

    async def _report(self, turn_id: str) -> AgentReport[Any]:
        """Return the report of a turn with its answer as text, for the results of a batch."""
        return await self.turn(turn_id).typed(str).result()

    def _turn(self, turn_id: str, runs: Sequence[str] = ()) -> Turn[Any]:
        return Turn(self._client, self._feeds, turn_id, self._forks, runs)
