"""Compare docs/acceptance.md with the markers of the tests: which test covers which statement, and
which statements have no test yet.

`make acceptance` prints the list; `--check` only fails if a test names an id that is not in the
document, if two statements have the same id or name, or if a statement has no name.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
STATEMENT = re.compile(r"^- ([A-Z]\d+) (?:`([a-z0-9-]+\.[a-z0-9-]+)` )?(.*)$", re.MULTILINE)


class Statement(NamedTuple):
    """A statement of the document. `name` says what it is about; empty if it is missing."""

    id: str
    name: str
    text: str


def statements() -> list[Statement]:
    """The statements of the document, in its order."""
    text = (ROOT / "docs/acceptance.md").read_text(encoding="utf-8")
    return [Statement(*found) for found in STATEMENT.findall(text)]


def mistakes(found: list[Statement]) -> Iterator[str]:
    """What is wrong with the ids and the names of statements."""
    for accepted, count in Counter(statement.id for statement in found).items():
        if count > 1:
            yield f"{accepted} is the id of several statements in docs/acceptance.md"
    for name, count in Counter(statement.name for statement in found).items():
        if name and count > 1:
            yield f"{name} is the name of several statements in docs/acceptance.md"
    for statement in found:
        if not statement.name:
            yield f"{statement.id} has no name, such as `fork.prefix`, in docs/acceptance.md"


def marked(path: Path) -> Iterator[tuple[str, str]]:
    """Ids, each with the tests and the classes of tests of a file that are marked with it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            if (
                isinstance(decorator, ast.Call)
                and ast.unparse(decorator.func) == "pytest.mark.accepts"
            ):
                yield from (
                    (str(ast.literal_eval(arg)), f"{path.relative_to(ROOT)}::{node.name}")
                    for arg in decorator.args
                )


def main() -> int:
    found = statements()
    known = {statement.id: statement for statement in found}
    wrong = list(mistakes(found))
    for mistake in wrong:
        print(mistake)
    shown: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for accepted, test in marked(path):
            shown[accepted].append(test)
    unknown = {accepted: tests for accepted, tests in shown.items() if accepted not in known}
    for accepted, tests in unknown.items():
        print(f"{accepted} is not in docs/acceptance.md, named by {', '.join(tests)}")
    if "--check" not in sys.argv:
        for accepted, statement in known.items():
            print(f"{accepted:4} {statement.name}: {statement.text}")
            for test in shown[accepted]:
                print(f"       {test}")
        missing = [accepted for accepted in known if not shown[accepted]]
        print(
            f"\n{len(known) - len(missing)} of {len(known)} statements are shown by a test. Not"
            f" yet: {' '.join(missing)}"
        )
    return 1 if unknown or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
