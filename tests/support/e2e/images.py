"""The image of deploy/, built and run by whatever is here: Docker, Podman, or Buildah.

Buildah needs neither a service nor a registry of images: if the base image cannot be fetched, one
is made of Debian's packages by mmdebstrap, with the Python of the same Debian.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCKERFILE = ROOT / "deploy/Dockerfile"
TAG = "localhost/perdure-worker:checked"
_PACKAGES = "python3,python3-venv,python3-pip,python-is-python3,ca-certificates"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_MANAGED = "rm -f $1/usr/lib/python3*/EXTERNALLY-MANAGED"
"""The official image has a Python of its own, in which pip may install."""


class NoEngineError(Exception):
    """Nothing here can build an image."""


def engine() -> str:
    """The first of the engines that work here.

    Raises:
        NoEngineError: There is none.
    """
    for name, asked in (("docker", "info"), ("podman", "info"), ("buildah", "images")):
        if (
            shutil.which(name)
            and not subprocess.run(
                [name, asked], env=_environment(), capture_output=True, check=False
            ).returncode
        ):
            return name
    raise NoEngineError("neither Docker nor Podman nor Buildah works here")


def build(engine: str) -> None:
    """Build the image of deploy/ as it is."""
    if engine != "buildah":
        _run(engine, "build", "--file", str(DOCKERFILE), "--tag", TAG, str(ROOT))
        return
    [base] = set(re.findall(r"^FROM (\S+)", DOCKERFILE.read_text("utf-8"), re.MULTILINE))
    _have_base(f"docker.io/library/{base}")
    trusted = ["--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"] if _CERTIFICATES.exists() else []
    network = ["--network", "host", "--pull-never", *trusted]
    _run("buildah", "bud", *network, "--file", str(DOCKERFILE), "--tag", TAG, str(ROOT))


@contextlib.contextmanager
def container(engine: str, folder: Path, settings: Mapping[str, str]) -> Iterator[Container]:
    """A container of the image on the network of this machine, with a folder as /app."""
    variables = [f"--env={name}={value}" for name, value in settings.items()]
    volume = f"--volume={folder}:/app:ro"
    if engine != "buildah":
        name = f"perdure-{os.getpid()}"
        yield Container(
            [engine, "run", "--rm", "--name", name, "--network=host", volume, *variables, TAG],
            inside=[engine, "exec", name],
        )
        return
    name = _run("buildah", "from", "--pull-never", TAG).strip()
    try:
        inside = ["buildah", "run", "--user", "10001:10001", volume, *variables, name, "--"]
        yield Container([*inside, "perdure", "worker"], inside=inside)
    finally:
        _run("buildah", "rm", name)


class Container:
    """A container that is started once.

    Attributes:
        said: What the worker has written, once it has ended.
    """

    def __init__(self, command: Sequence[str], *, inside: Sequence[str]) -> None:
        self._command = command
        self._inside = inside
        self.said = ""

    @contextlib.contextmanager
    def worker(self, app: str) -> Iterator[subprocess.Popen[str]]:
        """The worker of this `module:name`; it is killed at the end if it is still there."""
        process = subprocess.Popen(
            [*self._command, app],
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            self.said, _ = process.communicate()

    def run(self, *command: str) -> str:
        """Run a command beside the worker, and return what it wrote."""
        return _run(*self._inside, *command)


def terminate(process: subprocess.Popen[str]) -> int:
    """Send SIGTERM to the first process of a container, and return the exit code of the engine."""
    for pid in _descendants(process.pid):
        with contextlib.suppress(OSError, IndexError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"python" in command[0] and command[1].endswith(b"/perdure"):
                os.kill(pid, signal.SIGTERM)
                return process.wait(timeout=60)
    process.send_signal(signal.SIGTERM)  # Docker and Podman pass it on
    return process.wait(timeout=60)


def _descendants(pid: int) -> Iterator[int]:
    """The processes below this one, the nearest first."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    for child in [int(one) for thread in threads for one in thread.read_text("utf-8").split()]:
        yield child
        with contextlib.suppress(OSError):
            yield from _descendants(child)


def _have_base(base: str) -> None:
    """Fetch the base image, or make one of Debian's packages."""
    known = subprocess.run(
        ["buildah", "inspect", "--type", "image", base],
        env=_environment(),
        capture_output=True,
        check=False,
    )
    if not known.returncode:
        return
    fetched = subprocess.run(
        ["buildah", "pull", "--quiet", base], env=_environment(), capture_output=True, check=False
    )
    if not fetched.returncode:
        return
    debian = base.rpartition("-")[2]
    with tempfile.TemporaryDirectory(prefix="perdure-base-") as folder:
        archive = f"{folder}/base.tar"
        hook = f"--customize-hook={_MANAGED}"
        _run("mmdebstrap", "--variant=minbase", f"--include={_PACKAGES}", hook, debian, archive)
        name = _run("buildah", "from", "scratch").strip()
        _run("buildah", "add", "--quiet", name, archive, "/")
        _run("buildah", "commit", "--quiet", name, base)
        _run("buildah", "rm", name)


def _environment() -> dict[str, str]:
    """The environment of an engine: Buildah without namespaces and mounts of its own."""
    return {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}


def _run(*command: str) -> str:
    done = subprocess.run(
        command, env=_environment(), capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout
