"""The lines of an audit: what is found in a file that somebody has changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from perdure import errors
from perdure.clients import AuditEntry
from perdure.clients.auditing.chain import (
    KEY,
    AuditQuery,
    Chain,
    key_from_environment,
    parsed,
    verify,
)

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
SECRET = "f" * 32


def written(key: str | None = None, *, count: int = 4, after: str | None = None) -> list[str]:
    """The lines of an audit of some approvals."""
    chain = Chain(key, None if after is None else parsed(after))
    lines = [chain.begin(AuditQuery("default", NOON, NOON + timedelta(hours=1), subject="p-1"))]
    for number in range(count):
        at = NOON + timedelta(minutes=number)
        entry = AuditEntry(time=at, act="approve", kind="turn", id=f"t-{number}", by="anna")
        lines.append(chain.add(entry))
    return [*lines, chain.end()]


def found(lines: list[str], key: str | None = None) -> list[tuple[int, str]]:
    """The numbers of the lines with a fault, and the faults."""
    return [(fault.line, fault.text) for fault in verify(lines, key)]


def renamed(line: str, by: str, *, with_hash: bool = False) -> str:
    """A line with another name, and if need be with the hash that it has without a key."""
    value = json.loads(line) | {"by": by}
    if with_hash:
        chain = Chain(None, {"n": value["n"] - 1, "hash": value["prev"]})
        fields = {name: value[name] for name in AuditEntry.model_fields if name in value}
        return chain.add(AuditEntry.model_validate(fields))
    return json.dumps(value)


@pytest.mark.accepts("G43")
@pytest.mark.parametrize("key", [None, SECRET])
def test_lines_as_they_were_written_have_no_fault(key: str | None) -> None:
    """With a key and without, of one audit, of none, and of one that goes on."""
    first = written(key)
    second = written(key, count=0, after=first[-1])

    assert found(first, key) == []
    assert found([*first, *second], key) == []
    assert found(second, key) == []
    assert [json.loads(line)["n"] for line in (*first, *second)] == list(range(8))


@pytest.mark.accepts("G43")
@pytest.mark.parametrize(
    ("change", "faults"),
    [
        (lambda lines: [*lines[:2], renamed(lines[2], "bo"), *lines[3:]], [(3, "it was changed")]),
        (
            lambda lines: [*lines[:2], renamed(lines[2], "bo", with_hash=True), *lines[3:]],
            [(4, "it does not follow the line before, or that was changed")],
        ),
        (
            lambda lines: [*lines[:2], *lines[3:]],
            [(3, "1 line before it missing"), (5, "it counts 4 lines, and there are 3")],
        ),
        (
            lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
            [
                (3, "it is out of order: its number is 3, after 1"),
                (4, "it is out of order: its number is 2, after 3"),
                (5, "it is out of order: its number is 4, after 2"),
            ],
        ),
        (
            lambda lines: [*lines[:3], lines[2], *lines[3:]],
            [(4, "it repeats line 3"), (7, "it counts 4 lines, and there are 5")],
        ),
        (lambda lines: lines[:-1], [(5, "the end of the audit is missing after it")]),
        (lambda lines: lines[:-2], [(4, "the end of the audit is missing after it")]),
        (lambda lines: lines[1:], [(1, "the first line of the audit is missing")]),
        (lambda lines: [*lines[:2], "{}", *lines[2:]], [(3, "this is no line of an audit")]),
        (
            lambda lines: [lines[0], lines[1][:-1] + ',"by":"bo"}', *lines[2:]],
            [
                (2, "this is no line of an audit"),
                (3, "1 line before it missing"),
                (6, "it counts 4 lines, and there are 3"),
            ],
        ),
        (lambda lines: [], [(1, "the audit is empty")]),
    ],
)
def test_each_change_is_found_with_its_line(
    change: Callable[[list[str]], list[str]], faults: list[tuple[int, str]]
) -> None:
    """Another name, also with the right hash; a line less, twice, or elsewhere; a cut end."""
    assert found(change(written())) == faults


@pytest.mark.accepts("G44")
def test_file_that_is_written_anew_is_found_with_a_key_alone() -> None:
    """Everybody can compute the hashes without a key, so such a file looks right."""
    original, forged = written(SECRET), written(count=3)

    assert found(forged) == []
    assert found(forged, SECRET) == [(1, f"the audit was made without the key, and {KEY} is set")]
    assert found(original) == [(1, f"the audit was made with a key; set {KEY} to it")]
    assert found(original, "e" * 32)[0] == (1, "it was changed")


@pytest.mark.accepts("G44")
def test_key_that_could_be_guessed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not shown, and an empty one is not taken for none."""
    monkeypatch.setenv(KEY, "sesame")
    with pytest.raises(errors.ConfigurationError, match="fewer than 16 characters") as short:
        key_from_environment()
    monkeypatch.setenv(KEY, "")
    with pytest.raises(errors.ConfigurationError):
        key_from_environment()
    monkeypatch.delenv(KEY)

    assert key_from_environment() is None
    assert "sesame" not in short.value.message


@pytest.mark.accepts("G43")
def test_number_that_nobody_could_count_to_is_a_fault() -> None:
    """It takes no time."""
    lines = written()
    lines[3] = json.dumps(json.loads(lines[3]) | {"n": 10**15})

    assert (4, "it was changed") in found(lines)
