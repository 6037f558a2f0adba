"""Loads a worker by `module:name`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from perdure import errors
from perdure.agents.agent import Agent
from perdure.agents.registry import Registry
from perdure.agents.tracebacks import raised
from perdure.errors import PerdureError
from perdure.worker.agent_worker import AgentWorker


def load(target: str) -> AgentWorker:
    """Return the worker for `module:name`.

    The name must refer to an Agent, a Registry, an AgentWorker, or a function without arguments
    that returns one of these.

    Raises:
        ConfigurationError: The module cannot be imported, or has no such object.
    """
    module, colon, name = target.partition(":")
    if not (module and colon and name):
        raise errors.ConfigurationError(
            f"{target!r} is not module:name; for an agent called `agent` in app.py it is app:agent"
        )
    app = _attribute(module, name)
    if callable(app) and not isinstance(app, Agent | Registry | AgentWorker):
        app = _called(target, app)
    if isinstance(app, AgentWorker):
        return app
    if isinstance(app, Agent | Registry):
        return AgentWorker(app)
    raise errors.ConfigurationError(
        f"{target} is a {type(app).__name__}; it must be an Agent, a Registry or an AgentWorker"
    )


def _attribute(module: str, name: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        imported = importlib.import_module(module)
    except Exception as error:
        raise errors.ConfigurationError(
            f"module {module!r} cannot be imported: {raised(error)}"
        ) from error
    if not hasattr(imported, name):
        raise errors.ConfigurationError(f"module {module!r} has nothing called {name!r}")
    return getattr(imported, name)


def _called(target: str, function: object) -> object:
    assert callable(function)
    try:
        return function()
    except PerdureError:
        raise
    except Exception as error:
        raise errors.ConfigurationError(f"{target}() failed: {raised(error)}") from error
