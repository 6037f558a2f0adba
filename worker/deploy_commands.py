"""The commands `perdure deploy …`: which version of the workers gets new work, and what stays.

Like all commands, they import their modules when they run, so that the help is quick.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from perdure.clients.cli import options
from perdure.clients.cli.common import Display, connected
from perdure.clients.cli.exits import DONE, FAILED
from perdure.clients.cli.group import Command, FirstSentence, examples

if TYPE_CHECKING:
    from perdure.worker.deploying.versions import Deployment

_LAST = 200
_WAIT = timedelta(minutes=1)


class DeployGroup(FirstSentence, click.Group):
    """The commands for deployments."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order in which they were added."""
        return list(self.commands)


_DEPLOYMENT = options.together(
    options.temporal(
        "--deployment",
        metavar="NAME",
        envvar="PERDURE_DEPLOYMENT",
        help="The deployment (default: PERDURE_DEPLOYMENT, or the only one).",
    ),
    options.ADDRESS,
)
_BUILD: options.Decorator[Any] = click.argument(
    "build", metavar="BUILD", help="The build id of a version."
)
_WAITS: options.Decorator[Any] = click.option(
    "--wait",
    type=options.Duration(),
    default="1m",
    metavar="TIME",
    help="How long to wait until its workers poll (default: 1m).",
)


@click.group(cls=DeployGroup, epilog=examples("perdure deploy status", "perdure deploy promote v2"))
def deploy() -> None:
    """Release versions of the workers, and roll back.

    A versioned worker has PERDURE_DEPLOYMENT and PERDURE_BUILD_ID. What it begins stays with its
    build until it moves on in a new run.
    """


async def _found(address: str | None, name: str | None) -> Deployment:
    from perdure.worker.deploying.versions import Deployment

    return await Deployment.found((await connected(address)).temporal, name)


@deploy.command(epilog=examples("perdure deploy status", "perdure deploy status --json"))
@options.json_lines("Print a line of JSON for each version.")
@_DEPLOYMENT
async def status(deployment: str | None, as_json: bool, address: str | None) -> int:
    """Show the versions of a deployment: which gets new work, and what is pinned to each."""
    from perdure.clients.cli.drawing import json_lines
    from perdure.worker.deploying import drawing

    versions = await (await _found(address, deployment)).versions()
    if as_json:
        for version in versions:
            json_lines.tell(version)
    else:
        drawing.versions(versions)
    return DONE


@deploy.command(epilog=examples("perdure deploy promote v2", "perdure deploy promote v2 --wait 5m"))
@_BUILD
@_WAITS
@options.json_lines("Print the versions before and now as a line of JSON.")
@_DEPLOYMENT
async def promote(
    build: str, wait: timedelta, deployment: str | None, as_json: bool, address: str | None
) -> int:
    """Give all new work to a version.

    It waits until workers of the version poll, and checks that a workflow gets to them.
    """
    from perdure.worker.deploying import drawing, routing

    found = await _found(address, deployment)
    before = await routing.promote(found, build, wait, _note)
    return _promoted(found, Display(as_json), build, before, drawing.promoted(build, before))


@deploy.command(epilog=examples("perdure deploy ramp v2 10", "perdure deploy ramp v2 0"))
@_BUILD
@click.argument(
    "percent", type=click.FloatRange(0, 100), help="The part of the new work, 0 to 100."
)
@_WAITS
@options.json_lines("Print the version and its part as a line of JSON.")
@_DEPLOYMENT
async def ramp(
    build: str,
    percent: float,
    wait: timedelta,
    deployment: str | None,
    as_json: bool,
    address: str | None,
) -> int:
    """Give a part of the new work to a version; 0 ends that."""
    from perdure.worker.deploying import routing

    found = await _found(address, deployment)
    await routing.ramp(found, build, percent, wait, _note)
    value = {"deployment": found.name, "build_id": build, "percent": percent}
    text = f"{build} gets {percent:g} % of the new work" if percent else "the ramp is over"
    return Display(as_json).report(value, text)


@deploy.command(
    epilog=examples(
        "perdure deploy drain v1",
        "perdure deploy drain v1 --timeout 10m",
        "perdure deploy drain v1 --override",
    )
)
@_BUILD
@click.option(
    "--timeout",
    type=options.Duration(),
    metavar="TIME",
    help="Give up after this time, with exit code 1 (default: never).",
)
@click.option(
    "--override",
    is_flag=True,
    help="Move what cannot move on by itself in the middle of its run, if it replays on this code.",
)
@options.json_lines("Print how far it is as lines of JSON.")
@_DEPLOYMENT
async def drain(
    build: str,
    timeout: timedelta | None,
    override: bool,
    deployment: str | None,
    as_json: bool,
    address: str | None,
) -> int:
    """Have everything that is pinned to a version move on, and wait until nothing is left.

    What waits for a person, a message or an event moves at once, and goes on waiting there. What
    has a call or a delegate in flight moves after that. Ctrl-C stops nothing but this command.
    """
    from perdure.worker.deploying.checking import failure_of
    from perdure.worker.deploying.draining import Drain

    found = await _found(address, deployment)

    async def replays(workflow_id: str, run_id: str) -> str:
        return await failure_of(found.client, workflow_id, run_id)

    work = Drain(found, build, replays if override else None)
    return await _drained(work, timeout, as_json=as_json)


@deploy.command(
    epilog=examples(
        "perdure deploy rollback",
        "perdure deploy rollback v1",
        "perdure deploy rollback --unversioned",
    )
)
@click.argument(
    "build", metavar="[BUILD]", required=False, help="The build id (default: the one before)."
)
@click.option("--unversioned", is_flag=True, help="Roll back to the workers without a version.")
@options.json_lines("Print the versions before and now as a line of JSON.")
@_DEPLOYMENT
async def rollback(
    build: str | None,
    unversioned: bool,
    deployment: str | None,
    as_json: bool,
    address: str | None,
) -> int:
    """Give all new work to an earlier version again."""
    from perdure import errors
    from perdure.worker.deploying import drawing, routing

    if build and unversioned:
        raise errors.InvalidRequestError("give a build id or --unversioned, not both")
    found = await _found(address, deployment)
    earlier, before = await routing.roll_back(found, "" if unversioned else build, _note)
    return _promoted(found, Display(as_json), earlier, before, drawing.promoted(earlier, before))


@deploy.command(epilog=examples("perdure deploy check", "perdure deploy check --last 1000"))
@click.option(
    "--last",
    type=options.Count(min=1),
    default=_LAST,
    metavar="N",
    help=f"At most this many, those that run first (default: {_LAST}).",
)
@click.option("--pinned-to", metavar="BUILD", help="Only what is pinned to this version, and runs.")
@options.json_lines("Print a line of JSON for each history.")
@_DEPLOYMENT
async def check(
    last: int,
    pinned_to: str | None,
    deployment: str | None,
    as_json: bool,
    address: str | None,
) -> int:
    """Replay the last histories of the namespace on the code of this command.

    It says which would break, and ends with exit code 1 if there are any. Nothing of them is run.
    """
    from perdure.clients.cli.drawing import json_lines
    from perdure.clients.cli.drawing.screen import note
    from perdure.worker.deploying import drawing
    from perdure.worker.deploying.checking import replayed

    client = (await connected(address)).temporal
    version = (await _found(address, deployment), pinned_to) if pinned_to else None
    count = broken = 0
    async for run in replayed(client, last, version):
        count, broken = count + 1, broken + bool(run.failure)
        if as_json:
            json_lines.tell(run)
        elif run.failure:
            drawing.broken(run)
    if not as_json:
        verdict = f"{broken} would break" if broken else "none would break"
        histories = "1 history" if count == 1 else f"{count} histories"
        note(f"{histories} replayed: {verdict}" if count else "there is no history")
    return FAILED if broken else DONE


def _note(text: str) -> None:
    from perdure.clients.cli.drawing.screen import note

    note(text)


def _promoted(
    deployment: Deployment, display: Display, build_id: str, before: str, text: str
) -> int:
    value = {"deployment": deployment.name, "build_id": build_id, "before": before}
    return display.report(value, text)


async def _drained(work: Any, timeout: timedelta | None, *, as_json: bool) -> int:
    """Follow a drain, and return the exit code."""
    import asyncio

    from perdure.clients.cli.drawing import json_lines
    from perdure.clients.cli.drawing.screen import note, put
    from perdure.worker.deploying import drawing

    display, progress = drawing.DrainDisplay(), None
    try:
        async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
            async for progress in work.progress():
                json_lines.tell(progress) if as_json else display.show(progress)
    except TimeoutError:
        display.end()
        if not as_json and progress is not None:
            for line in drawing.held(progress):
                put(line)
            note(
                "the workers of this version have to stay; --override moves what replays on this"
                " code in the middle of its run"
            )
        return FAILED
    display.end()
    if not as_json:
        note(f"nothing is pinned to {work.build_id} any more: its workers may be stopped")
    return DONE
