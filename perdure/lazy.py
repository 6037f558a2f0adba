"""Packages whose public names are imported at their first use, so that a command does not wait for what it does not need."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence


def public(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """A `__getattr__` for `package`.

    Args:
        package: Its name.
        modules: The public names by the modules that define them.
    """
    where = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> object:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(where[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
