"""Run the code blocks of `CONTRIBUTING.md`."""

import re
import tomllib

import pytest

from ..support.docs.pages import ROOT
from .conftest import Tell


@pytest.mark.slow  # the page runs pytest
async def test_layers_are_those_that_the_linter_checks(tell: Tell) -> None:
    """From the outermost layer to the innermost, of the package and of the clients."""
    async with tell("CONTRIBUTING.md") as story:
        drawn = [await story.up_to("Layers", "text") for _ in range(2)]

    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
    layers = {one["containers"][0]: one["layers"] for one in contracts if one["type"] == "layers"}

    for block, container in zip(drawn, ("perdure", "perdure.clients"), strict=True):
        drawn_layers = [set(line.split()) for line in block.text.splitlines()]
        assert drawn_layers == [set(re.split(r" [|:] ", layer)) for layer in layers[container]]
