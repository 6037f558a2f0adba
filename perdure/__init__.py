"""Perdure: agents that must finish.

Each turn of an agent is a Temporal workflow, and each model call and tool call is an activity. This
package contains the vocabulary: pure values and rules. Start turns with `perdure.clients`, run them
with `perdure.worker`, and test them with `perdure.testing`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING


def lazy_exports(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that imports public names at first use.

    This keeps `perdure --help` quick.

    Modules are imported with `__import__`, like the `import` statement, because Temporal's sandbox
    replaces it: a workflow gets the modules of its worker, not copies.

    Args:
        package: The name of the package.
        modules: The public names, by the modules that define them.
    """
    where = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> object:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(__import__(where[name], fromlist=[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *where})

    return find, names


if TYPE_CHECKING:
    from perdure.agents.agent import Agent
    from perdure.agents.delegates import Delegate
    from perdure.agents.handoffs import Handoff
    from perdure.agents.mcp_effects import MCPEffect
    from perdure.agents.mcp_logins import MCPLogin
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
    from perdure.agents.tool_context import OutcomeUnknown, ToolContext
    from perdure.agents.tools import Tool, Toolbox, ToolResolver, tool
    from perdure.agents.versions import Rollout, StopRule
    from perdure.values.budgets import Budget
    from perdure.values.client_tools import ClientTool
    from perdure.values.losses import CallLoss
    from perdure.values.messages import (
        AssistantMessage,
        Media,
        Message,
        MessagesTypeAdapter,
        Text,
        Thinking,
        ToolCall,
        ToolMessage,
        ToolOutcome,
        ToolResult,
        UserMessage,
    )
    from perdure.values.model_retry import ModelRetryPolicy
    from perdure.values.options import RequestOptions
    from perdure.values.prices import Price
    from perdure.values.profiles import ModelProfile
    from perdure.values.reports import (
        AgentReport,
        ChildReport,
        ForkedFrom,
        Outcome,
        Step,
        UnsettledCall,
        Usage,
    )
    from perdure.values.tasks import Context, Task, TurnInfo
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "perdure.agents.agent": ["Agent"],
            "perdure.agents.policy": ["Allow", "Deny", "ProposedCall", "RequireApproval"],
            "perdure.values.budgets": ["Budget"],
            "perdure.values.client_tools": ["ClientTool"],
            "perdure.agents.delegates": ["Delegate"],
            "perdure.agents.handoffs": ["Handoff"],
            "perdure.agents.mcp_effects": ["MCPEffect"],
            "perdure.agents.mcp_logins": ["MCPLogin"],
            "perdure.agents.mcp_servers": ["MCPServer"],
            "perdure.values.losses": ["CallLoss"],
            "perdure.values.messages": [
                "AssistantMessage",
                "Media",
                "Message",
                "MessagesTypeAdapter",
                "Text",
                "Thinking",
                "ToolCall",
                "ToolMessage",
                "ToolOutcome",
                "ToolResult",
                "UserMessage",
            ],
            "perdure.agents.middleware": [
                "InputGuardrail",
                "Logger",
                "Middleware",
                "OutputGuardrail",
                "Recovery",
                "Timeout",
            ],
            "perdure.values.model_retry": ["ModelRetryPolicy"],
            "perdure.agents.observers": ["Observer"],
            "perdure.values.options": ["RequestOptions"],
            "perdure.values.prices": ["Price"],
            "perdure.values.profiles": ["ModelProfile"],
            "perdure.agents.registry": ["Registry"],
            "perdure.values.reports": [
                "AgentReport",
                "ChildReport",
                "ForkedFrom",
                "Outcome",
                "Step",
                "UnsettledCall",
                "Usage",
            ],
            "perdure.agents.skills": ["Skill"],
            "perdure.values.tasks": ["Context", "Task", "TurnInfo"],
            "perdure.agents.tool_context": ["OutcomeUnknown", "ToolContext"],
            "perdure.agents.tools": ["Tool", "Toolbox", "ToolResolver", "tool"],
            "perdure.agents.versions": ["Rollout", "StopRule"],
        },
    )

__all__ = [
    "Agent",
    "AgentReport",
    "Allow",
    "AssistantMessage",
    "Budget",
    "CallLoss",
    "ChildReport",
    "ClientTool",
    "Context",
    "Delegate",
    "Deny",
    "ForkedFrom",
    "Handoff",
    "InputGuardrail",
    "Logger",
    "MCPEffect",
    "MCPLogin",
    "MCPServer",
    "Media",
    "Message",
    "MessagesTypeAdapter",
    "Middleware",
    "ModelProfile",
    "ModelRetryPolicy",
    "Observer",
    "Outcome",
    "OutcomeUnknown",
    "OutputGuardrail",
    "Price",
    "ProposedCall",
    "Recovery",
    "Registry",
    "RequestOptions",
    "RequireApproval",
    "Rollout",
    "Skill",
    "Step",
    "StopRule",
    "Task",
    "Text",
    "Thinking",
    "Timeout",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolMessage",
    "ToolOutcome",
    "ToolResolver",
    "ToolResult",
    "Toolbox",
    "TurnInfo",
    "UnsettledCall",
    "Usage",
    "UserMessage",
    "tool",
]
