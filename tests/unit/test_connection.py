"""Temporal's environment variables, and errors that never quote their values."""

import os
from pathlib import Path

import pytest

from perdure import errors
from perdure.temporal.connect import connect


@pytest.mark.accepts("G2")
@pytest.mark.parametrize("variable", ["TEMPORAL_API_KEY", "TEMPORAL_TLS_CLIENT_KEY_DATA"])
async def test_key_that_is_not_utf_8_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """The error names the variable; Temporal's own quotes the value."""
    monkeypatch.setenv(variable, os.fsdecode(b"planted-\xe9"))
    with pytest.raises(errors.ConfigurationError, match=variable) as caught:
        await connect("127.0.0.1:1", timeout_s=1)

    assert "planted" not in f"{caught.value.message} {caught.value.__cause__!r}"


@pytest.mark.accepts("G2")
async def test_key_with_a_line_break_is_refused_without_showing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Like the key of a provider."""
    monkeypatch.setenv("TEMPORAL_API_KEY", "planted\n")
    with pytest.raises(errors.ConfigurationError, match="TEMPORAL_API_KEY") as caught:
        await connect("127.0.0.1:1", timeout_s=1)

    assert "planted" not in caught.value.message


async def test_file_that_cannot_be_read_is_not_quoted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error has the line and column, but not the content."""
    (tmp_path / "temporal.toml").write_text(
        "[profile.default]\napi_key = planted\n", encoding="utf-8"
    )
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "temporal.toml"))
    with pytest.raises(errors.ConfigurationError, match="line 2, column 11") as caught:
        await connect("127.0.0.1:1", timeout_s=1)

    assert "planted" not in f"{caught.value.message} {caught.value.__cause__!r}"
