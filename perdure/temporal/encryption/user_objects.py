"""Loads what a variable of the environment names as `module:name`, without quoting its errors."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure import errors
from perdure.errors import PerdureError
from perdure.text import one_line

_WORDS = 300


def load(target: str, variable: str, *, example: str) -> Any:
    """Return the object that a variable names.

    Args:
        target: The value of the variable.
        variable: Its name, for errors.
        example: What `module:name` may be, as a sentence.

    Raises:
        ConfigurationError: It cannot be imported.
    """
    module, _, name = target.partition(":")
    if not (module and name):
        raise errors.ConfigurationError(f"{variable}={target!r} is not module:name; {example}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    imported = _tried(
        f"the module {module!r} of {variable} cannot be imported",
        lambda: importlib.import_module(module),
    )
    if not hasattr(imported, name):
        raise errors.ConfigurationError(
            f"{variable}={target}: the module {module!r} has no attribute {name!r}"
        )
    return getattr(imported, name)


def called(function: Callable[[], Any], target: str, variable: str) -> Any:
    """Return what a function of the user returns.

    Raises:
        ConfigurationError: It raised an exception.
    """
    return _tried(f"{target}() of {variable} failed", function)


def _tried(problem: str, load: Callable[[], object]) -> object:
    """Return the result of `load`.

    As the exception may quote a key, only its class and place are reported, and it is not the
    cause of the error.

    Raises:
        ConfigurationError: `load` raised an exception.
    """
    try:
        return load()
    except PerdureError:
        raise
    except Exception as error:  # noqa: BLE001 - from the user's module
        cause = _without_words(error)
    raise errors.ConfigurationError(f"{problem}: {cause}")


def _without_words(error: Exception) -> str:
    if isinstance(error, ImportError):  # it names a module
        return one_line(f"{type(error).__name__}: {error}", _WORDS)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{type(error).__name__} in {last.filename}, line {last.lineno}; its message may quote a"
        " key, so it is not shown"
    )
