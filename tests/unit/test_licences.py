"""What users install is under licences that let them use and pass it on."""

import re
from collections.abc import Iterator
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("http", "mcp", "otlp", "a2a", "agui", "pydantic-ai")
PERMISSIVE = re.compile(
    r"\b(MIT|BSD|Apache|ISC|PSF|Python Software Foundation|Unlicense|0BSD)\b|MPL 2\.0|MPL-2\.0"
)
"""MPL 2.0 covers changes of its own files only."""
COPYLEFT = re.compile(r"\b(A|L)?GPL|Affero|SSPL|BUSL|Commons Clause", re.IGNORECASE)


def closure(name: str, extras: tuple[str, ...] = ()) -> dict[str, metadata.Distribution]:
    """What is installed with a package and these extras, by name."""
    found: dict[str, metadata.Distribution] = {}
    pending = [(name, extra) for extra in ("", *extras)]
    seen = set(pending)
    while pending:
        package, extra = pending.pop()
        distribution = metadata.distribution(package)
        found[canonicalize_name(package)] = distribution
        for needed in needs(distribution, extra):
            further = [(needed.name, one) for one in ("", *sorted(needed.extras))]
            pending += [one for one in further if one not in seen]
            seen.update(further)
    return found


def needs(distribution: metadata.Distribution, extra: str) -> Iterator[Requirement]:
    """The requirements of a package with an extra, on this platform."""
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def licence(distribution: metadata.Distribution) -> str:
    """What a package says of its licence, in all the places that there are for that."""
    about = distribution.metadata.json
    classifiers = [one for one in about.get("classifier", ()) if one.startswith("License")]
    short = str(about.get("license", "")).strip().partition("\n")[0]
    return " | ".join(filter(None, [str(about.get("license_expression", "")), short, *classifiers]))


@pytest.mark.accepts("O34")
def test_packages_of_users_are_under_permissive_licences() -> None:
    """With every extra that a user may install."""
    installed = closure("perdure", EXTRAS)
    licences = {name: licence(one) for name, one in installed.items()}

    assert len(licences) > 40
    assert {name: text for name, text in licences.items() if not PERMISSIVE.search(text)} == {}
    assert {name: text for name, text in licences.items() if COPYLEFT.search(text)} == {}
