"""The distributions that users install: the wheel, and the source distribution that builds the same
wheel.

In the repository, four packages are symbolic links. A wheel has no links, so there they must be
real subpackages, and its only top-level package must be `perdure`: other distributions own names
such as `workflows`.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure.worker.dev import server_binary

ROOT = Path(__file__).parents[2]
ROOMS = ("activities", "clients", "worker", "workflows")
UNREACHABLE = re.compile(
    r"connection broken by|Failed to establish a new connection|Network is unreachable"
)
NEIGHBOUR = "llama-index-workflows"
"""It owns the top-level package `workflows`."""

LOOK = """
import importlib.metadata, json, workflows
import perdure, perdure.providers, perdure.clients, perdure.testing
import perdure.worker, perdure.workflows
print(json.dumps([
    perdure.workflows.AgentTurn.__module__,
    "Workflow" in dir(workflows),
    importlib.metadata.packages_distributions()["workflows"],
    importlib.metadata.packages_distributions()["perdure"],
]))
"""


WHERE = "import perdure; print(perdure.__file__)"


@dataclass(frozen=True)
class Built:
    """The built distributions, and the source that they were built from."""

    source: Path
    sdist: Path
    wheel: Path
    wheel_of_sdist: Path


def backend(call: str, source: Path, into: Path) -> Path:
    """Call the build backend in its own process, as pip and build do.

    Returns the file it made.
    """
    into.mkdir()
    code = f"import sys; from setuptools import build_meta; build_meta.{call}(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(into)],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (made,) = into.iterdir()
    return made


def copied(source: Path) -> Path:
    """Copy what the distributions are built from, and return the folder."""
    without = shutil.ignore_patterns("__pycache__")
    for folder in ("perdure", *ROOMS):
        shutil.copytree(ROOT / folder, source / folder, symlinks=True, ignore=without)
    for file in ("pyproject.toml", "setup.cfg", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    return source


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A copy of the source, its sdist, its wheel, and the wheel of the sdist."""
    here = tmp_path_factory.mktemp("packaging")
    source = copied(here / "source")
    sdist = backend("build_sdist", source, here / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(here / "unpacked", filter="data")
    (unpacked,) = (here / "unpacked").iterdir()
    return Built(
        source,
        sdist,
        backend("build_wheel", source, here / "wheel"),
        backend("build_wheel", unpacked, here / "again"),
    )


@pytest.mark.slow
def test_install_leaves_no_build_folder_in_a_clone(tmp_path: Path) -> None:
    """What is left of it is in folders that git ignores, beside the state of `perdure dev`."""
    source = copied(tmp_path / "source")
    before = {path.name for path in source.iterdir()}
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--target", str(tmp_path / "into"))
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "."],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert {path.name for path in source.iterdir()} - before == {".perdure", "perdure.egg-info"}


def contents(wheel: Path) -> dict[str, bytes]:
    """Every file of a wheel with its content."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.slow
def test_wheel_holds_perdure_and_nothing_else(built: Built) -> None:
    """No `workflows`, no `activities`, no `tests` at the top."""
    tops = {name.partition("/")[0] for name in contents(built.wheel)}

    assert {re.sub(r"-[\d.]+\.dist-info$", ".dist-info", top) for top in tops} == {
        "perdure",
        "perdure.dist-info",
    }


@pytest.mark.slow
def test_wheel_holds_every_file_of_the_package(built: Built) -> None:
    """A subpackage that pyproject.toml does not list would be missing only for users."""
    package = built.source / "perdure"
    files = {path for room in ROOMS for path in (package / room).rglob("*") if path.is_file()}
    files |= {path for path in package.rglob("*") if path.is_file()}
    files -= set((package / "clients/typescript").rglob("*"))  # a package of npm
    expected = {path.relative_to(built.source).as_posix(): path.read_bytes() for path in files}

    assert {
        name: content
        for name, content in contents(built.wheel).items()
        if name.startswith("perdure/")
    } == expected
    assert "perdure/py.typed" in expected


@pytest.mark.slow
def test_sdist_builds_the_same_wheel(built: Built) -> None:
    """It has folders instead of the links, so it can be unpacked anywhere."""
    with tarfile.open(built.sdist) as archive:
        links = [member.name for member in archive if not (member.isfile() or member.isdir())]

    assert links == []
    assert contents(built.wheel_of_sdist) == contents(built.wheel)


@pytest.mark.slow
def test_extras_and_versions_are_said(built: Built) -> None:
    """The metadata for pip and the index: extras, the oldest Python, and the command."""
    files = {
        name.rpartition("/")[2]: content.decode()
        for name, content in contents(built.wheel).items()
        if ".dist-info/" in name
    }

    assert set(re.findall(r"^Provides-Extra: (.*)$", files["METADATA"], re.MULTILINE)) >= {
        "embedded",
        "testing",
    }
    assert re.findall(r"^Requires-Python: (.*)$", files["METADATA"], re.MULTILINE) == [">=3.11"]
    assert "perdure = perdure.__main__:main" in files["entry_points.txt"]


@pytest.fixture(scope="session")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh environment with the wheel and the other distribution."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home / "venv")
    pins = home / "pins.txt"
    pins.write_text(
        "\n".join(
            re.findall(
                r"^[\w.-]+==[\w.]+",
                (ROOT / "requirements.lock").read_text(encoding="utf-8"),
                re.MULTILINE,
            )
        ),
        encoding="utf-8",
    )
    python = home / "venv/bin/python"
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
        "--retries=1",
        "--timeout=10",
        f"--constraint={pins}",
    ]
    # shared with this environment, because installing pip takes longer than everything else
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    done = subprocess.run(
        [*pip, *options, built.wheel, NEIGHBOUR], capture_output=True, text=True, check=False
    )
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, done.stderr
    return python.parent


@pytest.mark.slow
def test_wheel_lives_beside_a_distribution_that_owns_the_name_of_a_room(installed: Path) -> None:
    """Both can be imported."""
    done = subprocess.run(
        [installed / "python", "-I", "-c", LOOK], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout.strip()
        == f'["perdure.workflows.turn.agent_turn", true, ["{NEIGHBOUR}"], ["perdure"]]'
    )


@pytest.mark.slow
def test_command_of_the_wheel_runs(installed: Path, tmp_path: Path) -> None:
    """Outside of the repository, with nothing else on the path."""
    done = subprocess.run(
        [installed / "perdure", "--help"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "worker" in done.stdout


def alone(home: Path, distribution: Path) -> Path:
    """The `bin` of an empty environment in which a distribution is installed, without a network.

    A `.pth` file lets it find the packages that Perdure needs in this environment, after its own.
    Perdure itself is not found there if it is installed as editable, which is a `.pth` file too.
    """
    venv.create(home)
    (site,) = home.glob("lib/python*/site-packages")
    needs = dict.fromkeys(map(sysconfig.get_path, ("purelib", "platlib")))
    (site / "needs.pth").write_text("\n".join(needs), encoding="utf-8")
    options = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed")
    # pip of this environment, because installing pip takes longer than everything else
    pip = (sys.executable, "-m", "pip", "--python", str(home / "bin/python"), "install", *options)
    done = subprocess.run([*pip, str(distribution)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return home / "bin"


def version() -> str:
    """The version in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def first_program() -> str:
    """The first program of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.partition("## The first program")[2].split("```python\n")[1].partition("```")[0]


@pytest.mark.slow
@pytest.mark.accepts("P70")
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_first_program_runs_where_a_distribution_is_installed(
    built: Built, tmp_path: Path, kind: str
) -> None:
    """In an environment that has nothing but the distribution and what it needs."""
    folder = alone(tmp_path / "venv", getattr(built, kind))
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "first.py").write_text(first_program(), encoding="utf-8")
    environment = {**os.environ, server_binary.VARIABLE: str(server_binary.find().path)}
    printed = [
        subprocess.run(
            [str(folder / words[0]), *words[1:]],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for words in (("perdure", "--version"), ("python", "-c", WHERE), ("python", "first.py"))
    ]

    assert printed[0] == f"perdure {version()}\n"
    assert printed[1].startswith(str(tmp_path))
    assert "how-a-turn-runs.md" in printed[2]


@pytest.mark.accepts("P71")
def test_version_is_that_of_the_newest_release_in_the_changelog() -> None:
    """The command prints it."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## \[(\d[^\]]*)\] - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE)

    assert releases[:1] == [version()]


@pytest.mark.slow
@pytest.mark.accepts("P71")
def test_version_is_in_the_names_of_the_distributions(built: Built) -> None:
    """That of the wheel has no platform."""
    assert f"perdure-{version()}-py3-none-any.whl" == built.wheel.name
    assert f"perdure-{version()}.tar.gz" == built.sdist.name
