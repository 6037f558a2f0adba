"""Public names that are imported at their first use, so that `perdure --help` is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence


def public(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of `package`.

    Modules are imported by `__import__`, as the `import` statement does, because Temporal's sandbox
    replaces that: a workflow gets the modules of its worker, not copies.

    Args:
        package: Its name.
        modules: The public names by the modules that define them.
    """
    where = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> object:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(__import__(where[name], fromlist=[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *where})

    return find, names
