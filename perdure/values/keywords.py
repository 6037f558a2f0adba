"""Keyword options that several functions share, declared once as a `TypedDict`.

Type checkers and editors read the options from `**options: Unpack[Family]` (PEP 692). At run time
such a function accepts any keyword: `check` refuses unknown keywords, and `shows` makes `help` list
the options of the family.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class _Omitted:
    """The default of an option whose absence is explained in its documentation."""

    def __repr__(self) -> str:
        return "..."


def check(subject: str, options: Mapping[str, object], family: type) -> None:
    """Refuse options that are not of the family.

    Raises:
        TypeError: There is no option of this name, as for any other function.
    """
    known = family.__annotations__
    for name in options.keys() - known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise TypeError(f"{subject} has no option {name!r}; {hint}")


def shows(family: type, defaults: Mapping[str, object] | None = None) -> Callable[[F], F]:
    """Make the signature of a function list the options of the family instead of `**options`."""
    values = defaults or {}
    types = {
        name: getattr(hint, "__forward_arg__", hint)
        for name, hint in family.__annotations__.items()
    }

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        named = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        options = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=values.get(name, _Omitted()),
                annotation=hint,
            )
            for name, hint in types.items()
        ]
        vars(function)["__signature__"] = signature.replace(parameters=[*named, *options])
        return function

    return decorate
