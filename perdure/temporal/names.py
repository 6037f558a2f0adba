"""The names of the turn and of Perdure's own activities.

Tools are activities under their own names; those cannot hold a dot, so nothing can collide.
"""

from datetime import timedelta

TURN = "AgentTurn"
"""The workflow type of a turn."""

TASK_QUEUE = "perdure"
"""Where workers poll and clients start turns, if nobody names another."""

RESOLVE_AGENT = "perdure.resolve_agent"
"""`AgentCall -> AgentDefinition`: look the agent up once, for the whole turn."""

CALL_MODEL = "perdure.call_model"
"""`ModelCall -> ModelAnswer`: one request to a model."""

GENERATE = "perdure.generate"
"""The name of the agent behind `client.generate`.

No instructions, no tools, the model of the request. No agent of people's can have it.
"""

CALL_TOOL = "perdure.call_tool"
CALL_SYNC_TOOL = "perdure.call_sync_tool"
"""`ToolRun -> ToolOutput`.

A tool that was not known when the worker started, such as one that a factory made.
"""

ADD_BUDGET = "add_budget"
"""The update that raises a turn's budget: `Budget -> Remaining`."""

RESUME = "resume"
"""The update that has a turn ask its model again at once: nothing in, nothing out."""

MEMO = "perdure"
"""Where the memo says what a turn is, and how it ended."""

MEMO_WAIT = "perdure_waits_for"
"""Where it says what a turn waits for, while it does."""

DECIDE = "decide"
"""The update by which a person approves or denies a call: `Decision -> nothing`."""

READ_CHILD = "perdure.read_child"
"""`ChildRun -> TurnRead`: what a delegate's turn that left no summary did, by its history."""

CHILD_NEWS = "child_news"
"""The signal from the turn of a delegate to those above it: `ChildNews`."""

ASK_POLICY = "perdure.ask_policy"
"""`PolicyCall -> Ruling`: what the policies say about a call."""

RUN_MIDDLEWARE = "perdure.middleware"
"""`HookCall -> Noted`: middleware of the agent, before the turn or after it."""

TELL_OBSERVERS = "perdure.observe"
"""`ObserverCall -> Noted`: what the agent's observers have not seen yet."""


HEARTBEAT_TIMEOUT = timedelta(seconds=5)
"""Silence for so long means that the worker is gone."""
