"""The sections of `docs/proof.md` that benchmarks have measured, from the files that they keep."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "measured"
EFFECTS, KILLS = FOLDER / "effects.json", FOLDER / "kills.json"

_EFFECTS = """
## Effects while the service fails

`make bench-effects`: a model has one of TEMPLATES tasks, such as a payment, a booking or an order
with lines, and the service fails in one of the modes of [a service that
fails](testing.md#a-service-that-fails). The modes and the measures are those of LIMBO ([arXiv
2609.29095](https://arxiv.org/abs/2609.29095)), and EPISODES tasks and modes fit together, as many
as there; the tasks are our own. The ledger of the service is the judge. After an error the model
calls again at once (blind), says what it was told (tell), reads back and calls again for what is
missing (careful), or does so after a while (patient). Each cell has a number for each: BEHAVIOURS.

"""
_NOTES = """
*Overclaims*: the model says that all was done, and it was not, or twice. *By the outcome*: episodes
in which a result says `done` or `verified`, and the ledger has nothing. *Denied, but done*:
episodes in which a result says that a call failed, and it took effect. *Repeated*: effects beyond
the calls of the model.

`no key`: services ignore keys. `key of the call`: services honour keys, and the tool sends
`ctx.idempotency_key`. `key of the effect`: the tool has `effect=`, and sends `ctx.effect_key`; the
loop makes such a key by hand. `read back`: services ignore keys, and the tool has `effect=`,
`verify=` and `settle=`. `both`: the last two.

Nothing reaches all EPISODES: in `outage` (12) the service never does anything, and without keys
nobody can prevent that a request which is delivered twice takes effect twice (7). So the ceiling
is 131 with keys, and 124 without. A request that takes effect after the time to settle is not found
(`timeout_late_tail`). Times are divided by 30. The rows of the loop and of Perdure were measured on
two quiet cores; `careful` and `timeout_late_tail` depend on how fast a model reads back.
"""
_BY_MODE = """
Exactly-once success by mode:

"""
_OTHERS_BY_MODE = """
The same for other frameworks:

"""
_PEERS = """
`make -C benchmarks effects-peers` has measured the other frameworks: the same model, tasks, service
and ledger, in the environment of `make -C benchmarks peers`. Services honour keys in `key of the
call` alone.

"""
_STOPPED = """
An episode that can be tried without end was stopped after 60 s, which is half an hour in undivided
times, and its call counts as one without a result, which denies nothing. There the model sees no
error, so that all behaviours are the same, and only blind was run; *denied, but done* are calls
with a second effect that no result mentions. An error that ends the run is no claim of the model.

Perdure repeats a call with its key where no answer came, and leaves an error that the service has
answered, such as 429 or 503, to the model. So with `tell` more is done where a framework repeats
the call after any error; with Perdure, the tool itself would have to. What `careful` finds depends
on how soon it reads back, since an effect may be late, or listed a second later. These rows were
measured on a busy machine, and those of Perdure on a quiet one: compare the other behaviours.

How each could look better:

- **all**: a key made from the meaning of the call, by hand, also covers a call that the model
  repeats after the last attempt. A tool that waits and reads back by itself before it tells of an
  error would do what `read back` does; none of them has an option for it.
- **pydantic-ai**: a tool that raises `ModelRetry` for a refusal tells the model without leaving its
  activity, and a `retry_policy` ends the attempts, which then end the run.
- **pydantic-ai, openai-agents**: a tool that raises a non-retryable error for a refusal (400, 409)
  ends the attempts of `defaults`, also after a kill. Heartbeats, or a shorter timeout, let another
  worker go on sooner; that changes no count.
- **langgraph, dbos**: a tool that first stores that its call begins, in a task or a step of its
  own, can find that after a kill, and tell the model of an unknown outcome instead of calling
  again. That would be one attempt, as on Temporal; it was not measured.
- **langgraph**: a caller who invokes the thread again after an error that ended the run repeats the
  call, which helps where the service has done nothing, and doubles the effect where it has.
"""
AFTER_KILLS = ("exactly once", "success", "duplicates", "overclaims", "unknown named")
_KILLED = """
The 12 tasks with a `kill -9` of the process before, in or after the call. In the call, the service
has made the effect and not answered. Perdure's supervisor starts another process; a loop begins
again in it, since nothing is left of it:

"""
NOT_LANDED = "not landed"
_OTHERS_KILLED = """
The same kills on other frameworks, in the settings that are described below:

"""
_GOES_ON = """
`make -C benchmarks effects-peers ARGS=--kills` has run these: services and ledgers are in another
process than the framework with the model and the tools. All jobs of a row are in their first call
when their process is killed, once. Another one goes on as the framework's documentation says: on
Temporal it is another worker, and a call that was cut off is noticed by the timeout of its
activity, 60 s; DBOS continues what is pending when it is launched; a thread of LangGraph is invoked
again without an input, which continues it from its last checkpoint. What the model knows is what
the framework shows it then.

*No end*: jobs that had not ended 180 s after the other process was ready. *Error*: an error ended
the run, here the refusal of an effect that was there (409). *Not landed*: jobs that were not in
their first call when their process was gone, by the ledger of the service and a note of the call;
they are in no other column.

By default all four make a call again that was cut off. In 7 tasks the service makes 15 effects a
second time, and in the other 5 it refuses. `one attempt` is one on Temporal alone: a step of DBOS
and a task of LangGraph that was cut off runs again, whatever its retries. With keys, which are the
same after the kill, nothing is made twice on any of them. All rows were run twice on a busy
machine, with the same figures.

LangGraph's `defaults` save in the background. As all jobs of a row are on one SQLite file here,
both libraries were left alone until nothing had been written for 3 s, and then killed. In a run
without that wait, 129 of 144 threads had no checkpoint yet, and could not be continued
(`EmptyInputError`).
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
    yield from _effects(_read(EFFECTS))
    if KILLS.exists():  # a run of `peers-matrix` with --keep has written it
        yield from _kills(_read(KILLS))


def _read(file: Path) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return figures


def _effects(figures: Mapping[str, Any]) -> Iterator[str]:
    texts = {
        "TEMPLATES": figures["templates"],
        "EPISODES": figures["episodes"],
        "BEHAVIOURS": " / ".join(figures["behaviours"]),
    }
    yield _filled(_EFFECTS, texts)
    yield from effect_tables(figures, notes=_filled(_NOTES, texts))
    if "peers killed" in figures:  # a run of `effects-peers` with --kills and --keep has written it
        yield _GOES_ON
    yield f"\nMeasured on {figures['date']} with {_versions(figures)}.\n"
    if peers := figures.get("peers"):  # a run of `effects-peers` with --keep has written it
        yield from _peers(peers, figures["ends"])
        killed = figures.get("peers killed", peers)
        if killed != peers:
            yield f"\nTheir kills were measured on {killed['date']} with {_versions(killed)}.\n"


def _peers(
    figures: Mapping[str, Any], ends: Mapping[str, Mapping[str, Sequence[int]]]
) -> Iterator[str]:
    yield _PEERS
    headings = [*next(iter(ends.values()))]
    yield from _table(
        ["", "what is set", *headings],
        (
            [
                name,
                text,
                *(_each(ends[name][each]) if name in ends else NOT_RUN for each in headings),
            ]
            for name, text in PEER_SETTINGS.items()
        ),
    )
    yield _STOPPED
    yield f"\nMeasured on {figures['date']} with {_versions(figures)}.\n"


def effect_tables(figures: Mapping[str, Any], *, notes: str = "\n") -> Iterator[str]:
    """Yield the lines of the tables about effects, with `notes` below the first one."""
    rows: dict[str, dict[str, list[int]]] = figures["rows"]
    if rows:
        yield from _measures(rows)
        yield notes
    others = set(figures.get("ends", ()))
    modes: dict[str, dict[str, list[int]]] = figures["modes"]
    ours = {name: of for name, of in modes.items() if name not in others}
    if ours:
        yield _BY_MODE
        yield from _by_mode(ours)
    if others:
        yield _OTHERS_BY_MODE
        yield from _by_mode({name: of for name, of in modes.items() if name in others})
    yield from _after_kills(figures["kills"])


def _after_kills(kills: Mapping[str, Mapping[str, Sequence[int]]]) -> Iterator[str]:
    others = {name: of for name, of in kills.items() if NOT_LANDED in of}
    if ours := {name: of for name, of in kills.items() if name not in others}:
        yield _KILLED
        yield from _measures(
            {name: {one: of[one] for one in AFTER_KILLS} for name, of in ours.items()}
        )
    if others:
        yield _OTHERS_KILLED
        yield from _measures(others)


def _measures(rows: Mapping[str, Mapping[str, Sequence[int]]]) -> Iterator[str]:
    headings = [*next(iter(rows.values()))]
    yield from _table(
        ["", *headings],
        ([name, *(_each(of[each]) for each in headings)] for name, of in rows.items()),
    )


def _by_mode(modes: Mapping[str, Mapping[str, Sequence[int]]]) -> Iterator[str]:
    yield from _table(
        ["", *modes],
        (
            [mode, *(_each(of[mode]) for of in modes.values())]
            for mode in next(iter(modes.values()))
        ),
    )


def _filled(text: str, values: Mapping[str, object]) -> str:
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text


def _each(numbers: Sequence[int]) -> str:
    """The numbers of all behaviours; one if they are equal."""
    return str(numbers[0]) if len({*numbers}) == 1 else " / ".join(map(str, numbers))


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
_IN_WORKFLOW = (
    "the tool that makes effects runs in the workflow and makes its activity itself, in ten lines;"
    " the model reads the last error"
)
_RETRIED = "four attempts with one key, 0.4 s, 0.8 s and 1.6 s apart"
PEER_SETTINGS = {
    "pydantic-ai, defaults": "`TemporalDurability()`: any number of attempts; tools send no key",
    "pydantic-ai, one attempt": f"{_IN_WORKFLOW}, and that an outcome is unknown",
    "pydantic-ai, key of the call": f"the same with {_RETRIED}, the ids of the run and the"
    " activity; a refusal (400, 409) is not repeated",
    "openai-agents, defaults": "`activity_as_tool`: any number of attempts; tools send no key",
    "openai-agents, one attempt": "as for pydantic-ai",
    "openai-agents, key of the call": "as for pydantic-ai",
    "langgraph, defaults": "`create_agent` with a checkpointer: an error of a tool ends the run",
    "langgraph, one attempt": '`durability="sync"`, and `ToolRetryMiddleware` without retries,'
    " whose text the model reads",
    "langgraph, key of the call": f"the same with {_RETRIED}, the ids of the thread and the call",
    "dbos, defaults": "pydantic-ai with `DBOSDurability()`, tools are steps: an error of a tool"
    " ends the run",
    "dbos, one attempt": "the tool that makes effects is a function around a step; the model reads"
    " the error",
    "dbos, key of the call": f"the same with a step of {_RETRIED}, the ids of the workflow and the"
    " call",
}
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
