"""The names of the turn and of Perdure's own activities.

Tools are activities under their own names, which cannot contain a dot, so the names never collide.
"""

TURN = "AgentTurn"
"""The workflow type of a turn."""

TASK_QUEUE = "perdure"
"""The default task queue of workers and clients."""

RESOLVE_AGENT = "perdure.resolve_agent"
"""`AgentCall -> AgentDefinition`: resolve the agent, once per turn."""

IS_AT_HAND = "perdure.is_at_hand"
"""The extern function that tells whether this worker has an agent at hand: `AgentCall -> bool`."""

LOCAL = "127.0.0.1:7233"
"""The address of Temporal where neither the caller nor the environment names one."""

HEARTBEAT_TIMEOUT = "perdure.heartbeat_timeout"
"""The extern function that returns the heartbeat timeout that this worker is set to."""

HAS_STORAGE = "perdure.has_storage"
"""The extern function that tells whether the client of this worker has an external storage."""

BEAT_SOON = "perdure.beat_soon"
"""The extern function that lets an activity of this process send heartbeats: `(run, activity)`."""

HAND_OVER = "perdure.hand_over"
"""The extern function that keeps what a run hands over to its next run: `(Origin, Carried)`."""

SHARE_STATE = "perdure.share_state"
"""The extern function by which a workflow leaves its state for a model call: `(run_id, state)`."""

CALL_MODEL = "perdure.call_model"
"""`ModelCall -> ModelAnswer`: send one request to a model."""

GENERATE = "perdure.generate"
"""The name of the agent behind `client.generate`, which user-defined agents cannot have.

It has no instructions and no tools, and uses the request's model.
"""

CALL_TOOL = "perdure.call_tool"
CALL_SYNC_TOOL = "perdure.call_sync_tool"
"""`ToolRun -> ToolOutput`: run a tool that was unknown when the worker started, or a local call.

An example is a tool made by a factory. Every worker has these two, and the SDK refuses to replay a
local activity of a type that the worker does not have.
"""

ADD_BUDGET = "add_budget"
"""The update that raises a turn's budget: `Budget -> Remaining`."""

RESUME = "resume"
"""The update that makes a turn retry its model now, without input or result."""

SESSION = "AgentSession"
"""The workflow type of a session."""

SCHEDULED_MESSAGE = "AgentScheduledMessage"
"""The workflow type that sends a message of a schedule to a session."""

SCHEDULED_BATCH = "AgentScheduledBatch"
"""The workflow type that stores the tasks of a schedule's batch, and goes on as that batch."""

BATCHES = ("AgentBatch", SCHEDULED_BATCH)
"""The workflow types of the runs of a batch."""

STORE_BATCH = "perdure.store_batch"
"""`StoreCall -> StoredTasks`: store the tasks of a schedule's batch in parts."""

SEND_MESSAGE = "perdure.send_message"
"""`MessageCall -> MessageDelivery`: send a message of a schedule to a session."""

SETTLE_SCHEDULE = "perdure.settle_schedule"
"""`SettleScheduleCall -> Noted`: count a turn in the budget of its schedule."""

WEBHOOK = "AgentWebhook"
"""The workflow type that delivers the webhook of a turn."""

END_OF_TURN = "perdure.end_of_turn"
"""`WebhookCall -> WebhookMessage`: wait until a turn is over, and read how it ended."""

NOTIFY = "perdure.notify"
"""`Notification -> Delivered`: send a webhook."""

SETTLEMENT = "AgentSettlement"
"""The workflow type that keeps what a person says of a call which no turn waits for."""

ERASURE = "AgentErasure"
"""The workflow type that keeps who has erased a data subject."""

PUSH = "AgentPush"
"""The workflow type that notifies a receiver about a task of A2A."""

BEGIN_PUSH = "begin_push"
"""The update that returns once a receiver is accepted: `PushCall`, without result."""

CHECK_RECEIVER = "perdure.check_receiver"
"""`PushCall -> Noted`: refuse an address that the worker does not send to."""

READ_CHANGE = "perdure.read_change"
"""`ChangeCall -> Change`: read the last change of a task."""

FOLLOW = "follow"
"""The signal that asks a turn to tell another workflow its news: `Follow`."""

TURN_NEWS = "turn_news"
"""The signal from a turn to a follower: `TurnNews`."""

MEMO_PUSH = "perdure_push"
"""The memo field with the configuration of push notifications: its id and its address."""

WEBHOOK_FAILED = "WEBHOOK_FAILED"
"""The failure type of an attempt to deliver a webhook."""

MEMO_WEBHOOK = "perdure_webhook"
"""The memo field with the state of a webhook's delivery."""

RECORD_TURN = "perdure.record_turn"
"""`RecordCall -> TurnPart`: read the messages of a session's turn that is over."""

SAY = "say"
"""The update that sends a message to a session: `Say -> Receipt`. Its id is the message's."""

UNQUEUE = "unqueue"
"""The update that takes a message out of a session's queue: `Unqueue -> Done`."""

INTERRUPT = "interrupt"
"""The update that cancels the running turn of a session: `Reason -> Done`."""

REMIND = "remind"
"""The update that has a session send a message to itself later: `Remind -> UpdateResult`.

Its id is the name of the update and the id of the reminder.
"""

FORGET_REMINDER = "forget_reminder"
"""The update that gives a reminder of a session up: `ForgetReminder -> UpdateResult`."""

MEMO_REMINDER = "perdure_reminder"
"""The memo field of a session with the id of the last reminder that was due."""

CLOSE = "close"
"""The update that closes a session: `Reason -> Left`."""

STEER = "steer"
"""The update that sends a message to the running turn: `Steer`, without result.

Its id is the id of the message. A session sends the same as a signal, with the id in it.
"""

EMIT = "emit"
"""The update that sends an event to the running turn: `Emit`, without result.

Its id is the id of the event. The workflow that keeps events by key takes the same update, and
sends an event to a turn as the signal of this name: `EmitByKey`.
"""

KEYED_EVENTS = "AgentEvents"
"""The workflow type that keeps the events of a name and a key for the turns that wait for them."""

AWAIT_EVENT = "await_event"
"""The signal that has a turn told of an event by key: `EventWaiter`."""

REGISTER_WAITER = "perdure.register_waiter"
"""`Registration -> Noted`: register a turn at the workflow that keeps the events of a key."""

MOVE_ON = "move_on"
"""The signal that has a workflow see whether another version of its workers goes on with it.

It has no input.
"""

MEMO = "perdure"
"""The memo field with the description of a turn and of its end."""

MEMO_WAIT = "perdure_waits_for"
"""The memo field with the current wait of a turn."""

DECIDE = "decide"
"""The update by which a person approves or denies a call: `Decision`, without result."""

READ_CHILD = "perdure.read_child"
"""`ChildRun -> TurnRead`: read the history of a delegate's turn without a summary."""

CHILD_NEWS = "child_news"
"""The signal from a delegate's turn to its ancestors: `ChildNews`."""

ASK_POLICY = "perdure.ask_policy"
"""`PolicyCall -> Ruling`: ask the policies about a call."""

VERIFY = "perdure.verify"
"""`ToolRun -> Verification`: find out whether a call has taken effect, which may be repeated."""

POLL_CALL = "perdure.poll_call"
"""`ToolRun -> ToolOutput`: ask for the result of a job, again and again until there is one."""

CANCEL_CALL = "perdure.cancel_call"
"""`ToolRun -> Noted`: cancel a job, which may be repeated."""

FINISH_CALL = "finish_call"
"""The update that sends the result of a call by its token: `FinishCall`, without result."""

RUN_MIDDLEWARE = "perdure.middleware"
"""`HookCall -> Noted`: run middleware of the agent before or after the turn."""

TELL_OBSERVERS = "perdure.observe"
"""`ObserverCall -> Noted`: notify the agent's observers of what they have not seen."""


CARRY = "perdure.carry"
"""`CarryCall -> CarriedPart`: carry over a part of the state of another run."""

BATCH = "AgentBatch"
"""The workflow type of a batch."""

BATCH_PART = "AgentBatchPart"
"""The workflow type of a part of a batch: some of its tasks, and the turns that do them."""

BATCH_ORDER = "batch_order"
"""The signal from a batch to one of its parts: `PartOrder`."""

BATCH_NEWS = "batch_news"
"""The signal from a part to its batch: `PartNews`."""

MEMO_BATCH = "perdure_batch"
"""The memo field with the description of a batch and of its progress: `BatchNote`."""

WORKER_SHUTDOWN = "PERDURE_WORKER_SHUTDOWN"
"""The failure type of an attempt that was lost with its worker."""


def provider_queue(task_queue: str, provider: str) -> str:
    """Return the task queue for the model calls of a provider that has one of its own."""
    return f"{task_queue}.{provider}"
