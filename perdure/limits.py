"""Default limits, all of them enforced. `docs/limits.md` is checked against this file.

Sizes are bytes of UTF-8. Temporal rejects payloads over 2 MB, so everything that becomes a payload
stays below `PAYLOAD_BYTES`.
"""

from datetime import timedelta

MAX_ITERATIONS = 10
OUTPUT_TOKENS = 8_192
"""The output limit of a call with a budget of money or tokens, if the options set none."""
LEAST_OUTPUT_TOKENS = 16
"""A call is not made if less output than this is left."""
LAST_OUTPUT_TOKENS = 1_024
"""Reserved for the final answer of an agent that finishes when its budget is spent."""
LAST_CALL = timedelta(seconds=30)
"""Reserved for that answer in a time budget, but not more than a tenth of it."""
APPROVAL_EXPIRY = timedelta(hours=24)
"""An approval is denied if it is not given in this time."""
QUESTION_CHARACTERS = 4_000
"""The length of a question to a person, ..."""
QUESTION_OPTIONS = 20
"""... the number of answers that it offers, ..."""
OPTION_CHARACTERS = 200
"""... the length of each, ..."""
FORM_BYTES = 8 * 1024
"""... the size of the JSON schema of a form, ..."""
FORM_DEPTH = 5
"""... and its depth."""
ANSWER_BYTES = 16 * 1024
"""The size of the answer of a person, as JSON."""
OUTPUT_REASKS = 2
"""How many times in a row a model is asked again because of an invalid answer."""
SAME_CALLS = 3
"""A loop is this number of consecutive steps with equal calls and results, or only failures."""

CALLS = 64
"""The number of tool calls in one answer of a model."""

DEPTH = 3
"""The depth of a tree of agents, not counting its root."""
CHILDREN = 20
"""The number of delegate turns that a turn may start."""
CHILDREN_AT_ONCE = 5
"""The number of delegate turns that one call may start."""
DESCENDANTS = 100
"""The number of delegate turns in a tree of agents, not counting its root."""

HANDOFFS = 5
"""The number of times that a turn may be handed over."""

ACTIVITIES_AT_ONCE = 100
"""The number of concurrent activities of a worker, not counting model calls."""
MODEL_CALLS_AT_ONCE = 500
"""The number of concurrent model calls of a worker."""

MODEL_CALL = timedelta(minutes=5)
TOOL_CALL = timedelta(seconds=60)
LOCAL_LOOKUP = timedelta(seconds=2)
"""The time limit of resolving an agent within a workflow task. An activity does it after that."""
LOCAL_CALLS = timedelta(seconds=1)
"""The time limit of the local tool calls in one workflow task; after it, they are activities."""
LOCAL_CALLS_COUNT = 16
"""The number of local tool calls in one workflow task, whose results go to the server together."""
HEARTBEAT_INTERVAL = timedelta(minutes=10)
"""The longest interval between heartbeats that a worker may be set to."""
USER_CODE = timedelta(seconds=45)
"""The time limit of a policy, a check or the observers of a turn, for each call."""
MCP_START = timedelta(seconds=20)
"""The time limit of an MCP server to start, and to list its tools."""
MCP_LONGEST_START = timedelta(seconds=45)
"""The maximum of `start_timeout`: less than the time limit of resolving an agent."""
MCP_CONNECTIONS_OF_PEOPLE = 200
"""The number of a process's open connections to MCP servers that have the login of a person."""
RETRY_AFTER = timedelta(minutes=5)
"""The longest pause that a provider may request, unless a `ModelRetryPolicy` says otherwise.

It applies to a worker's memory of other turns, and to turns of earlier releases.
"""
LIMIT_ATTEMPTS = 100
"""The failed attempts at one model call after which a provider's limit is not waited for."""
OUTAGE = timedelta(minutes=30)
"""How long a turn without a time budget retries an unavailable provider."""

TASK_BYTES = 1024 * 1024
MEDIA_BYTES = 20 * 1024 * 1024
"""The size of a task's images and files, in base64; also of those in one tool result, and in all
tool results of one request.

More than `PAYLOAD_BYTES` of them require external storage in Temporal's client.
"""
LABELS_BYTES = 4 * 1024
INSTRUCTIONS_BYTES = 64 * 1024
CLIENT_TOOLS = 128
"""The tools of the client of a turn, ..."""
CLIENT_TOOLS_BYTES = 64 * 1024
"""... and their size as JSON."""
SHARED_STATE_BYTES = 16 * 1024
"""The size of the shared state of a turn, as JSON, ..."""
SHARED_STATE_DEPTH = 32
"""... and the levels of its objects and lists."""
DECISIONS_TURNS = 50
"""The turns whose histories are read for a list of decisions."""
FILTER_LABELS = 50
"""The most labels that a list is filtered by; each makes the query of Temporal's list longer."""
HEARTBEAT_BYTES = 4 * 1024
LIVE_TEXT_BYTES = 16 * 1024
"""The end of a streamed answer that heartbeats carry; most answers fit entirely."""
TOOL_RESULT_BYTES = 64 * 1024
RESULT_MEDIA_BYTES = 1_300_000
"""The size of the images and files of one tool result, in base64, in a worker without external
storage.

It is less if calls that run together would fill the history; with external storage it is
`MEDIA_BYTES`.
"""
SUMMARY_BYTES = 64 * 1024
CALL_BYTES = 4 * 1024
"""What a tool call adds to history besides its arguments, labels and result."""
MEMO_BYTES = 2 * 1024
ERROR_TEXT_BYTES = 4 * 1024
PROVIDER_BODY_BYTES = 20 * 1000 * 1000
"""The size of a reply after decompression; for a stream, of all events together."""
REPLY_VALUES = 2_000_000
"""JSON values of a reply, counted by its commas and brackets, including those in strings."""
STREAM_LINE_BYTES = 5 * 1000 * 1000
TRANSCRIPT_BYTES = 100_000_000
"""The size of a transcript above which tools of the turn return only text.

Only an external storage holds that much; the workflow and each model call hold it in memory.
"""
TRANSCRIPT_CACHE_BYTES = 256 * 1024 * 1024

LONGEST_WAIT = timedelta(days=1)
"""The longest wait of a call of `perdure.toolboxes.waiting()`."""
LONGEST_JOB = timedelta(days=1)
"""The time after which a call of a tool with `later=True` is given up."""
POLL = timedelta(seconds=30)
"""The pause between two polls of such a call."""
SHORTEST_POLL = timedelta(milliseconds=500)
"""The shortest pause between two polls of a task for which an MCP server may ask, ..."""
LONGEST_POLL = timedelta(minutes=5)
"""... and the longest."""
CANCEL_JOB = timedelta(seconds=20)
"""How long `cancel=` of a tool is tried again while it fails."""
POLL_MARGIN = timedelta(seconds=5)
"""Between the time limit of a poll or a cancel, and that of its activity."""
HANDLE_BYTES = 4 * 1024
"""The size of the handle of a job."""
SERVER_QUESTIONS = 20
"""The number of questions that an MCP server may ask people at once during a call, ..."""
SERVER_QUESTIONS_BYTES = 32 * 1024
"""... and their size, with what the server wants back with the answers."""
KEPT_EVENTS = 100
"""The number of events that a turn keeps until a call waits for them, ..."""
KEPT_EVENTS_BYTES = 256 * 1024
"""... and the size of their bodies together, as JSON."""
EVENT_BYTES = 48 * 1024
"""The size of the body of one event, which is the result of a call."""
EVENT_KEY_CHARACTERS = 200
"""The length of the key of an event, with the tenant."""
LAST_EVENTS = 100
"""The number of names and keys of which a turn knows the last event that its calls have got."""
EVENT_KEPT = timedelta(hours=1)
"""How long an event by key is kept for turns that begin to wait for it."""
EVENT_WAITERS = 2_000
"""The number of turns that may wait for one name and key at the same time, ..."""
EVENT_WAITERS_BYTES = 256 * 1024
"""... and the size of their ids together."""
REGISTRATION = timedelta(seconds=5)
"""The time limit of an attempt to register a turn for an event by key."""
EVENT_IDS = 500
"""The number of events of a name and a key whose repetition is recognized."""
EVENT_SENDERS = 100
"""The number of events of a name and a key that a process sends at the same time."""

REMINDERS = 10
"""The number of reminders of a session that are not due yet."""
REMINDER_BYTES = 4 * 1024
"""The size of the text of a reminder."""

UNREAD_MESSAGES = 20
"""The number of messages to a running turn that its model has not read yet, ..."""
UNREAD_BYTES = 256 * 1024
"""... and the size of their text together."""
KNOWN_MESSAGES = 100
"""The number of messages that a turn knows by their ids, so that they are read once."""
UNREAD_MEDIA_BYTES = 1_000_000
"""The size of unread messages with images or files together, as JSON, in a worker without external
storage; with it, `MEDIA_BYTES`. They are the input of one turn, which history holds.
"""
SESSION_BYTES = 800_000
"""The messages of a session that a new turn begins with; the oldest turns are left out."""
SESSION_TURNS = 50
"""The number of turns of a session whose ends it keeps."""
SESSION_RUN_TURNS = 200
"""A session goes on in a new run of its workflow after this number of turns, when none runs, ..."""
SESSION_RUN_EVENTS = 4_000
"""... or after this number of events."""
SESSION_RECEIPTS = 500
"""The number of messages whose repetition a later run of a session recognizes."""
SESSION_ID_CHARACTERS = 90
"""The length of the id of a session; its turns are `<id>/<number>`."""
MESSAGE_ID_CHARACTERS = 100
"""The length of the id of a message to a turn."""

SCHEMA_VALUES = 10_000
"""JSON values of a schema, about 2,500 fields.

It applies to the schema of an answer, as given and as sent, and to those of MCP tools.
"""
SCHEMA_DEPTH = 64
"""The depth of a schema."""
CHECK_STEPS = 1_000_000
"""The work of checking an answer against a caller's schema.

It takes some seconds; a megabyte of ordinary JSON needs less.
"""

PAYLOAD_BYTES = 1_500_000
"""The size of one value in history: less than the server's 2 MB, with room for the envelope."""

STORED_BYTES = 25_000_000
"""The size of a turn's input, or of a tool result with images or files, if the client has external
storage, which then holds it.
"""

HISTORY_BYTES = 45_000_000
HISTORY_EVENTS = 48_000
"""The server terminates a workflow at 50 MB or 51,200 events, without running its code.

A turn ends with an error before that.
"""
COMMANDS_BYTES = 3_000_000
"""The input of calls that start together: the server rejects messages of 4 MB."""
SERVER_BYTES = 50_000_000
"""Where the server terminates a turn. Sizes are not measured while parallel calls run, so their
possible results are counted in advance."""
TASK_TIMEOUT = timedelta(seconds=20)
"""The time limit of one workflow task of a turn.

A worker that takes over a turn replays its history in one.
"""
EVENTS_PER_TASK_SECOND = 330
"""A turn with more events per second of that timeout ends typed. At the 1,000 events a second that
were measured, a replay then takes a third of the workflow task."""

RUN_EVENTS = 6_000
"""A turn goes on in a new run of its workflow after this number of events, ..."""
RUN_SHARE = 0.9
"""... or this share of the events that its workflow task timeout allows, if that is less, ..."""
RUN_BYTES = 8_000_000
"""... or after its history has grown by this, ..."""
RUN_UPDATES = 1_500
"""... or after this number of updates: the server allows 2,000 in a run."""
PART_BYTES = 1_000_000
"""The size of one part of a state that is carried over to another run."""
CARRY_CALL = timedelta(minutes=2)
"""The time limit of carrying over one part, which reads the whole history of the other run."""
UPDATE_IDS = 1_000
"""The number of ids of updates that a turn takes along, so that none takes effect twice."""

BATCH_AT_ONCE = 500
"""The number of turns of a batch that may run at the same time."""
BATCH_LINE_BYTES = 10_000_000
"""The size of one line of a file of tasks."""
BATCH_PARTS = 100_000
"""The most parts of a round of a batch: some ten million tasks."""
BATCH_PART_ITEMS = 100
"""A batch is stored in parts of at most this number of tasks, ..."""
BATCH_PART_BYTES = 250_000
"""... and of this size, except for one larger task. A worker may hold waiting parts in memory."""
BATCH_UPLOAD = timedelta(hours=24)
"""A part whose batch was not started in this time ends."""
BATCH_CHECK = timedelta(minutes=10)
"""A batch asks a part of which it has heard nothing for this time."""
BATCH_NEWS = timedelta(seconds=5)
"""How often a part reports to its batch what only its status needs."""
BATCH_EVENTS = 1_000
"""A batch goes on in a new run of its workflow after this number of events."""
BATCH_ROUNDS = 20
"""The number of times that a batch may be run, the first one included."""

CODEC_BODY_BYTES = 16 * 1024 * 1024
"""The largest body of a request to `perdure codec`: the web UI sends the payloads of a page."""
HTTP_CONNECTIONS = 4_000
"""The number of connections of a process of `perdure serve`. Beyond it, the one that has waited
longest without a request is closed, or else a new one is refused."""
HTTP_HEAD = timedelta(seconds=10)
"""The time in which a connection must send the head of a request."""
HTTP_PATH_CHARACTERS = 4_096
"""The length of the path of a request, decoded."""
HTTP_BODY_BYTES = 4 * 1024 * 1024
"""The size of the body of an HTTP request, ..."""
HTTP_BODY_VALUES = 20_000
"""... the number of JSON values in it, ..."""
HTTP_BATCH_VALUES = 200_000
"""... or in the body that starts a batch, ..."""
HTTP_MEMBERS = 1_000
"""... the number of members of one object in it, ..."""
HTTP_BODIES_BYTES = 64 * 1024 * 1024
"""... the size of all bodies that a process reads at the same time, ..."""
HTTP_BODY = timedelta(seconds=10)
"""... and the time in which it must arrive."""
HTTP_REQUEST = timedelta(minutes=2)
"""The time limit of an HTTP request that is not a stream."""
HTTP_WAIT = timedelta(seconds=60)
"""The longest wait of a long poll."""
HTTP_STREAM = timedelta(hours=1)
"""A stream of events ends after this time, and the client resumes it."""
HTTP_PING = timedelta(seconds=15)
"""The time between two comments in a stream, which keep it open."""
HTTP_SEND = timedelta(seconds=30)
"""A stream, or a connection with an answer, is closed if its client reads nothing for this time."""
HTTP_RETRY = timedelta(seconds=2)
"""The pause after which a client may try again, or resume a stream."""
HTTP_MODEL_RETRY = timedelta(seconds=1)
"""The shortest first pause of the retries of a model that a caller over HTTP chooses."""
HTTP_STREAMS = 500
"""The number of streams and long polls that one process keeps open. Each may need a long poll of
the Temporal server, which allows 1,200 for a namespace, those of the workers included."""
HTTP_STREAMS_OF_CALLER = 100
"""The number of them that one caller may have."""
TENANT_TURNS = 10_000
"""The number of open turns of one tenant of a gateway, unless its tokens say another one."""
TENANT_SESSIONS = 10_000
"""The same of sessions that are not closed."""
TENANT_BATCHES = 100
"""The same of batches that are not over."""
TENANT_TASKS = 50_000
"""The same of tasks in one batch."""
TENANT_SCHEDULES = 1_000
"""The same of schedules."""
HTTP_LIST = 200
"""The number of entries in one list."""
HTTP_SCHEDULES = timedelta(seconds=5)
"""How long a process keeps the list of the schedules of a namespace that has more than 100."""
HOOK_NAME_CHARACTERS = 24
"""The length of the name of a hook, which the ids of its turns have."""
HOOK_SECRETS = 5
"""The number of secrets of a hook."""
HOOK_FIELDS = 20
"""The number of fields in a template of a hook, ..."""
HOOK_FIELD_BYTES = 16 * 1024
"""... and the size of the text in the place of each; a longer one is clipped."""
HOOK_REPLAY = timedelta(minutes=5)
"""How long ago a delivery to a hook may have been signed, unless the hook says otherwise, ..."""
HOOK_LONGEST_REPLAY = timedelta(hours=1)
"""... and the longest time that it may say."""
HOOK_BODIES_BYTES = 16 * 1024 * 1024
"""The size of all bodies that a process reads for one hook at the same time."""
HOOK_STARTS = 20
"""The number of deliveries of one hook that a process starts at the same time, ..."""
HOOK_WAITING = 200
"""... and of those that are started or wait for it."""
HOOK_ANSWER = timedelta(seconds=8)
"""The time in which a delivery is started, or else refused; senders wait 10 seconds or more."""
MCP_POLL = timedelta(seconds=2)
"""The pause between two looks at a task that clients of MCP are asked for, and between those at a
task of a server that asks for none or does not answer."""
A2A_IDLE = timedelta(days=30)
"""A context of A2A is closed after this time without a message and without a running task."""
A2A_CANCEL = timedelta(seconds=10)
"""How long a request of A2A to cancel a task waits for its end."""
A2A_PUSH_CHARACTERS = 500
"""The length of the id and of the token of a configuration of push notifications."""
A2A_PUSHES = 10
"""The number of configurations of push notifications for one task."""
FOLLOWERS = 50
"""The number of workflows that one turn tells its news."""
A2A_PUSH_LIFE = timedelta(days=90)
"""Push notifications about a task end after this time, also if it is not over."""
A2A_PUSH_LOOK = timedelta(hours=1)
"""How often a task is looked at that sends no news, because it was terminated, ..."""
A2A_PUSH_RETRY = timedelta(seconds=30)
"""... and one that has not begun, after shorter pauses at first."""
TOKEN_CHARACTERS = 32
"""The fewest characters of a token of a gateway, be it of a file or of the environment."""
HTTP_RATED = 10_000
"""The number of callers and addresses whose requests a process counts for a rate."""
HTTP_FAILURES = 20
"""The number of requests of one address with a token that is not valid that a process refuses at
once and then in each second, where an identity provider or a rate is set; further ones are told to
wait."""
HTTP_SESSION = timedelta(hours=8)
"""How long a person who has logged in on the page stays logged in, ..."""
HTTP_LOGIN = timedelta(minutes=10)
"""... and the time for a login."""
LOGIN_LINK = timedelta(hours=1)
"""How long a link is good by which a data subject logs in at an MCP server."""
COOKIE_KEY_CHARACTERS = 32
"""The fewest characters of `PERDURE_COOKIE_KEY`."""
OIDC_TOKEN_CHARACTERS = 16_384
"""The length of a token of an identity provider."""
OIDC_LEEWAY = timedelta(seconds=30)
"""How far the clocks of an identity provider and of a gateway may differ."""
OIDC_CALL = timedelta(seconds=5)
"""The time limit of a request to an identity provider."""
OIDC_DOCUMENT_BYTES = 256 * 1024
"""The size of what an identity provider answers, except its keys, ..."""
OIDC_KEYS_BYTES = 1024 * 1024
"""... the size of those, ..."""
OIDC_KEYS = 200
"""... and their number."""
OIDC_FRESH = timedelta(minutes=5)
"""The keys of an identity provider are read again after this time, ..."""
OIDC_KEPT = timedelta(hours=24)
"""... and those that there are go on for this time if they cannot be."""
OIDC_LOOKS = 3
"""How often a process reads the keys again at once because a token names an unknown one, ..."""
OIDC_LOOK = timedelta(seconds=10)
"""... and the pause between further times."""
OIDC_RETRY = timedelta(seconds=5)
"""The pause after which an identity provider that could not be read is asked again."""
TENANT_CHARACTERS = 32
"""The length of the name of a tenant, which the ids of its turns begin with."""

WEBHOOK_URL_CHARACTERS = 2_000
"""The length of the URL of a webhook."""
WEBHOOK_CALL = timedelta(seconds=15)
"""The time in which the receiver of a webhook must answer."""
WEBHOOK_ATTEMPTS = 10
"""The number of attempts to deliver a webhook, ..."""
WEBHOOK_FIRST_PAUSE = timedelta(seconds=5)
"""... with this pause after the first one, and a four times longer one after each other, ..."""
WEBHOOK_LONGEST_PAUSE = timedelta(hours=8)
"""... up to this: 24 hours together. A receiver may also ask for a pause of up to this."""

TRANSIENT_RETRIES = 1
"""How many times a step retries the same model after a transient error."""
CHAIN = 8
"""The number of models in a fallback chain."""
BENCH = timedelta(seconds=5)
"""How long a failed model is benched if there is another.

The time doubles with each failure, ...
"""
LONGEST_BENCH = timedelta(minutes=5)
"""... up to this. A success resets it."""

HELD_RUNS = 4_096
"""The number of runs that a worker process lists for its supervisor."""
WORKER_PROCESSES = 64
"""The number of worker processes of one supervisor."""

LOST_ATTEMPTS = 5
"""How many attempts of one activity may be lost with their worker before the turn gives up."""

DEPLOYMENT_CHARACTERS = 128
"""The length of the name of a deployment, and of a build id."""

TURN_ID_CHARACTERS = 100
BATCH_ID_CHARACTERS = TURN_ID_CHARACTERS - len("/1~99")
"""The length of a batch's id, with which the ids of its turns begin."""
SCHEDULE_ID_CHARACTERS = 78
"""The length of a schedule's id; the server appends the time to the ids of its turns."""
LAST_OUTPUT_BYTES = 16 * 1024
"""The size of a schedule's last output that its next turn gets."""
CATCH_UP = timedelta(hours=1)
"""A time of a schedule that is missed is caught up on for this long, unless it says otherwise."""
LEAST_CATCH_UP = timedelta(seconds=10)
"""The server catches up for this long at least."""
BACKFILL_SLOTS = 500
"""The number of times of a schedule that one backfill runs; the server buffers 1,000."""
FAIRNESS_BYTES = 64
"""The size of a fairness key; a server rejects longer ones."""
LEAST_WEIGHT = 0.001
MOST_WEIGHT = 1000
"""The range of the weights of fairness keys."""
NAME_CHARACTERS = 64
"""The length of the names of agents and tools."""
NOTE_CHARACTERS = 200
"""The length of the name of an event, and of the note of a wait."""
BY_CHARACTERS = 200
"""The length of the name of the person or program that made a decision."""
SUBJECT_CHARACTERS = 128
"""The length of the name of a data subject."""

WINDOW_SHARE = 0.8
"""The share of a model's window, without the answer's part, that a complete transcript may take.

The rest is a margin for the estimate.
"""
WINDOW_TARGET = 0.5
"""The share that remains after shortening, so that many steps follow before the next one."""
KEPT_STEPS = 4
"""The number of final steps of a transcript that are never shortened."""

KNOWN_EFFECTS = 100
"""The number of effects that a turn remembers, and gives to the turns that follow it."""
EFFECT_RESULT_BYTES = 1_000
"""How much of the result of an effect is remembered."""
KEY_BYTES = 12
"""The beginning of an effect's key by which a worker recognizes it."""
READ_BACK = timedelta(minutes=15)
"""How long a lost call is read back while the service does not answer."""
EFFECT_ATTEMPTS = 3
"""How often a call is made that was read back and had not taken effect, or whose service recognizes
its key and has not answered."""
