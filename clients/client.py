"""Start turns from a backend, and find them again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Unpack

from temporalio.client import Client
from temporalio.converter import DataConverter

from perdure import limits
from perdure.agents.agent import Agent
from perdure.base import R
from perdure.clients.batches.handle import Batch
from perdure.clients.batches.items import BatchOf, Tasks
from perdure.clients.batches.starting import BatchStarter
from perdure.clients.connecting import Connecting
from perdure.clients.finding import Finder
from perdure.clients.schedules.definition import OnFailure, ScheduleChanges
from perdure.clients.schedules.handle import Schedule
from perdure.clients.sessions.handle import Session, session_request
from perdure.clients.turns.emitting import EventSender
from perdure.clients.turns.handle import Turn
from perdure.clients.turns.readable import OnStep
from perdure.clients.turns.starting import IfExists, Starter, StartOptions
from perdure.temporal import access, start_request
from perdure.temporal.connect import connect
from perdure.temporal.core_exit import stop_core_at_exit
from perdure.temporal.data_converter import check
from perdure.temporal.names import GENERATE, TASK_QUEUE
from perdure.temporal.priorities import priority_of
from perdure.turn.slot import IfRunning
from perdure.values import keywords
from perdure.values.batch_items import OnError
from perdure.values.budgets import Budget
from perdure.values.model_retry import ModelRetryPolicy
from perdure.values.options import RequestOptions
from perdure.values.reports import AgentReport
from perdure.values.tasks import Task
from perdure.values.turn_options import SharedOptions, TurnOptions


class AgentClient(Finder, EventSender):
    """Starts turns and finds them. One client serves a whole process."""

    def __init__(self, client: Client, task_queue: str) -> None:
        super().__init__(client, task_queue)
        self._starter = Starter(client, task_queue, self._marks)
        self._batches = BatchStarter(client, task_queue, self._marks)

    def __repr__(self) -> str:
        return f"AgentClient(namespace={self._client.namespace!r}, task_queue={self._task_queue!r})"

    @classmethod
    def connect(
        cls,
        address: str | None = None,
        *,
        namespace: str | None = None,
        task_queue: str = TASK_QUEUE,
        data_converter: DataConverter | None = None,
    ) -> Connecting:
        """Connect to Temporal: `await` it, or enter it with `async with` to close it afterwards.

        Args:
            address: `host:port`. The default is that of Temporal's environment profiles
                (`TEMPORAL_ADDRESS`, …), or localhost.
            namespace: Temporal's namespace.
            task_queue: The task queue that the workers of the agents poll.
            data_converter: Temporal's data converter, for encryption or external storage. The
                default is the one that `PERDURE_DATA_CONVERTER` names. With a codec, the messages
                of failures are encoded too.

        Raises:
            ServerUnreachableError: No server answers at the address within 10 s.
            ConfigurationError: The data converter cannot be loaded, or cannot carry Perdure's
                payloads.
        """

        async def connected() -> AgentClient:
            client = await connect(address, namespace=namespace, converter=data_converter)
            return cls(client, task_queue)

        return Connecting(connected())

    @classmethod
    def from_temporal(cls, client: Client, *, task_queue: str = TASK_QUEUE) -> AgentClient:
        """Create a client from an existing Temporal client, with its data converter.

        Raises:
            ConfigurationError: Its data converter cannot carry Perdure's payloads.
        """
        check(client.data_converter)
        stop_core_at_exit()
        return cls(client, task_queue)

    @property
    def temporal(self) -> Client:
        """The underlying Temporal client, for features that Perdure does not offer."""
        return self._client

    @property
    def task_queue(self) -> str:
        """The task queue of the workers that run what this client starts."""
        return self._task_queue

    @keywords.shows(TurnOptions)
    async def start(
        self,
        agent: Agent[R] | str,
        task: str | Task,
        *,
        output: type[R] | None = None,
        id: str | None = None,
        live: bool = False,
        if_exists: IfExists = "attach",
        priority: int | None = None,
        fairness: str | None = None,
        weight: float | None = None,
        by: str | None = None,
        **given: Unpack[TurnOptions],
    ) -> Turn[R]:
        """Start a turn and return at once; a worker runs it.

        Args:
            agent: The name of the agent, or the agent itself; then the report's output has the
                agent's type. Only the name is sent: the worker has the code.
            task: The task. It may be empty only if there is a context.
            output: The type of the answer; it overrides the agent's. Its schema is sent to the
                worker.
            output_schema: The JSON schema of the answer; it overrides the agent's type. The
                report's output is then JSON values.
            id: The turn's id, at most 100 characters; the same id is the same turn. Without it,
                `<agent>/<12 random characters>`.
            context: Named blocks that are placed before the task.
            history: Messages of an earlier turn to continue from, such as `report.messages`.
            labels: User-defined labels, for tools (`ctx.labels`) and for filters of lists.
            budget: The limits of what the turn may spend, delegates included. Each limit overrides
                the agent's.
            max_iterations: The largest number of steps, from 1; it overrides the agent's.
            options: Temperature, output limit and the like. Each option overrides the agent's.
            model_retry: The retries while a provider is unavailable, instead of those of the agent
                or the worker. They hold for delegates and after a handoff.
            instructions: Instructions of the caller, which are placed after those of the agent, if
                it has `takes_instructions`; at most 64 KiB. Agents that the turn is handed over to
                do not get them.
            allowed_tools: The only tools that are offered; calling another one ends the turn.
                Without it, every tool is offered; with an empty list, none is.
            delay: The time after which the turn begins, or a date with its time zone. Until then it
                exists, waits and can be cancelled; its agent is looked up afterwards. The delay is
                not in the time of its budget.
            deadline: The time after which the turn ends at the latest, from its start, or a date
                with its time zone. Waits for people and the delay are in it, and it holds for
                delegates.
            on_done: An https URL that gets a signed webhook when a turn is over, however it ends,
                unless it is terminated. Its host has to be allowed by the workers.
            on_wait: An https URL that gets a signed webhook each time that the turn, or a delegate,
                waits for a person, for budget or for a provider. Its host has to be allowed, too.
            version: The version of the agent, instead of the one that the rollout of the worker
                chooses. Delegates and agents that the turn is handed over to have their own.
            subject: The person or customer whose data it is, such as `customer-4711`: one line of
                at most 128 characters. It is encrypted with a key of its own, which `erase`
                destroys, and so are delegates and forks. It needs `PERDURE_SUBJECT_KEYS`.
            client_tools: Tools that the caller runs, for an agent with `takes_tools`: a call waits
                in `Turn.client_calls` for `finish_call`. At most 128, of 64 KiB together. Delegates
                and agents that the turn is handed over to do not get them.
            shared_state: What its tools find in `ctx.shared_state`, a JSON object of at most
                16 KiB. Delegates begin without it.
            live: Whether `Turn.text` yields text while the model generates it. It has no other
                effect.
            if_exists: What to do if a turn of this id exists, running or over: `attach` to it if
                agent, task, context and history are the same; `restart` it, ending one that runs;
                or `error`. `attach` starts a new turn if the existing one failed because no worker
                knew its agent.
            priority: From 1, the first, to 5, the last; the default is 3. It orders the work of the
                turn and its delegates where work waits for workers.
            fairness: A key of at most 64 bytes, such as a tenant. Where work of one priority waits
                for workers, the keys take turns, if the server has fairness switched on.
            weight: The share of the key beside others, from 0.001 to 1000; the default is 1.
            by: The person or program that starts it, such as an e-mail address: one line, at most
                200 characters. It is recorded, not checked.

        Raises:
            TurnConflictError: A turn of this id has another agent, task, context or history.
            TurnExistsError: A turn of this id exists and `if_exists` is `error`.
            TooLargeError: The input is too large.
            InvalidRequestError: The id is empty or too long, there is no task, the deadline has
                passed or is not after the delay, or a value is not one of those named here.
            ConfigurationError: The output type cannot be enforced on a model, or a subject is named
                without a store of its keys.
            ErasedError: The subject is being erased; or it was, and must not return.
            KeyStoreError: The store of the keys of subjects does not answer.
            ServerUnreachableError: Temporal does not answer.
        """
        output_type = start_request.type_of(agent, output, given.get("output_schema"))
        request = start_request.turn_request(agent, task, output=output, live=live, **given)
        order = priority_of(priority, fairness, weight)
        started = await self._starter.start(request, id, if_exists=if_exists, priority=order, by=by)
        turn = self._turn(started.turn_id, started.runs)
        return turn if output_type is None else turn.typed(output_type)

    @keywords.shows(StartOptions)
    async def run(
        self,
        agent: Agent[R] | str,
        task: str | Task,
        *,
        output: type[R] | None = None,
        on_step: OnStep | None = None,
        **given: Unpack[StartOptions],
    ) -> AgentReport[R]:
        """Start a turn and wait for its end: `start` and `Turn.result` in one.

        Raises:
            PerdureError: As `start` and `Turn.result` do.
        """
        turn = await self.start(agent, task, output=output, **given)
        return await turn.result(on_step=on_step)

    async def generate(
        self,
        model: str,
        prompt: str | Task,
        output: type[R],
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        budget: Budget | None = None,
        options: RequestOptions | None = None,
        model_retry: ModelRetryPolicy | None = None,
    ) -> R:
        """Ask a model, and return its answer as an instance of a type.

        This starts a turn like any other, of an agent without instructions and tools.

        Args:
            model: `provider:model`, or an alias of the worker.
            prompt: The prompt.
            output: The type of the answer; `str` for text.
            id: The turn's id; the same id with the same model and prompt is asked once.
            labels: User-defined labels that `turns` can filter by.
            budget: The limits of what the turn may spend.
            options: Temperature, output limit and the like.
            model_retry: As for `start`.

        Raises:
            PerdureError: As `start` and `Turn.result` do.
        """
        request = start_request.turn_request(
            GENERATE,
            prompt,
            output=output,
            labels=labels,
            model=model,
            budget=budget,
            options=options,
            model_retry=model_retry,
        )
        started = await self._starter.start(request, id)
        turn = self._turn(started.turn_id, started.runs)
        return (await turn.typed(output).result()).output

    @keywords.shows(SharedOptions)
    def session(
        self,
        id: str,
        agent: Agent[R] | str | None = None,
        *,
        output: type[R] | None = None,
        idle: timedelta | None = None,
        live: bool = False,
        priority: int | None = None,
        fairness: str | None = None,
        **given: Unpack[SharedOptions],
    ) -> Session[R]:
        """Return a conversation with an agent, which its first message begins. Asks no server.

        Args:
            id: The session's id, at most 90 characters. Its turns are `<id>/1`, `<id>/2` and so on.
            agent: The name of the agent, or the agent itself. Without it, the session has to exist.
                The other options count for the message that begins the session. With the agent
                itself, the answers have its type.
            output: The type of the answers; it overrides the agent's. Its schema is sent with the
                message that begins the session.
            idle: The time without a turn and without a message after which the session is closed;
                None for never.
            budget: What all turns of the session may spend together, besides the budget that its
                agent has for each. It has no limit of time.
            labels: The labels of the session and of its turns.
            live: Whether `Turn.text` yields the text of its turns while it is generated.
            priority: As for `start`, for all turns of the session, or of one that is forked from
                it. It counts when a session begins.
            fairness: As `priority`.

        The options that are not described here are as for `start`, for each turn.

        Raises:
            TypeError: There is no such option.
            InvalidRequestError: The id or an option is not valid.
            ConfigurationError: The output type cannot be enforced on a model.
        """
        access.SESSION.known_id(id)
        keywords.check("a session", given, SharedOptions)
        request = None
        if agent is not None:
            access.SESSION.new_id(id)
            request = session_request(agent, output=output, idle=idle, live=live, **given)
        return Session(
            self._client,
            self._task_queue,
            self._marks,
            id,
            request,
            self.turn,
            priority_of(priority, fairness),
            output
            if agent is None
            else start_request.type_of(agent, output, given.get("output_schema")),
        )

    @keywords.shows(TurnOptions)
    async def create_schedule(
        self,
        id: str,
        agent: Agent[R] | str,
        task: str | Task = "",
        *,
        cron: str,
        timezone: str,
        session: str | None = None,
        batch: BatchOf | None = None,
        if_running: IfRunning | None = None,
        catch_up: timedelta = limits.CATCH_UP,
        on_failure: OnFailure = "go on",
        remember_last: bool = False,
        jitter: timedelta | None = None,
        starts: datetime | None = None,
        ends: datetime | None = None,
        total: Budget | None = None,
        output: type[R] | None = None,
        priority: int | None = None,
        fairness: str | None = None,
        by: str | None = None,
        **given: Unpack[TurnOptions],
    ) -> Schedule:
        """Create a schedule, which starts a turn at each time of a cron expression.

        If a schedule of this id exists with the same definition, it is returned, so that a program
        can call this whenever it starts.

        Args:
            id: The schedule's id, at most 78 characters. Its turns have the ids `<id>-<time>`, such
                as `digest-2026-11-23T06:00:00Z`, in UTC.
            agent: The name of the agent, or the agent itself. Only the name is sent.
            task: The task of each turn, which is also told the time for which it was scheduled.
                Not with a batch.
            cron: A cron expression of five fields, such as `0 7 * * 1-5`.
            timezone: The IANA name of its time zone, such as `Europe/Berlin` or `UTC`.
            session: The id of a session that gets the task as a message at each time, instead of a
                turn of its own. If there is none, the first message begins it, with the options
                that `session` has as well.
            batch: The tasks of a batch that is run at each time, instead of one turn. Each turn is
                told the time. The batch has the id that a turn would have.
            if_running: What to do at a time at which a turn is running: `skip` that time (default);
                `queue` one turn, which starts when the running one is over; `cancel` the running
                one first; or `allow` both. With a session, it is about any turn of the session:
                `skip` sends no message, with `queue` (default) the next turn reads it, and with
                `cancel` the running one is interrupted.
            catch_up: How late a turn may start whose time was missed because the server was away,
                from 10 s. Times that were missed for longer are skipped.
            on_failure: What to do after a turn that failed, or spent its budget: `go on`, or
                `pause` the schedule. With a session, also after a message that it did not accept;
                with a batch, after one that has not got all answers and was not cancelled.
            remember_last: Whether a turn gets the output of the last one that completed.
            jitter: The largest random delay of a turn.
            starts: No turn starts before this time.
            ends: No turn starts after this time.
            total: The limits of what all turns together may spend, without a time. When they are
                reached, the schedule pauses and says so.
            output: As for `start`.
            priority: As for `start`.
            fairness: As for `start`.
            context: As for `start`. The blocks `schedule` and `last_output` are Perdure's.
            budget: As for `start`: the limits of each turn. With a session, of all its turns; with
                a batch, of each batch.
            by: The person or program that creates it, as for `start`.

        The options that are not described here are as for `start`.

        Raises:
            ScheduleConflictError: A schedule of this id has another definition: `Schedule.change`
                changes it.
            SessionClosedError: The session is closed.
            TurnConflictError: The session belongs to another agent.
            TooLargeError: The input of the turns is too large.
            InvalidRequestError: The cron expression, the time zone or another value is not valid.
            ConfigurationError: The output type cannot be enforced on a model, or this machine has
                no time zone database.
            ServerUnreachableError: Temporal does not answer.
        """
        default: IfRunning = "skip" if session is None else "queue"
        definition: ScheduleChanges = {
            "agent": agent,
            "task": task,
            "cron": cron,
            "timezone": timezone,
            "session": session,
            "batch": batch,
            "if_running": default if if_running is None else if_running,
            "catch_up": catch_up,
            "on_failure": on_failure,
            "remember_last": remember_last,
            "jitter": jitter,
            "starts": starts,
            "ends": ends,
            "total": total,
            "output": output,
            "priority": priority,
            "fairness": fairness,
            **given,
        }
        return await self._schedules.create(id, definition, by=by)

    @keywords.shows(TurnOptions)
    async def start_batch(
        self,
        id: str,
        agent: Agent[R] | str,
        tasks: Tasks,
        *,
        output: type[R] | None = None,
        at_once: int = 10,
        turn_budget: Budget | None = None,
        on_error: OnError = "go on",
        priority: int | None = None,
        fairness: str | None = None,
        by: str | None = None,
        **given: Unpack[TurnOptions],
    ) -> Batch[R]:
        """Start a batch: a turn of one agent for each task, with one budget for all of them.

        All tasks are read and checked first, then stored, and then the batch starts. A call that
        was interrupted is repeated with the same arguments. A batch of this id with the same tasks
        is returned as it is, running or over.

        Args:
            id: The batch's id; the ids of its turns begin with it.
            agent: The name of the agent, or the agent itself.
            tasks: The tasks, of any number: strings, `Task`s, or mappings with `task`, and if
                needed `id` and `labels`; from an iterable, an async iterable, or the `Path` of a
                file with a line of JSON for each. Without an id, a task has its number, from 1.
            output: The type of the answers; it overrides the agent's.
            at_once: The largest number of turns that run at the same time, at most 500. A turn that
                waits for a person keeps its place.
            turn_budget: The limits of each turn. Without it, a turn may spend an equal share of
                what is left.
            on_error: What to do after a turn without an answer: `go on` with the others, or
                `stop` to start no more.
            priority: As for `start`.
            fairness: As for `start`.
            budget: The limits of what all turns together may spend. Its time is that of the whole
                batch.
            by: The person or program that starts it, as for `start`.

        The options that are not described here are as for `start`, for each turn.

        Raises:
            BatchConflictError: A batch of this id has another agent or other tasks, or the id is
                that of a turn.
            InvalidRequestError: A task is not valid, two have the same id, there is none, or an
                option is not valid. The error names the line or the number of the task; nothing was
                started.
            TooLargeError: A task is too large; nothing was started.
            ServerUnreachableError: Temporal does not answer.
        """
        await self._batches.start(
            id,
            agent,
            tasks,
            at_once=at_once,
            on_error=on_error,
            turn_budget=turn_budget,
            priority=priority,
            fairness=fairness,
            by=by,
            output=output,
            **given,
        )
        return self._batch(id, start_request.type_of(agent, output, given.get("output_schema")))
