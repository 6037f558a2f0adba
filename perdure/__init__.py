"""Perdure: agents that must finish.

Each agent turn is a Temporal workflow, each model call and each tool call is an activity. This package is the vocabulary: pure values and
rules. Start turns with `perdure.clients`, run them with `perdure.worker`, test them with `perdure.testing`.
"""

from perdure.agents import Agent
from perdure.messages import AssistantMessage, Media, Message, Text, Thinking, ToolCall, ToolMessage, ToolResult, UserMessage
from perdure.registry import Registry
from perdure.reports import AgentReport, Outcome, Step, Usage
from perdure.tasks import Context, Task, TurnInfo
from perdure.tools import Tool, Toolbox, ToolContext, tool

__all__ = [
    "Agent",
    "AgentReport",
    "AssistantMessage",
    "Context",
    "Media",
    "Message",
    "Outcome",
    "Registry",
    "Step",
    "Task",
    "Text",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolMessage",
    "ToolResult",
    "Toolbox",
    "TurnInfo",
    "Usage",
    "UserMessage",
    "tool",
]
