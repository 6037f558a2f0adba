"""Workers that are killed with `kill -9` while the result of a call is still to come."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import errors
from perdure.clients import Turn
from perdure.testing.stub_provider import StubCall
from perdure.turn.facts import WaitBegan

from ..conftest import eventually
from ..support.e2e.stories import GONE_S, UNKNOWN, Process, Story, Tell, asks, results, says, use
from ..support.e2e.stories import with_and_without_supervisor as has_supervisor
from ..support.spending import ended, until

__all__ = ["has_supervisor"]

APP = "tests.support.e2e.jobs_app:make"


async def tokens_of(folder: Path, what: str, count: int = 1) -> list[str]:
    """The tokens that the service was told of a job, once there are so many."""
    file = folder / f"journal.jsonl.{what}.tokens"

    def lines() -> list[str]:
        return file.read_text().splitlines() if file.exists() else []

    await eventually(lambda: len(lines()) >= count, f"{what} is started", within_s=GONE_S)
    return lines()


async def begun(tell: Tell, call: StubCall) -> tuple[Story, Process, Turn]:
    """A turn that makes a call, and its worker, which has the tools that start jobs."""
    story = await tell(asks(call), says("done"))
    story.app = APP
    return story, await story.worker(), await story.start()


@pytest.mark.slow
@pytest.mark.accepts("F18")
async def test_result_is_sent_after_the_worker_was_killed(tell: Tell, tmp_path: Path) -> None:
    """The job is started once, and its token is good for the next worker."""
    story, worker, turn = await begun(tell, use("launch", "one"))
    await until(turn, WaitBegan)
    [token] = await tokens_of(tmp_path, "one")
    await story.replace(worker)
    await story.client.finish_call(token, "finished", by="ci")

    report = await story.report(turn)

    assert results(report) == ["finished"]
    assert story.ran() == [("one", 1)]


@pytest.mark.slow
@pytest.mark.accepts("F18")
async def test_each_attempt_has_the_same_token(tell: Tell, tmp_path: Path) -> None:
    """The first attempt is killed before it returns; a job that it has started may answer."""
    story, worker, turn = await begun(tell, use("launch", "one", first_s=60))
    await tokens_of(tmp_path, "one")
    await story.replace(worker)
    first, second = await tokens_of(tmp_path, "one", 2)
    await story.client.finish_call(first, "finished")

    report = await story.report(turn)

    assert first == second
    assert results(report) == ["finished"]
    assert len(story.keys("one")) == 1


@pytest.mark.slow
@pytest.mark.accepts("F18")
async def test_result_that_came_before_the_worker_was_killed_counts(
    tell: Tell, tmp_path: Path
) -> None:
    """The tool is not run again: its job is done."""
    story, worker, turn = await begun(tell, use("launch", "one", first_s=60))
    [token] = await tokens_of(tmp_path, "one")
    await story.client.finish_call(token, "early")
    await story.replace(worker)

    report = await story.report(turn)

    assert results(report) == ["early"]
    assert story.ran() == [("one", 1)]


@pytest.mark.slow
@pytest.mark.accepts("F18")
async def test_start_that_may_not_be_repeated_is_unknown(tell: Tell, tmp_path: Path) -> None:
    """As any call whose worker was lost; a result that comes after that is refused."""
    story, worker, turn = await begun(tell, use("follow", "one", first_s=60))
    [token] = await tokens_of(tmp_path, "one")
    await story.replace(worker)
    report = await story.report(turn)
    with pytest.raises(errors.TurnOverError):
        await story.client.finish_call(token, "late")

    assert results(report) == [f"follow: {UNKNOWN}"]
    assert [call.tool for call in report.unsettled] == ["follow"]
    assert story.ran() == [("one", 1)]


@pytest.mark.slow
@pytest.mark.accepts("F18")
async def test_polls_go_on_in_another_worker(tell: Tell, tmp_path: Path) -> None:
    """The service knows the job by its handle, which history has."""
    story, worker, turn = await begun(tell, use("follow", "one"))
    await until(turn, WaitBegan)
    await story.replace(worker)
    (tmp_path / "journal.jsonl.one.result").write_text("finished")

    report = await story.report(turn)

    assert results(report) == ["finished"]
    assert story.ran() == [("one", 1)]


@pytest.mark.slow
@pytest.mark.accepts("F18")
async def test_job_is_cancelled_although_the_worker_is_killed(tell: Tell, tmp_path: Path) -> None:
    """The cancel comes while there is no worker."""
    story, worker, turn = await begun(tell, use("launch", "one"))
    await until(turn, WaitBegan)
    replacing = asyncio.create_task(story.replace(worker))
    await turn.cancel("enough")
    await replacing
    end = await ended(turn)

    assert isinstance(end, errors.TurnCancelledError)
    assert (tmp_path / "journal.jsonl.one.cancelled").exists()
    assert end.report is not None
    [unsettled] = end.report.unsettled
    assert unsettled.reason.endswith("it was cancelled")
