"""An extension of griffe: signatures list the options of `**given: Unpack[…]`.

The default of an option that may be None is None. `mkdocs.yml` names this file.
"""

from __future__ import annotations

from typing import Any

import griffe


class Options(griffe.Extension):
    """Expands `Unpack[…]`."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Put the options of the family in place of `**given`, in overloads as well."""
        for one in (func, *(func.overloads or ())):
            _expand(one)


def _expand(func: griffe.Function) -> None:
    for parameter in list(func.parameters):
        found = parameter.annotation
        if parameter.kind is griffe.ParameterKind.var_keyword and isinstance(
            found, griffe.ExprSubscript
        ):
            del func.parameters[parameter.name]
            for one in func.modules_collection[found.slice.canonical_path].attributes.values():
                option = {
                    "annotation": one.annotation,
                    "kind": griffe.ParameterKind.keyword_only,
                    "default": "None" if str(one.annotation).endswith("| None") else "...",
                }
                func.parameters.add(griffe.Parameter(one.name, **option))
