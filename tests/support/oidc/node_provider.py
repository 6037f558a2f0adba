"""`oidc-provider` for Node.js, a certified identity provider, as a process."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PACKAGE = HERE.parents[2] / "build/oidc-provider/node_modules/oidc-provider"
SECRET = "a secret of the page"


@contextlib.contextmanager
def node_provider(gateway: str, port: int, algorithm: str = "RS256") -> Iterator[str]:
    """The issuer of a provider that runs during the block; the test is skipped without it."""
    node = shutil.which("node")
    if node is None or not PACKAGE.exists():
        pytest.skip("make oidc-provider installs it")
    process = subprocess.Popen(
        [node, str(HERE / "provider.mjs")],
        env={
            "PATH": os.environ["PATH"],
            "PACKAGE": str(PACKAGE),
            "GATEWAY": gateway,
            "PORT": str(port),
            "ALGORITHM": algorithm,
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()
