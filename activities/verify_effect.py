"""The activity that finds out whether a call has taken effect, with `verify=` of its tool.

It only reads, so Temporal repeats it while the service does not answer. It runs where tools run.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from perdure.activities.call_tool import ToolActivities
from perdure.activities.effect_keys import Recognized
from perdure.activities.error_log import log_raised
from perdure.activities.tool_results import fitted, output_of
from perdure.activities.user_code import called
from perdure.agents.mcp_effects import MCPReader
from perdure.agents.tool_context import OutcomeUnknown
from perdure.agents.tools import Tool
from perdure.agents.tracebacks import raised
from perdure.text import clean, clip_recorded, described, words_of
from perdure.turn.effect_values import Verification
from perdure.turn.wire import ToolRun

_REASON_BYTES = 2_000


class Verifications:
    """Reads back calls of the tools that `tools` runs."""

    def __init__(self, tools: ToolActivities) -> None:
        self._tools = tools

    async def verify(self, run: ToolRun) -> Verification:
        """Return whether a call has taken effect.

        Raises:
            ApplicationError: The service did not say; Temporal tries it again.
        """
        item = self._tools.deployed(run)
        if item is None or item.verify is None:
            return _unreadable("the deployed worker does not have verify= of this tool any more")
        try:
            values = item.arguments.values(clean(run.arguments))
        except ValueError as error:
            return _unreadable(f"the deployed tool rejects its arguments: {error}")
        effect = Recognized()
        with contextlib.suppress(Exception):  # the call itself has reported it
            effect = self._tools.recognized(item, run, activity.info().workflow_run_id or "")
        verification = await self._read(item, item.verify, run, values, effect.service_key)
        return verification.model_copy(update=effect.fields)

    async def _read(
        self, item: Tool, reader: Tool, run: ToolRun, values: Mapping[str, Any], key: str
    ) -> Verification:
        arguments = reader.accepted(values)
        if reader.context_parameter:
            context = self._tools.context(run, activity.info(), item.name, key)
            arguments[reader.context_parameter] = context
        try:
            return self._found(reader, run, await self._called(reader, arguments))
        except OutcomeUnknown as error:
            return _unreadable(words_of(error))
        except Exception as error:
            log_raised(f"verify= of tool {item.name!r} raised {raised(error)}", error)
            reason = clip_recorded(described(error), _REASON_BYTES)
            raise ApplicationError(reason, type=type(error).__name__) from error

    async def _called(self, reader: Tool, arguments: Mapping[str, Any]) -> object:
        calling = called(functools.partial(reader.function, **arguments), limit=reader.timeout)
        return await self._tools.loop_of(reader).run(calling, f"tool {reader.name!r}")

    def _found(self, reader: Tool, run: ToolRun, value: object) -> Verification:
        """Return the verdict for what the function returned: None is nothing."""
        if value is None:
            return Verification(verdict="absent")
        has_storage = self._tools.has_storage
        output = fitted(output_of(value), reader.name, run.media_bytes, has_storage=has_storage)
        if isinstance(reader, MCPReader):
            if not output.media and reader.says_nothing(output.content):
                return Verification(verdict="absent")
            if output.is_error:
                raise RuntimeError(output.content)
        return Verification(verdict="found", content=output.content, media=output.media)


def _unreadable(reason: str) -> Verification:
    return Verification(verdict="unreadable", content=clip_recorded(reason, _REASON_BYTES))
