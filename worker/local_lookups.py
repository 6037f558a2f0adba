"""Lets the workflows of turns ask whether their worker has an agent at hand."""

from __future__ import annotations

from collections.abc import Callable

from temporalio.worker import Interceptor, WorkflowInterceptorClassInput

from perdure.temporal.names import IS_AT_HAND
from perdure.turn.wire import AgentCall


class LocalLookups(Interceptor):
    """Provides the function that workflows call; nothing is intercepted."""

    def __init__(self, is_at_hand: Callable[[AgentCall], bool]) -> None:
        self._is_at_hand = is_at_hand

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> None:  # noqa: A002 - the SDK's name
        """Provide the function."""
        input.unsafe_extern_functions[IS_AT_HAND] = self._is_at_hand
