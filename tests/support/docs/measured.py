"""The sections of `docs/proof.md` that benchmarks have measured, from the files that they keep."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..faulty_payments import COUNTS, counted

FOLDER = Path(__file__).parents[1] / "measured"
PAYMENTS, KILLS = FOLDER / "payments.json", FOLDER / "kills.json"

_PAYMENTS = """
## A payment while the service fails

`make -C benchmarks effects`: a model pays through Perdure in each of the SIXTEEN modes of [a
service that fails](testing.md#a-service-that-fails): those of LIMBO ([arXiv
2609.29095](https://arxiv.org/abs/2609.29095)), no fault, and cut connections. It tells what it was
told, pays again until that succeeds (blind), or reads back and pays again if there is nothing
(verify). The ledger of the service is the judge. It is the baseline for what is missing: a key for
the effect instead of the call, and a read-back that waits.

"""
_NOTES = """
*Overclaims*: the turn says that it was paid, and it was not, or twice. *Denied, but done*: it says
that nothing was paid, and something was. `stopped`: the tool would wait for ever, and Perdure stops
it. `call key`: the tool sends `ctx.idempotency_key`, which is another one for each call. `own key`:
the tool makes a key of the turn and the invoice. `409`: the service refuses a second payment.
`lag`: it lists a payment two minutes later.
"""
_KILLS = """
## The same kills for other systems

`make -C benchmarks peers-matrix`: an agent looks and books, charges, looks again and answers, in
four model calls and four effects. Its process is killed at MOMENTS moments, one in each job: in
the first call of the model, in the booking, in the charge, just after it, and in the last call of
the model. Another process has loaded everything, and takes over at once. Model and service are
outside, see everything, and judge. A kill that came too late is not counted, nor one of a job that
had repeated a call before it.

"""
_COLUMNS = """
*Duplicates*: effects that may not be repeated and were: a second charge, or a second booking
without the key of the first. *Unknown*: outcomes that the answer names as unknown. *Paid again*:
model calls beyond those that the job needs. *Goes on*: seconds until the next call after the kill,
median and slowest. Two cores were shared with other work, so these are some seconds too long for
everybody.
"""


def sections() -> Iterator[str]:
    """Yield the lines of all sections."""
    yield from _payments(_read(PAYMENTS))
    if KILLS.exists():  # a run of `peers-matrix` with --keep has written it
        yield from _kills(_read(KILLS))


def _read(file: Path) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return figures


def _payments(figures: Mapping[str, Any]) -> Iterator[str]:
    cases: dict[str, dict[str, list[str]]] = figures["cells"]
    modes = len(next(iter(cases.values())))
    yield _PAYMENTS.replace("SIXTEEN", str(modes))
    counts = {case: counted((did, says) for did, says in by.values()) for case, by in cases.items()}
    yield from _table(
        ["", *cases], ([name, *(by[name] for by in counts.values())] for name in COUNTS)
    )
    yield _NOTES
    yield f"\nMeasured on {figures['date']} with {_versions(figures)}.\n"


def _kills(figures: Mapping[str, Any]) -> Iterator[str]:
    rows: Sequence[dict[str, Any]] = figures["rows"]
    yield _KILLS.replace("MOMENTS", str(figures["moments"]))
    yield from _table(list(rows[0]), (row.values() for row in rows))
    yield _COLUMNS
    yield "\n| system | settings | what they are |\n|---|---|---|\n"
    ran = {(row["system"], row["settings"]) for row in rows}
    for (system, variant), text in SETTINGS.items():
        yield f"| {system} | {variant} | {text if (system, variant) in ran else NOT_RUN} |\n"
    yield "\nHow each could look better:\n\n"
    for system, text in BETTER.items():
        yield f"- **{system}**: {text}\n"
    yield f"\nMeasured on {figures['date']} with {_versions(figures)}.\n"


def _versions(figures: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in figures["versions"].items())


def _table(headings: Sequence[str], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}\n"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |\n"


NOT_RUN = "**not measured yet**"
SETTINGS = {
    ("perdure", "defaults"): "`perdure worker`, whose supervisor starts a killed process again",
    (
        "perdure",
        "no supervisor",
    ): "`AgentWorker` in a process of its own, as if the machine were lost",
    ("pydantic-ai", "defaults"): "`TemporalDurability()`: 60 s for an activity, a heartbeat for"
    " model calls alone, any number of attempts; tools send no key",
    (
        "pydantic-ai",
        "best",
    ): "heartbeats within 10 s everywhere, the id of the call as a key; `charge` has"
    " one attempt, and a lost one is told to the model as unknown, in ten lines of a tool that runs"
    " in the workflow",
    (
        "openai-agents",
        "defaults",
    ): "60 s for model calls and tools, any number of attempts; tools send no key",
    ("openai-agents", "best"): "as for pydantic-ai; the key is the id of the activity",
    (
        "langgraph",
        "defaults",
    ): "`create_agent` with a checkpointer; a person continues each thread after"
    " 10 s, since nothing else does; tools send no key",
    ("langgraph", "best"): '`durability="sync"`, the id of the call as a key; a process that starts'
    " continues each thread that is not at its end, in six lines of ours",
    (
        "dbos",
        "defaults",
    ): "pydantic-ai with `DBOSDurability()`, tools are steps; the next process has the"
    " executor id of the last one and continues its workflows when it starts; tools send no key",
    ("dbos", "best"): "the same with the id of the call as a key",
}
BETTER = {
    "perdure": "a charge that its service can repeat by key would be declared `idempotent`; then it"
    " runs again with the same key, and nothing stays unknown.",
    "pydantic-ai, openai-agents": "shorter timeouts than ours; a charge that its service knows by"
    " key needs no limit of attempts, and nothing stays unknown.",
    "langgraph": "a charge that its service knows by key is not doubled. Its Agent Server, which"
    " was not measured, has a queue for runs.",
    "dbos": "a charge that its service knows by key is not doubled, and one that is a row of the"
    " same PostgreSQL can be a transaction of DBOS, which commits with the step. Conductor, which"
    " was not measured, lets another process recover.",
}
