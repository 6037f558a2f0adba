"""Workflow instances and runners that wrap instances and runners of the SDK."""

from __future__ import annotations

from typing import Any

from temporalio.worker import WorkflowInstance, WorkflowRunner


class WrappedWorkflow(WorkflowInstance):
    """A workflow instance that delegates everything to another instance."""

    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner = inner
        # the SDK asks for it with each payload: not through every wrapper
        self.get_serialization_context = inner.get_serialization_context  # type: ignore[method-assign]

    def activate(self, act: Any) -> Any:
        """Delegate to the wrapped instance."""
        return self._inner.activate(act)

    def get_serialization_context(self, command_info: Any) -> Any:
        """Delegate to the wrapped instance."""
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        """Delegate to the wrapped instance."""
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Any:
        """Delegate to the wrapped instance."""
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        """Delegate to the wrapped instance."""
        return self._inner.get_thread_id()


class WrappedRunner(WorkflowRunner):
    """A workflow runner that delegates to another runner; subclasses add `create_instance`."""

    def __init__(self, inner: WorkflowRunner) -> None:
        self._inner = inner

    def prepare_workflow(self, defn: Any) -> None:
        """Delegate to the wrapped runner."""
        self._inner.prepare_workflow(defn)

    def set_worker_level_failure_exception_types(self, types: Any) -> None:
        """Delegate to the wrapped runner."""
        self._inner.set_worker_level_failure_exception_types(types)
