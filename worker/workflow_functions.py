"""Provides the functions of a worker that the workflows of turns call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from temporalio.worker import Interceptor, WorkflowInterceptorClassInput


class WorkflowFunctions(Interceptor):
    """Provides functions by name, as extern functions; nothing is intercepted."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = functions

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> None:  # noqa: A002 - the SDK's name
        """Provide the functions."""
        input.unsafe_extern_functions.update(self._functions)
