"""What callers may do, and the roles that stand for several permissions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, cast, get_args

from pydantic import BeforeValidator

Permission = Literal["read", "start", "control", "decide", "budget", "override"]
"""What a caller may do.

`read`: see turns, with their arguments, results and errors. `start`: start, fork and resume turns,
and begin sessions, schedules and batches. `control`: steer, cancel, interrupt, pause, close and
delete. `decide`: approve and deny calls. `budget`: set and add to limits, which override those of
the agents. `override`: choose the model of a fork, and the priority and the version of a turn.
"""
Role = Literal["viewer", "approver", "operator", "admin"]
PermissionOrRole = Literal[Permission, Role]

ALL: frozenset[Permission] = frozenset(get_args(Permission))
ROLES: Mapping[Role, frozenset[Permission]] = {
    "viewer": frozenset({"read"}),
    "approver": frozenset({"read", "decide"}),
    "operator": frozenset({"read", "start", "control", "decide"}),
    "admin": ALL,
}
"""The permissions of each role."""


def permissions_of(names: Iterable[PermissionOrRole]) -> frozenset[Permission]:
    """Return permissions, those of roles included."""
    found: set[Permission] = set()
    for name in names:
        found |= ROLES.get(cast("Role", name), {cast("Permission", name)})
    return frozenset(found)


def _expanded(names: object) -> object:
    """Return a list of a file with the permissions of its roles instead of them."""
    if not isinstance(names, (list, frozenset)):
        return names
    known = {*ALL, *ROLES}
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise ValueError(
                f"{name!r} is neither a permission ({', '.join(sorted(ALL))}) nor a role"
                f" ({', '.join(ROLES)})"
            )
    return permissions_of(names)


Granted = Annotated[frozenset[Permission], BeforeValidator(_expanded)]
"""Permissions in a file, where a role stands for its permissions."""
