"""The story of `CONTRIBUTING.md`."""

import tomllib

import pytest

from .conftest import Tell
from .pages import ROOT


@pytest.mark.slow  # the page runs pytest
async def test_layers_are_those_that_the_linter_checks(tell: Tell) -> None:
    """From the outside in; the vocabulary is one layer to a reader."""
    async with tell("CONTRIBUTING.md") as story:
        drawn = await story.up_to("Layers", "text")

    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    lines = [line.partition("(")[0].split() for line in drawn.text.splitlines()]
    assert [{name.removeprefix("perdure.") for name in line} for line in lines[:-1]] == [
        set(layer.split(" | ")) for layer in layers[:-1]
    ]
    assert (lines[-1], "agents" in layers[-1]) == (["the", "vocabulary"], True)
