"""Compare docs/acceptance.md with the markers of the tests: which test covers which statement, and
which statements have no test yet.

`make acceptance` prints the list; `--check` only fails if a test names an id that is not in the
document, or if two statements have the same id.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
STATEMENT = re.compile(r"^- ([A-Z]\d+) (.*)$", re.MULTILINE)


def statements() -> list[tuple[str, str]]:
    """The ids and the statements of the document, in its order."""
    text = (ROOT / "docs/acceptance.md").read_text(encoding="utf-8")
    return STATEMENT.findall(text)


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
    found = statements()
    known = dict(found)
    twice = [accepted for accepted, count in Counter(one for one, _ in found).items() if count > 1]
    for accepted in twice:
        print(f"{accepted} is the id of several statements in docs/acceptance.md")
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
    return 1 if unknown or twice else 0


if __name__ == "__main__":
    sys.exit(main())
