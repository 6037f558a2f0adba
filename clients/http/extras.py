"""The operations of protocols whose packages are extras."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from perdure.clients.http.operations import AnyOperation


def of_extra(module: str, *, needs: str) -> tuple[AnyOperation, ...]:
    """Return the operations of a module of this package.

    There are none if the package that it needs is not installed.
    """
    if find_spec(needs) is None:
        return ()
    operations: tuple[AnyOperation, ...] = import_module(f"{__package__}.{module}").OPERATIONS
    return operations
