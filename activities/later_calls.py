"""The activities that poll and cancel jobs, with `poll=` and `cancel=` of their tools.

A poll that finds no result fails, so that Temporal repeats it after its pause. No worker is busy
meanwhile, and history does not grow. Both run where tools run.
"""

from __future__ import annotations

import functools
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from perdure.activities.call_tool import ToolActivities
from perdure.activities.error_log import log_raised
from perdure.activities.tool_compatibility import error_result
from perdure.activities.tool_results import fitted, most_bytes, output_of
from perdure.activities.user_code import called
from perdure.agents.jobs import ANSWERS, HANDLE, PendingJob
from perdure.agents.tools import Tool
from perdure.agents.tracebacks import raised
from perdure.temporal import failures
from perdure.text import clean, clip_recorded, described
from perdure.turn.wire import Noted, ToolOutput, ToolRun

_REASON_BYTES = 2_000


class LaterCalls:
    """Polls and cancels the jobs of the tools that `tools` runs."""

    def __init__(self, tools: ToolActivities) -> None:
        self._tools = tools

    async def poll(self, run: ToolRun) -> ToolOutput:
        """Return the result of a job, or what its server asks people.

        Raises:
            ApplicationError: There is none yet, or the service did not say; Temporal asks again.
        """
        item, poll = self._found(run, "poll")
        try:
            value = await self._call(item, poll, run)
        except Exception as error:  # noqa: BLE001 - it is code of the tool
            log_raised(f"poll= of tool {item.name!r} raised {raised(error)}", error)
            raise _again(described(error), type(error).__name__) from None
        if value is None:
            value = PendingJob("the job has no result yet")
        if isinstance(value, PendingJob):
            raise _again(value.reason, failures.NOT_FINISHED, is_normal=True, after=value.after)
        try:
            output = output_of(value)
        except ValueError as error:
            return error_result(f"{item.name}: the result of its job is not valid: {error}")
        has_storage = self._tools.has_storage
        output = fitted(output, item.name, run.media_bytes, has_storage=has_storage)
        if len(output.model_dump_json()) > most_bytes(output, has_storage=has_storage):
            return error_result(f"{item.name}: the result of its job is too large")
        return output

    async def cancel(self, run: ToolRun) -> Noted:
        """Cancel a job.

        Raises:
            ApplicationError: It failed; Temporal tries it again for a while.
        """
        item, cancel = self._found(run, "cancel")
        try:
            await self._call(item, cancel, run)
        except Exception as error:  # noqa: BLE001 - it is code of the tool
            log_raised(f"cancel= of tool {item.name!r} raised {raised(error)}", error)
            raise _again(described(error), type(error).__name__) from None
        return Noted()

    def _found(self, run: ToolRun, option: str) -> tuple[Tool, Tool]:
        """Return the deployed tool, and that of its option.

        Raises:
            ApplicationError: The deployed worker does not have it; another one may.
        """
        item = self._tools.deployed(run)
        bound: Tool | None = getattr(item, option, None)
        if item is None or bound is None:
            raise _again(
                f"the deployed worker does not have {option}= of this tool any more",
                failures.NOT_FINISHED,
            )
        return item, bound

    async def _call(self, item: Tool, bound: Tool, run: ToolRun) -> object:
        given = item.arguments.values(clean(run.arguments))
        arguments = bound.accepted({**given, HANDLE: run.handle, ANSWERS: run.answers})
        if bound.context_parameter:
            context = self._tools.context(run, activity.info(), item.name, "")
            arguments[bound.context_parameter] = context
        calling = called(functools.partial(bound.function, **arguments), limit=bound.timeout)
        return await self._tools.loop_of(bound).run(calling, f"tool {bound.name!r}")


def _again(
    reason: str, kind: str, *, is_normal: bool = False, after: timedelta | None = None
) -> ApplicationError:
    """Return the failure of an attempt that is repeated. The SDK logs one that is not normal.

    `after` is the pause before that; None for the pause of the tool.
    """
    category = (
        ApplicationErrorCategory.BENIGN if is_normal else ApplicationErrorCategory.UNSPECIFIED
    )
    return ApplicationError(
        clip_recorded(reason, _REASON_BYTES), type=kind, category=category, next_retry_delay=after
    )
