"""Perdure: agents that must finish.

Each agent turn is a Temporal workflow, each model call and each tool call is an activity. This package is the vocabulary: pure values and
rules. Start turns with `perdure.clients`, run them with `perdure.worker`, test them with `perdure.testing`.
"""

from perdure.agents import Agent
from perdure.approvals import Allow, Deny, ProposedCall, RequireApproval
from perdure.budgets import Budget
from perdure.delegates import Delegate
from perdure.mcp_servers import MCPServer
from perdure.messages import AssistantMessage, Media, Message, MessagesTypeAdapter, Text, Thinking, ToolCall, ToolMessage, ToolResult, UserMessage
from perdure.middleware import InputGuardrail, Logger, Middleware, OutputGuardrail, Recovery, Timeout
from perdure.model_retry import ModelRetryPolicy
from perdure.observers import Observer
from perdure.options import RequestOptions
from perdure.prices import Price
from perdure.profiles import ModelProfile
from perdure.registry import Registry
from perdure.reports import AgentReport, ChildReport, Outcome, Step, Usage
from perdure.skills import Skill
from perdure.tasks import Context, Task, TurnInfo
from perdure.tools import Tool, Toolbox, ToolContext, ToolResolver, tool

__all__ = [
    "Agent",
    "AgentReport",
    "Allow",
    "AssistantMessage",
    "Budget",
    "ChildReport",
    "Context",
    "Delegate",
    "Deny",
    "InputGuardrail",
    "Logger",
    "MCPServer",
    "Media",
    "Message",
    "MessagesTypeAdapter",
    "Middleware",
    "ModelProfile",
    "ModelRetryPolicy",
    "Observer",
    "Outcome",
    "OutputGuardrail",
    "Price",
    "ProposedCall",
    "Recovery",
    "Registry",
    "RequestOptions",
    "RequireApproval",
    "Skill",
    "Step",
    "Task",
    "Text",
    "Thinking",
    "Timeout",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolMessage",
    "ToolResolver",
    "ToolResult",
    "Toolbox",
    "TurnInfo",
    "Usage",
    "UserMessage",
    "tool",
]
