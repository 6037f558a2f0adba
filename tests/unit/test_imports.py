"""What rooms may import: the contracts of `pyproject.toml`, and lists of what else is allowed.

Import-linter only knows lists of what is forbidden. What is pure or deterministic has lists of what
is allowed here, so that a module that nobody thought of is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter import api
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract

ROOT = Path(__file__).parents[2]
CONTRACTS = {"forbidden": ForbiddenContract, "layers": LayersContract}

PURE_ROOMS = (
    *(
        "events",
        "session",
        "batch",
        "delivery",
        "keyed_events",
        "turn",
        "protocols",
        "agents",
        "values",
    ),
    *("schemas", "validation", "errors", "base", "limits", "text"),
)
PURE = frozenset(
    {
        *("__future__", "bisect", "collections", "contextlib", "dataclasses", "datetime"),
        *("decimal", "difflib", "enum", "fnmatch", "functools", "graphlib", "hashlib", "inspect"),
        *("ipaddress", "itertools", "json", "math", "operator", "pathlib.PurePath"),
        *("pathlib.PurePosixPath", "re", "types", "typing", "urllib.parse"),
        *("annotated_types", "perdure", "pydantic", "pydantic_core"),
    }
)
"""What every pure room may import."""

DETERMINISTIC = PURE | {"asyncio", "logging", "opentelemetry.trace", "temporalio"}
"""What workflows may import, directly or through another module."""

EXCEPTIONS = {
    "perdure.agents.agent": {"pathlib.Path"},  # a folder of skills, which the worker reads
    "perdure.agents.middleware": {"logging"},  # the type of the logger of a turn
    "perdure.agents.registry": {"threading"},  # factories are called once, by any thread
    "perdure.agents.tracebacks": {"sysconfig", "traceback"},
    "perdure.delivery.signatures": {"base64", "binascii", "hmac"},  # pure functions
    "perdure.turn.call_tokens": {"base64", "binascii", "hmac"},  # likewise
    "perdure.protocols.arguments": {"ast", "warnings"},  # arguments in the syntax of Python
    "perdure.schemas.tool_arguments": {"docstring_parser", "jsonschema", "warnings"},
    "perdure.values.messages": {"base64", "binascii"},  # whether the data of an image is valid
    # workflows pack and read histories with what knows it; a connection encrypts, and no workflow
    "perdure.temporal.encryption.codec": {
        *("base64", "binascii", "os", "zlib"),
        *("cryptography", "google.protobuf"),
    },
    # what clients and activities set around a request; nothing sets it around a workflow's code
    "perdure.temporal.acts.sources": {"contextvars.ContextVar"},
    "perdure.temporal.encryption.contexts": {"contextvars.ContextVar"},
    "perdure.temporal.encryption.hiding": {"os"},  # what logs and search attributes leave out
    "perdure.workflows.turn.call_waits": {"sys"},  # whether Python drops a turn from its memory
    "perdure.temporal.trace_ids": {"sys"},  # whether a workflow is running in this thread
}
"""What single modules may import in addition."""


@cache
def graph() -> grimp.ImportGraph:
    """The imports of the product at run time."""
    return grimp.build_graph(
        "perdure",
        include_external_packages=True,
        exclude_type_checking_imports=True,
        cache_dir=str(ROOT / ".import_linter_cache"),
    )


def file_of(module: str) -> Path:
    """The file of a module of the product."""
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


_NEVER_TRUE = {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
"""Conditions that do not hold at run time."""


def imported(node: ast.AST) -> Iterator[str]:
    """Yield the full names that a module imports at run time, also within functions."""
    if isinstance(node, ast.If) and ast.unparse(node.test) in _NEVER_TRUE:
        for otherwise in node.orelse:
            yield from imported(otherwise)
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from imported(child)


def imports_of(module: str) -> list[str]:
    """The names that a module of the product imports."""
    return list(imported(ast.parse(file_of(module).read_text(encoding="utf-8"))))


def is_in(name: str, parents: Iterable[str]) -> bool:
    """Whether a full name is one of these, or below it."""
    return any(name == parent or name.startswith(f"{parent}.") for parent in parents)


@cache
def durable() -> frozenset[str]:
    """Every module that workflows import, directly or through another."""
    return frozenset(graph().find_upstream_modules("perdure.workflows", as_package=True))


def allowed_in(module: str) -> frozenset[str] | None:
    """What a module may import; None if there is no list for it."""
    exceptions = EXCEPTIONS.get(module, set())
    if is_in(module, [f"perdure.{room}" for room in PURE_ROOMS]):
        return PURE | exceptions
    if module in durable() or is_in(module, ["perdure.workflows"]):
        return DETERMINISTIC | exceptions
    return None


def refused(module: str, names: Iterable[str]) -> list[str]:
    """Those of the imported names that a module may not import."""
    allowed = allowed_in(module)
    return [] if allowed is None else [name for name in names if not is_in(name, allowed)]


def broken(imports: grimp.ImportGraph) -> list[str]:
    """The names of the contracts that these imports break."""
    configuration = api.read_configuration(str(ROOT / "pyproject.toml"))
    session: dict[str, Any] = configuration["session_options"]
    return [
        options["name"]
        for options in configuration["contracts_options"]
        if not CONTRACTS[options["type"]](options["name"], session, options)
        .check(imports, verbose=False)
        .kept
    ]


@pytest.mark.slow
def test_pure_and_deterministic_modules_import_what_is_allowed() -> None:
    """Each module from `turn` down, and each that workflows import."""
    found = {
        module: names
        for module in graph().modules
        if is_in(module, ["perdure"])
        if (names := refused(module, imports_of(module)))
    }

    assert found == {}


def test_each_exception_is_used() -> None:
    """An exception for an import that is gone would allow its return."""
    unused = [
        f"{module}: {exception}"
        for module, exceptions in EXCEPTIONS.items()
        for exception in exceptions
        if not any(is_in(name, [exception]) for name in imports_of(module))
    ]

    assert unused == []


@pytest.mark.parametrize(
    "name",
    [
        *("subprocess", "uuid", "secrets", "threading", "sqlite3", "urllib.request"),
        *("http.client", "os", "time", "random", "socket", "httpx", "importlib"),
    ],
)
@pytest.mark.parametrize(
    "room", ["turn", "session", "batch", "delivery", "agents", "workflows", "workflows.turn"]
)
def test_import_that_is_not_allowed_is_found(room: str, name: str) -> None:
    """At the top of a module or within a function, by any form of the statement."""
    parent, _, last = f"{name}.anything".rpartition(".")
    sources = {
        f"import {name}": name,
        f"from {parent} import {last}": f"{parent}.{last}",
        f"def load():\n    import {name} as x": name,
        f"if TYPE_CHECKING:\n    pass\nelse:\n    import {name}": name,
    }

    for source, found in sources.items():
        assert refused(f"perdure.{room}.planted", imported(ast.parse(source))) == [found]


CLIENT_LIBRARY = (
    "client",
    "connecting",
    "handles",
    "reading",
    "turns",
    "sessions",
    "batches",
    "schedules",
)

PLANTED = [
    # rooms
    ("perdure.turn.planted", "perdure.temporal.names"),
    ("perdure.turn.planted", "perdure.session.facts"),
    ("perdure.values.planted", "perdure.agents.agent"),
    ("perdure.session.planted", "perdure.batch.wire"),
    ("perdure.temporal.planted", "perdure.clients.client"),
    ("perdure.activities.planted", "perdure.workflows"),
    ("perdure.workflows.turn.planted", "perdure.clients.client"),
    ("perdure.workflows.turn.planted", "perdure.activities.call_model"),
    ("perdure.clients.turns.planted", "perdure.activities.call_model"),
    ("perdure.clients.turns.planted", "perdure.worker.plugin"),
    ("perdure.worker.planted", "perdure.testing.runtime"),
    ("perdure.new_room", "perdure.errors"),
    # the folders of clients
    *((f"perdure.clients.{room}.planted", "perdure.clients.client") for room in CLIENT_LIBRARY[2:]),
    *((f"perdure.clients.{room}", "perdure.clients.gateway.auth") for room in CLIENT_LIBRARY),
    *((f"perdure.clients.{room}", "perdure.clients.cli.turns") for room in CLIENT_LIBRARY),
    *((f"perdure.clients.{room}", "click") for room in CLIENT_LIBRARY),
    *((f"perdure.clients.{room}", "rich") for room in CLIENT_LIBRARY),
    *((f"perdure.clients.{room}", "starlette") for room in CLIENT_LIBRARY),
    *((f"perdure.clients.{room}", "uvicorn") for room in CLIENT_LIBRARY),
    ("perdure.clients.batches.planted", "perdure.clients.gateway.app"),
    ("perdure.clients.batches.planted", "perdure.clients.sessions.handle"),
    ("perdure.clients.gateway.planted", "perdure.clients.cli.turns"),
    ("perdure.clients.cli.planted", "perdure.clients.gateway.auth"),
    ("perdure.clients.cli.drawing.planted", "perdure.clients.cli.running.following"),
    ("perdure.clients.cli.running.planted", "perdure.clients.cli.turns"),
    ("perdure.clients.cli.sessions", "perdure.clients.cli.batches"),
    ("perdure.clients.cli.new_file", "perdure.errors"),
    ("perdure.clients.new_file", "perdure.errors"),
    # the folders of workflows
    ("perdure.workflows.turn.planted", "perdure.workflows.session.details"),
    ("perdure.workflows.batch.planted", "perdure.workflows.session.details"),
    ("perdure.workflows.heartbeats", "perdure.workflows.turn.clock"),
    # the folder of temporal
    ("perdure.temporal.access", "perdure.temporal.histories.runs"),
    ("perdure.temporal.histories.planted", "perdure.temporal.follow"),
    # workers
    ("perdure.worker.agent_worker", "perdure.clients.cli.turns"),
    ("perdure.worker.assembly", "click"),
    ("perdure.worker.plugin", "click"),
]


def test_contracts_are_kept() -> None:
    """So that what the next test finds is what it planted."""
    assert broken(graph()) == []


@pytest.mark.table(12)
@pytest.mark.parametrize(("importer", "name"), PLANTED, ids=" imports ".join)
def test_planted_import_breaks_a_contract(importer: str, name: str) -> None:
    """The contracts of `pyproject.toml`, on the imports of the product and this one."""
    imports = deepcopy(graph())
    for module in (importer, name):
        if module not in imports.modules:
            imports.add_module(module, is_squashed=not module.startswith("perdure."))
    imports.add_import(importer=importer, imported=name)

    assert broken(imports) != []
