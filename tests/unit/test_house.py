"""The public names, the folders of the package, and a fast import without side effects."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import perdure
import perdure.clients
import perdure.clients.gateway
import perdure.events
import perdure.providers
import perdure.testing
import perdure.toolboxes
import perdure.worker
import perdure.workflows
from perdure import limits

ROOT = Path(__file__).parents[2]
ROOMS = ("activities", "clients", "worker", "workflows")
FILES = sorted(
    path
    for folder in ("perdure", *ROOMS)
    for path in (ROOT / folder).rglob("*.py")
    if not path.is_symlink()
)


IMPORTED = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import\b|import\s+([\w.]+))", re.M)
CLASS = re.compile(r"^\s*class (\w+)", re.M)


@cache
def product() -> list[tuple[Path, str]]:
    """Every module of the product, once: those behind links by their real folders."""
    links = {ROOT / "perdure" / room for room in ROOMS}
    return [
        (path.relative_to(ROOT), path.read_text(encoding="utf-8"))
        for path in FILES
        if not links & set(path.parents)
    ]


PUBLIC = {
    perdure: [
        *[
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
        ],
        *["Handoff", "InputGuardrail", "Logger", "MCPEffect", "MCPLogin", "MCPServer"],
        *["Media"],
        *[
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
        ],
        *[
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
        ],
        *[
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
        ],
    ],
    perdure.clients: [
        "AgentClient",
        "AuditEntry",
        "Batch",
        "BatchEntry",
        "BatchOf",
        "BatchResult",
        "BatchStatus",
        "CaughtUp",
        "Change",
        "ChildStatus",
        "ClientCall",
        "Conversation",
        "DecidedCall",
        "Effect",
        "Entry",
        "ErasureReceipt",
        "Event",
        "Handle",
        "Listing",
        "MessageStatus",
        "Page",
        "RewrapReceipt",
        "Schedule",
        "ScheduleEntry",
        "ScheduleResult",
        "ScheduleStatus",
        "ScheduledTurn",
        "Sent",
        "Session",
        "SessionEntry",
        "SessionEvent",
        "SessionStatus",
        "Spent",
        "State",
        "Status",
        "TaskState",
        "TextBegins",
        "TextVoid",
        "ToolProgress",
        "Turn",
        "TurnEntry",
        "TurnStatus",
        "TurnText",
        "UnreadableKey",
        "VersionSummary",
        "Wait",
        "WebhookDelivery",
    ],
    perdure.clients.gateway: [
        "ROLES",
        "A2AAgent",
        "Auth",
        "Caller",
        "ClaimsTable",
        "Hook",
        "IdentityProvider",
        "LoginClient",
        "Permission",
        "Quota",
        "Rate",
        "a2a_agents_from",
        "app",
        "claims_from",
        "hooks_from",
        "one_token",
        "quotas_from",
        "tokens_from",
    ],
    perdure.worker: ["AgentWorker", "ModelQueue", "PerdurePlugin"],
    perdure.workflows: [
        "AgentBatch",
        "AgentBatchPart",
        "AgentErasure",
        "AgentEvents",
        "AgentPush",
        "AgentScheduledBatch",
        "AgentScheduledMessage",
        "AgentSession",
        "AgentSettlement",
        "AgentTurn",
        "AgentWebhook",
        "run_turn",
    ],
    perdure.toolboxes: [
        *("asking", "calculator", "clock", "fetch", "files", "folder_toolbox", "question_tool"),
        "shell",
        "waiting",
    ],
    perdure.events: [
        "AgentKey",
        "AgentResolved",
        "ApprovalNeeded",
        "BudgetAdded",
        "CallFailed",
        "CallFinished",
        "CancelRequested",
        "ChildEnded",
        "ChildKey",
        "ChildRead",
        "ChildScheduled",
        "ChildTold",
        "Decided",
        "Decision",
        "Emitted",
        "Fact",
        "HandedOver",
        "HandoffKey",
        "HookEnded",
        "HookKey",
        "JobStopped",
        "Key",
        "Loss",
        "ModelAnswered",
        "ModelKey",
        "PendingApproval",
        "PolicyAnswered",
        "PolicyKey",
        "Polled",
        "ReadKey",
        "Resumed",
        "Said",
        "Scheduled",
        "ToolKey",
        "ToolLost",
        "ToolReturned",
        "TurnEnded",
        "TurnStarted",
        "Verified",
        "VerifyKey",
        "WaitBegan",
        "WaitEnded",
        "parse_key",
    ],
    perdure.providers: [
        "Anthropic",
        "Heard",
        "Model",
        "ModelAnswer",
        "ModelRequest",
        "OpenAIChat",
        "OpenAIResponses",
        "Provider",
        "PydanticAI",
        "StopReason",
        "connect",
        "defaults",
    ],
    perdure.testing: [
        "ByTask",
        "FakeIssuer",
        "FakeMCPServer",
        "Fault",
        "FunctionModel",
        "Grade",
        "MadeEffect",
        "ModelRequest",
        "Reply",
        "Runtime",
        "ScriptedModel",
        "StubService",
        "Terms",
        "call",
        "calls",
        "fails",
        "grade",
        "local_runtime",
        "read_effects",
        "says",
        "skip_time",
        "slowly",
    ],
}


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_public_names_are_these_and_no_others(module: object) -> None:
    """A change of the public names is a decision: it belongs here, in the documentation and in the
    changelog.
    """
    names = PUBLIC[module]  # type: ignore[index]  # modules are keys here

    # every module in PUBLIC has `__all__`
    assert list(module.__all__) == names  # type: ignore[attr-defined]
    assert [name for name in names if not hasattr(module, name)] == []


MODULES = sorted(
    set(re.findall(r"(?m)^::: (\S+)", (ROOT / "docs/reference.md").read_text(encoding="utf-8")))
)


@pytest.mark.accepts("D63")
@pytest.mark.parametrize("name", MODULES)
def test_module_of_the_reference_exports_what_it_defines_and_no_import(name: str) -> None:
    """Type checkers and editors take the names in `__all__` for the public ones."""
    module = importlib.import_module(name)
    found = {
        key: value.__module__
        for key, value in ((key, getattr(module, key)) for key in {*dir(module), *module.__all__})
        if inspect.isclass(value) or inspect.isfunction(value)
    }
    own = {key for key, origin in found.items() if origin == name and not key.startswith("_")}
    foreign = {key for key in module.__all__ if found.get(key, name).partition(".")[0] != "perdure"}

    # the rooms share the function that imports their names late
    assert (own - {*module.__all__, "lazy_exports"}, foreign) == (set(), set())


def test_every_public_class_and_function_says_what_it_is() -> None:
    """So that `help(perdure.Agent)` is useful."""
    silent = [
        name
        for module, names in PUBLIC.items()
        for name in names
        if inspect.isroutine(getattr(module, name)) or inspect.isclass(getattr(module, name))
        if not (getattr(module, name).__doc__ or "").strip()
    ]

    assert silent == []


def test_rooms_are_links_and_their_modules_have_one_name() -> None:
    """`workflows/turn/agent_turn.py` is `perdure.workflows.turn.agent_turn`."""
    assert {room: (ROOT / "perdure" / room).resolve() for room in ROOMS} == {
        room: ROOT / room for room in ROOMS
    }
    assert perdure.workflows.AgentTurn.__module__ == "perdure.workflows.turn.agent_turn"


def test_nothing_imports_a_room_by_its_bare_name() -> None:
    """Other distributions have top-level packages with these names; the bare names would import a
    second copy of ours.
    """
    bare = [
        f"{path}: {name}"
        for path, text in product()
        for name in map("".join, IMPORTED.findall(text))
        if name.partition(".")[0] in ROOMS
    ]

    assert bare == []


def test_map_of_the_house_has_every_room() -> None:
    """`CONTRIBUTING.md` lists each folder with code, and no other."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(
        re.findall(
            r"^\| `((?:perdure|activities|clients|workflows|worker)[\w/]*)/(?:\*\.py)?`", text, re.M
        )
    )

    assert named == {str(path.parent) for path, _ in product()}


def test_class_names_of_activities_workers_and_values_are_used_once() -> None:
    """So that a name in a traceback or a log is one class. Underscores make no other name."""
    folders: dict[str, list[str]] = {}
    for path, text in product():
        for name in CLASS.findall(text):
            folders.setdefault(name.strip("_"), []).append(str(path.parent))
    rooms = ("activities", "worker", "perdure/values")
    again = {
        name
        for name, places in folders.items()
        if len(places) > 1 and any(place.startswith(rooms) for place in places)
    }

    assert again <= {"Text"}


def test_package_itself_has_few_modules() -> None:
    """The top level stays easy to survey."""
    assert len(list((ROOT / "perdure").glob("*.py"))) <= 10


def test_no_file_is_longer_than_500_lines() -> None:
    """Take a file apart by meaning, so that a newcomer guesses which half a thing is in. The errors
    are one list of small classes, whose halves nobody could guess.
    """
    lines = {
        str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines())
        for path, _ in product()
    }

    assert {path for path, count in lines.items() if count > 500} <= {"perdure/errors.py"}


def test_folders_have_at_most_25_files() -> None:
    """The rules of a turn and its activities are a list of equals, which folders would not help."""
    files = Counter(str(path.parent) for path, _ in product())
    crowded = {folder for folder, count in files.items() if count > 25}

    assert crowded <= {"perdure/turn", "activities"}


def test_every_limit_is_used() -> None:
    """An unused limit is not enforced."""
    used = {
        name
        for path, text in product()
        if path.name != "limits.py"
        for name in re.findall(r"\blimits\.([A-Z_\d]+)", text)
    }
    limits_there_are = {name for name in vars(limits) if name.isupper()}

    assert limits_there_are - used == set()


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        (
            "perdure",
            [
                *["temporalio", "httpx", "genai_prices", "opentelemetry", "pytest", "click"],
                *["rich", "starlette", "uvicorn"],
            ],
        ),
        ("perdure.clients", ["httpx", "genai_prices", "opentelemetry", "pytest", "starlette"]),
        ("perdure.workflows", ["httpx", "genai_prices", "pytest"]),
        ("perdure.worker", ["httpx", "genai_prices", "mcp", "pytest", "yaml"]),
        ("perdure.__main__", ["httpx", "genai_prices", "opentelemetry", "pytest", "starlette"]),
        ("perdure.testing", ["httpx", "genai_prices", "pytest"]),
        ("perdure.testing.plugin", ["temporalio", "pydantic", "httpx"]),
        ("perdure.toolboxes", ["temporalio", "httpx", "genai_prices", "pytest"]),
    ],
)
@pytest.mark.table(3)
def test_import_is_light(module: str, heavy: list[str]) -> None:
    """In a fresh process: programs that only define agents or print help do not load these."""
    code = f"from {module} import *; import json, sys; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
    )

    assert [name for name in heavy if name in loaded] == []


@pytest.mark.accepts("G21")
@pytest.mark.parametrize(
    "environment",
    [{}, {"_PERDURE_COMPLETE": "bash_complete", "COMP_WORDS": "perdure run --", "COMP_CWORD": "2"}],
    ids=["help", "Tab"],
)
def test_help_and_completion_load_no_more_than_they_need(environment: dict[str, str]) -> None:
    """The only other package is click."""
    code = (
        "import os, sys; before = set(sys.modules)\nos._exit = lambda code:"
        " print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}),"
        " file=sys.stderr)\nsys.argv = ['perdure', '--help']; from perdure.__main__ import main;"
        " main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stderr.split())

    assert "--verbose" in done.stdout or "--usd" in done.stdout
    assert loaded - sys.stdlib_module_names == {"perdure", "click"}


_EVERY_COMMAND = """
import contextlib, io, os, sys
before = set(sys.modules)
import perdure
alone = set(sys.modules) - before
import click
from click.shell_completion import shell_complete
from perdure.__main__ import commands, run
from perdure.clients.cli.completion import VARIABLE

def paths(group, path=()):
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from paths(command, (*path, name))

asked = 0
with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())) as out:
    for path in paths(commands()):
        assert run([*path, "--help"]) == 0
        words = ["perdure", *path, "--"]
        os.environ.update(COMP_WORDS=" ".join(words), COMP_CWORD=str(len(words) - 1))
        shell_complete(commands(), {"obj": {}}, "perdure", VARIABLE, "bash_complete")
        asked += 1
out.flush()
assert out.buffer.getvalue().count(b"Usage: ") == asked > 20
for found in (alone, set(sys.modules) - before):
    packages = {name.partition(".")[0] for name in found} - sys.stdlib_module_names
    print(*sorted(packages), flush=True)
"""


@pytest.mark.accepts("P48")
def test_help_and_completion_of_every_command_load_only_click() -> None:
    """Also of the commands of groups; and `import perdure` loads no package at all."""
    done = subprocess.run(
        [sys.executable, "-c", _EVERY_COMMAND], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("perdure\nclick perdure\n", "")


@pytest.mark.slow
def test_import_has_no_side_effects() -> None:
    """No thread, no log handler, no signal handler, no output."""
    code = (
        "import logging, signal, threading; before = [signal.getsignal(s) for s in (2, 15)]\n"
        "import perdure, perdure.clients, perdure.worker, perdure.workflows, perdure.testing\n"
        "assert [signal.getsignal(s) for s in (2, 15)] == before\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert not logging.getLogger().handlers and not logging.getLogger('perdure').handlers\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
