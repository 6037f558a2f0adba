"""Decides whether a call may reach a tool that a deploy has changed since its turn began.

The deployed code runs as long as it accepts the arguments. An approval covers what the person saw:
a call that the deployed tool would reject or read differently needs a new approval. So does a call
with less consent than the deployed tool demands.
"""

from __future__ import annotations

from pydantic_core import to_json

from perdure import limits
from perdure.agents.mcp_servers import MCPTool
from perdure.agents.policy import is_wanted
from perdure.agents.tools import Tool
from perdure.agents.turn_rules import Approval
from perdure.text import clean, clip, clip_recorded
from perdure.turn.wire import Asking, ToolOutput, ToolRun
from perdure.values.losses import CallLoss
from perdure.values.messages import UNKNOWN_NOTE

_SCHEMA_BYTES = 4 * 1024
_UNKNOWN = "contact with the process that ran it was lost; whether it took effect is unknown"


def error_result(text: str) -> ToolOutput:
    """Return the result that a model gets for a call that has none."""
    return ToolOutput(content=clip_recorded(text, limits.TOOL_RESULT_BYTES), is_error=True)


def unknown_result(text: str, loss: CallLoss | None = None) -> ToolOutput:
    """Return the result of a call that may have taken effect although it has no result.

    `loss` says how its answer was lost, None if that of an attempt before was.
    """
    content = clip_recorded(text, limits.TOOL_RESULT_BYTES - len(UNKNOWN_NOTE)) + UNKNOWN_NOTE
    return ToolOutput(content=content, is_error=True, is_unknown=True, loss=loss)


def refused(run: ToolRun, item: Tool, reason: str) -> ToolOutput:
    """Return the result of a call whose arguments the tool rejects; `reason` says why."""
    sentence = f"and the arguments do not fit it: {reason}. {_signature(item)}"
    if run.approved and run.approved != item.digest:
        return _asking(item, f"has changed since the call was approved, {sentence}")
    if run.schema_digest == item.digest:
        return error_result(f"{item.name} was not called, its arguments are not valid: {reason}")
    return error_result(
        f"{item.name} was not called: it has changed since this turn began, {sentence}"
    )


def held_back(run: ToolRun, item: Tool, approval: Approval) -> ToolOutput | None:
    """Return the result of a call that fits its tool but must not run; None if it may run.

    Args:
        run: The call.
        item: The deployed tool.
        approval: Which calls require approval, according to the deployed agent that has the tool.
    """
    if run.repeats and not item.idempotent and not isinstance(item, MCPTool):
        return unknown_result(f"{item.name}: {_UNKNOWN}, and the deployed tool may not be repeated")
    if run.only_reads and not only_reads(item):
        return _asking(
            item, "said that it changes nothing when this turn began, and does not say so any more"
        )
    if (
        run.approved
        and run.approved != item.digest
        and not item.arguments.keeps(clean(run.arguments))
    ):
        return _asking(
            item,
            "has changed since the call was approved, and reads the arguments in another way."
            f" {_signature(item)}",
        )
    if run.approved == "" and is_wanted(
        approval, is_marked=item.requires_approval, changes=not only_reads(item)
    ):
        return _asking(item, "requires an approval since a deploy, and this call has none")
    return None


def only_reads(item: Tool) -> bool:
    """Return whether the deployed tool is read-only, as far as is known.

    For tools of MCP servers, the hints that the turn is pinned to apply.
    """
    return item.read_only or isinstance(item, MCPTool)


def _asking(item: Tool, sentence: str) -> ToolOutput:
    asks = Asking(
        reason=clip(clean(f"{item.name} {sentence}"), limits.TOOL_RESULT_BYTES // 2),
        schema_digest=item.digest,
    )
    return error_result(f"{item.name} was not called: it {sentence}").model_copy(
        update={"asks": asks}
    )


def _signature(item: Tool) -> str:
    return f"Its arguments are now: {clip(to_json(item.arguments.schema).decode(), _SCHEMA_BYTES)}"
