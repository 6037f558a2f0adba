"""The private names of the SDK that the simulator uses: a new release may change them."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest
import temporalio
from temporalio.worker import UnsandboxedWorkflowRunner
from temporalio.workflow import _Definition

from perdure.testing import simulation
from perdure.testing.simulation.server import sdk

FOLDER = Path(simulation.__file__).parent
PRIVATE = {
    "temporalio.bridge.proto.workflow_activation.WorkflowActivation",
    "temporalio.bridge.proto.workflow_activation.WorkflowActivationJob",
    "temporalio.bridge.proto.workflow_commands.WorkflowCommand",
    "workflow._Definition",
    "self._inner._object",
    "self._inner._ready",
    "schedule._to_proto",
    "ScheduleDescription._from_proto",
    "__temporal_assert_local_activity_valid",
}
"""All of them, as `sdk.py` writes them."""


def private_names(path: Path) -> set[str]:
    """The names of the SDK in a module that are not public, and other objects' private ones."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            is_private = node.module.startswith(("temporalio.bridge", "temporalio.worker._"))
            found |= {f"{node.module}.{name.name}" for name in node.names if is_private}
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "os")
            if not is_own and not node.attr.startswith("__"):
                found.add(ast.unparse(node))
        elif isinstance(node, ast.Constant) and str(node.value).startswith("__temporal"):
            found.add(str(node.value))
    return found


def test_one_module_uses_private_names_of_the_sdk() -> None:
    """No other module of the simulator would notice that the SDK has changed inside."""
    used = {path.name: private_names(path) for path in FOLDER.rglob("*.py")}

    assert {name: names for name, names in used.items() if names} == {"sdk.py": PRIVATE}


def test_the_sdk_has_these_names() -> None:
    """The version that they were read in, and all of the names."""
    for name in PRIVATE:
        module, _, attribute = name.rpartition(".")
        if module.startswith("temporalio."):
            assert hasattr(importlib.import_module(module), attribute)

    assert temporalio.__version__ if hasattr(temporalio, "__version__") else True
    assert callable(_Definition.must_from_class)


@pytest.mark.accepts("S101")
def test_activation_that_never_ends_is_an_error() -> None:
    """A worker would be stuck in it; the workflow object can still be removed from memory."""
    begun = sdk.BegunRun("turn", "run-0000002", "run-0000002", "AgentTurn", 10**18)
    instance = sdk.Instance(begun)

    def again() -> None:
        instance._inner.call_soon(again)  # type: ignore[attr-defined]

    again()
    job = sdk.Job()
    job.initialize_workflow.workflow_type = "AgentTurn"
    job.initialize_workflow.arguments.add(
        metadata={"encoding": b"json/plain"}, data=b'{"agent": "any", "task": "go"}'
    )
    with pytest.raises(sdk.TaskFailedError, match="does not end: it has had 50000 steps"):
        instance.activate(
            [job], now_ns=10**18, is_replaying=False, length=3, size_bytes=100, flags=[]
        )
    instance.evict()


def test_a_workflow_object_answers_an_activation() -> None:
    """The start of a turn is answered with the activity that resolves its agent."""
    begun = sdk.BegunRun("turn", "run-0000001", "run-0000001", "AgentTurn", 10**18)
    instance = sdk.Instance(begun)
    job = sdk.Job()
    job.initialize_workflow.workflow_type = "AgentTurn"
    job.initialize_workflow.arguments.add(
        metadata={"encoding": b"json/plain"}, data=b'{"agent": "any", "task": "go"}'
    )
    commands, _ = instance.activate(
        [job], now_ns=10**18, is_replaying=False, length=3, size_bytes=100, flags=[]
    )
    state = instance.workflow._board.state  # type: ignore[attr-defined]
    instance.evict()

    assert [command.WhichOneof("variant") for command in commands] == ["schedule_activity"]
    assert state.request is not None
    assert state.request.agent == "any"
    assert UnsandboxedWorkflowRunner is not None
