"""The names of the turn and of Perdure's own activities.

Tools are activities under their own names; those cannot hold a dot, so nothing can collide.
"""

TURN = "AgentTurn"
"""The workflow type of a turn."""

TASK_QUEUE = "perdure"
"""Where workers poll and clients start turns, if nobody names another."""

RESOLVE_AGENT = "perdure.resolve_agent"
"""`AgentCall -> AgentDefinition`: look the agent up once, for the whole turn."""

CALL_MODEL = "perdure.call_model"
"""`ModelCall -> ModelAnswer`: one request to a model."""

CALL_TOOL = "perdure.call_tool"
CALL_SYNC_TOOL = "perdure.call_sync_tool"
"""`ToolRun -> ToolOutput`: a tool that was not known when the worker started, such as one that a factory made."""
