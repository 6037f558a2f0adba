"""Perdure: agents that must finish.

Each agent turn is a Temporal workflow, each model call and each tool call is an activity. This
package is the vocabulary: pure values and rules. Start turns with `perdure.clients`, run them with
`perdure.worker`, test them with `perdure.testing`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.agents.agent import Agent
    from perdure.agents.delegates import Delegate
    from perdure.agents.mcp_servers import MCPServer
    from perdure.agents.middleware import (
        InputGuardrail,
        Logger,
        Middleware,
        OutputGuardrail,
        Recovery,
        Timeout,
    )
    from perdure.agents.observers import Observer
    from perdure.agents.policy import Allow, Deny, ProposedCall, RequireApproval
    from perdure.agents.registry import Registry
    from perdure.agents.skills import Skill
    from perdure.agents.tools import Tool, Toolbox, ToolContext, ToolResolver, tool
    from perdure.values.budgets import Budget
    from perdure.values.messages import (
        AssistantMessage,
        Media,
        Message,
        MessagesTypeAdapter,
        Text,
        Thinking,
        ToolCall,
        ToolMessage,
        ToolResult,
        UserMessage,
    )
    from perdure.values.model_retry import ModelRetryPolicy
    from perdure.values.options import RequestOptions
    from perdure.values.prices import Price
    from perdure.values.profiles import ModelProfile
    from perdure.values.reports import AgentReport, ChildReport, Outcome, Step, Usage
    from perdure.values.tasks import Context, Task, TurnInfo
else:
    from perdure.lazy import public as _public

    __getattr__, __dir__ = _public(
        __name__,
        {
            "perdure.agents": ["Agent"],
            "perdure.approvals": ["Allow", "Deny", "ProposedCall", "RequireApproval"],
            "perdure.budgets": ["Budget"],
            "perdure.delegates": ["Delegate"],
            "perdure.mcp_servers": ["MCPServer"],
            "perdure.messages": [
                "AssistantMessage",
                "Media",
                "Message",
                "MessagesTypeAdapter",
                "Text",
                "Thinking",
                "ToolCall",
                "ToolMessage",
                "ToolResult",
                "UserMessage",
            ],
            "perdure.middleware": [
                "InputGuardrail",
                "Logger",
                "Middleware",
                "OutputGuardrail",
                "Recovery",
                "Timeout",
            ],
            "perdure.model_retry": ["ModelRetryPolicy"],
            "perdure.observers": ["Observer"],
            "perdure.options": ["RequestOptions"],
            "perdure.prices": ["Price"],
            "perdure.profiles": ["ModelProfile"],
            "perdure.registry": ["Registry"],
            "perdure.reports": ["AgentReport", "ChildReport", "Outcome", "Step", "Usage"],
            "perdure.skills": ["Skill"],
            "perdure.tasks": ["Context", "Task", "TurnInfo"],
            "perdure.tools": ["Tool", "Toolbox", "ToolContext", "ToolResolver", "tool"],
        },
    )

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
