"""Limits that are on by default.

Every one is enforced; `docs/limits.md` is checked against this file.

Sizes are bytes of UTF-8. Temporal refuses payloads over 2 MB, so everything that becomes a payload
stays below `PAYLOAD_BYTES`.
"""

from datetime import timedelta

MAX_ITERATIONS = 10
OUTPUT_TOKENS = 8_192
"""The output limit of a call under a budget of money or tokens, where the options name none."""
LEAST_OUTPUT_TOKENS = 16
"""A call that could write less is not worth its input."""
LAST_OUTPUT_TOKENS = 1_024
"""Kept for the last answer of an agent that finishes when its budget is spent."""
LAST_CALL = timedelta(seconds=30)
"""Kept for the same answer of a time budget, but not more than a tenth of it."""
APPROVAL_EXPIRY = timedelta(hours=24)
"""An approval that nobody gives in this time is denied."""
OUTPUT_REASKS = 2
"""How often in a row a model is told what is wrong with its answer and asked again."""
SAME_CALLS = 3
"""So many steps in a row with equal calls and equal results, or in which every tool failed, are a loop."""

CALLS = 64
"""How many tools one answer of a model may ask for."""

DEPTH = 3
"""How deep a tree of agents may be, its root not counted."""
CHILDREN = 20
"""How many turns of delegates a turn may start."""
CHILDREN_AT_ONCE = 5
"""How many of them one call may start."""
DESCENDANTS = 100
"""How many turns of delegates a tree of agents may have in all, its root not counted."""

MODEL_CALL = timedelta(minutes=5)
TOOL_CALL = timedelta(seconds=60)
USER_CODE = timedelta(seconds=45)
"""So long a policy, a check or the observers of a turn may take, each time they are called."""
MCP_START = timedelta(seconds=20)
"""So long an MCP server may take to start, and to tell its tools."""
MCP_LONGEST_START = timedelta(seconds=45)
"""What `start_timeout` may be: below what looking an agent up may take."""
RETRY_AFTER = timedelta(minutes=5)
"""The longest pause that a provider is given where no `ModelRetryPolicy` says otherwise.

For a worker's
memory of other turns, and in turns of an earlier release.
"""
OUTAGE = timedelta(minutes=30)
"""For so long a turn without a time budget goes on asking a provider that is away."""

TASK_BYTES = 1024 * 1024
MEDIA_BYTES = 20 * 1024 * 1024
"""The images and files of a task, in base64.

More than `PAYLOAD_BYTES` of them need the external storage of Temporal's client.
"""
LABELS_BYTES = 4 * 1024
HEARTBEAT_BYTES = 4 * 1024
LIVE_TEXT_BYTES = 16 * 1024
"""The end of what a model has said so far, as its heartbeats carry it: most answers whole."""
TOOL_RESULT_BYTES = 64 * 1024
SUMMARY_BYTES = 64 * 1024
CALL_BYTES = 4 * 1024
"""What a tool call adds to history beside its arguments, labels and result."""
MEMO_BYTES = 2 * 1024
ERROR_TEXT_BYTES = 4 * 1024
PROVIDER_BODY_BYTES = 20 * 1000 * 1000
"""Of a reply after decompression; of a stream, all of its events together."""
REPLY_VALUES = 2_000_000
"""JSON values of a reply, counted by its commas and brackets, those in its strings included."""
STREAM_LINE_BYTES = 5 * 1000 * 1000
TRANSCRIPT_CACHE_BYTES = 256 * 1024 * 1024

SCHEMA_VALUES = 10_000
"""JSON values of the schema of an answer, as it comes and as it is sent, or of a tool of an MCP server: about 2,500 fields."""
SCHEMA_DEPTH = 64
"""So deep may a schema be nested."""
CHECK_STEPS = 1_000_000
"""So much work may it be to hold an answer to the schema that a caller sent.

Some seconds, which a megabyte of usual JSON does not need.
"""

PAYLOAD_BYTES = 1_500_000
"""What one value may weigh on its way into history.

Below the server's 2 MB, with room for the envelope.
"""

STORED_BYTES = 25_000_000
"""The same for what starts a turn, where the client has an external storage, which holds it instead of history."""

HISTORY_BYTES = 45_000_000
HISTORY_EVENTS = 48_000
"""The server terminates a workflow at 50 MB or 51,200 events, and no code of it runs then.

A turn ends typed before that.
"""
COMMANDS_BYTES = 3_000_000
"""What calls that are made at once may be given: the server takes no message of 4 MB."""
SERVER_BYTES = 50_000_000
"""Where the server terminates it. Nothing is measured while calls run that were made at once, so
what they may bring is counted before."""
TASK_TIMEOUT = timedelta(seconds=20)
"""So long one workflow task of a turn may take.

A worker that takes a turn over replays its history in one.
"""
EVENTS_PER_TASK_SECOND = 330
"""A turn with more events per second of that timeout ends typed. At the 1,000 events a second that
were measured, a replay then takes a third of the workflow task."""

TRANSIENT_RETRIES = 1
"""How often one step asks the same model again after an error that may pass."""
CHAIN = 8
"""How many models an agent may name, one to ask when the one before fails."""
BENCH = timedelta(seconds=5)
"""For so long a model that failed is left alone where there is another.

Twice as long each time, ...
"""
LONGEST_BENCH = timedelta(minutes=5)
"""... and not longer than this. A success resets it."""

LOST_ATTEMPTS = 5
"""How many attempts of one activity may be lost with their worker before the turn stops trying."""

TURN_ID_CHARACTERS = 100
NAME_CHARACTERS = 64
"""Names of agents and tools."""
BY_CHARACTERS = 200
"""The name of the person or program that made a decision."""

WINDOW_SHARE = 0.8
"""Of a model's window, the answer's part left out: a longer transcript is not sent whole.

The rest is for what the estimate does not see.
"""
WINDOW_TARGET = 0.5
"""As much of it is left then, so that many steps pass until something has to go again."""
KEPT_STEPS = 4
"""The last steps of a transcript, which are always sent as they are."""
