"""Compare docs/acceptance.md with the markers of the tests: which test covers which statement, and
which statements have no test yet.

`make acceptance` prints the list; `--check` only fails if a test names an id that is not in the
document.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
STATEMENT = re.compile(r"^- ([A-Z]\d+) (.*)$", re.MULTILINE)


def statements() -> dict[str, str]:
    """The statements of the document by id, in the document's order."""
    text = (ROOT / "docs/acceptance.md").read_text(encoding="utf-8")
    return {match[1]: match[2] for match in STATEMENT.finditer(text)}


def marked(path: Path) -> Iterator[tuple[str, str]]:
    """Ids, each with the tests of a file that are marked with it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
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
    known = statements()
    shown: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for accepted, test in marked(path):
            shown[accepted].append(test)
    unknown = {accepted: tests for accepted, tests in shown.items() if accepted not in known}
    for accepted, tests in unknown.items():
        print(f"{accepted} is not in docs/acceptance.md, named by {', '.join(tests)}")
    if "--check" not in sys.argv:
        for accepted, statement in known.items():
            print(f"{accepted:4} {statement}")
            for test in shown[accepted]:
                print(f"       {test}")
        missing = [accepted for accepted in known if not shown[accepted]]
        print(
            f"\n{len(known) - len(missing)} of {len(known)} statements are shown by a test. Not"
            f" yet: {' '.join(missing)}"
        )
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
