"""The table of bad inputs: the input, its source, and its outcome.

`python -m tests.support.bad_input.table` writes it to `docs/bad-input.md`.
"""

from __future__ import annotations

from pathlib import Path

from .bench import BadInput
from .calls_and_tools import MODELS, PARTS
from .replies import REPLIES
from .requests import REQUESTS

PAGE = Path(__file__).parents[3] / "docs/bad-input.md"

CATALOGUE: list[BadInput] = sorted(
    [*REPLIES, *REQUESTS, *MODELS, *PARTS], key=lambda row: row.number
)

HEAD = f"""# Bad input

A bad input ends in a typed error or in an error result that the model reads, or the turn goes on
without the bad part. No other turn is affected. This takes seconds, unless a model is asked again.
This page lists the {len(CATALOGUE)} kinds of bad input that the tests try, and the outcome of each.

The tests use a real worker and a real Temporal server, and try several inputs at once. Other \
turns run beside them on the same worker.
They complete, and they make no more model calls than usual. No workflow task fails. Provider \
replies, rows 1 to 34, are tried with all
three APIs.

*The turn fails* means that the error has the report of the turn. *After its retries* means that the
model is asked again as the turn's
[ModelRetryPolicy](model-failures.md#when-a-provider-is-down-retries-with-backoff) says: while its
time budget lasts, or for 30 minutes without one, unless you set another policy. The tests set
one that asks once more. *After a second attempt* means that the model is asked once more, whatever
the policy says. *The caller is refused* means that nothing was started or changed.
[Errors](errors.md) says what each code means and what to do about it. `make bad-input` runs all \
rows and writes this page.

| # | from | input | what happens |
|---|---|---|---|
"""


def page() -> str:
    """The page of the documentation."""
    rows = (f"| {row.number} | {row.source} | {row.words} | {row.outcome} |\n" for row in CATALOGUE)
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
