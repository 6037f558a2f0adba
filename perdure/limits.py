"""Limits that are on by default. Every one is enforced; `docs/limits.md` is checked against this file.

Sizes are bytes of UTF-8. Temporal refuses payloads over 2 MB, so everything that becomes a payload stays below `PAYLOAD_BYTES`.
"""

from datetime import timedelta

MAX_ITERATIONS = 10
MODEL_CALL = timedelta(minutes=5)
TOOL_CALL = timedelta(seconds=60)
RETRY_AFTER = timedelta(minutes=5)

TASK_BYTES = 1024 * 1024
LABELS_BYTES = 4 * 1024
HEARTBEAT_BYTES = 4 * 1024
TOOL_RESULT_BYTES = 64 * 1024
SUMMARY_BYTES = 64 * 1024
MEMO_BYTES = 2 * 1024
ERROR_TEXT_BYTES = 4 * 1024
PROVIDER_BODY_BYTES = 20 * 1000 * 1000
TRANSCRIPT_CACHE_BYTES = 256 * 1024 * 1024

PAYLOAD_BYTES = 1_500_000
"""What one value may weigh on its way into history: below the server's 2 MB, with room for the envelope."""

HISTORY_BYTES = 45_000_000
HISTORY_EVENTS = 48_000
"""The server terminates a workflow at 50 MB or 51,200 events, and no code of it runs then; a turn ends typed before that."""

TRANSIENT_RETRIES = 1
"""How often one step tries again after an error of the model that may pass."""

LOST_ATTEMPTS = 5
"""How many attempts of one activity may be lost with their worker before the turn stops trying."""

TURN_ID_CHARACTERS = 100
NAME_CHARACTERS = 64
"""Names of agents and tools."""
