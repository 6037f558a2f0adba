"""A release and a rollback with two builds as real processes, while turns run and wait, and while
workers are killed: nothing is lost, and no effect happens twice.
"""

import asyncio
import secrets
import sys
from collections import Counter
from pathlib import Path

import pytest

from perdure import Outcome
from perdure.clients import Batch, Session, Turn

from ..conftest import assert_no_task_failed
from ..support.approving import pending
from ..support.e2e.stories import GONE_S, Process, Story, Tell, kill_all
from ..support.versioned import builds_of, until, until_begun

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="the children are found in /proc"),
]

APP = "tests.support.e2e.deploy_app:make"
TASKS = 40


@pytest.fixture
def has_supervisor() -> bool:
    """The workers have supervisors, as users run them."""
    return True


class Walk:
    """A deployment whose builds are processes, and `perdure deploy` as its operator types it."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.name = f"walk-{secrets.token_hex(4)}"

    async def start(self, build: str) -> Process:
        """Start the workers of a build, under one supervisor."""
        return await self.story.worker(
            APP, PERDURE_DEPLOYMENT=self.name, PERDURE_BUILD_ID=build, PERDURE_PROCESSES="2"
        )

    async def deploy(self, *arguments: str) -> tuple[int, str]:
        """Run `perdure deploy …`; return its exit code and what it prints."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perdure", "deploy", *arguments),
            *("--deployment", self.name, "--address", self.story._address),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), 120)
        return process.returncode or 0, output.decode()

    async def must(self, *arguments: str) -> str:
        """Run `perdure deploy …`, which has to succeed; return what it prints."""
        code, output = await self.deploy(*arguments)
        assert code == 0, output
        return output


async def settled(batch: Batch, count: int) -> None:
    """Wait until so many tasks of a batch are done."""

    async def is_so() -> bool:
        return (await batch.status()).done >= count

    await until(is_so, within_s=GONE_S)


async def approved(turn: Turn) -> None:
    """Approve the call that a turn waits for."""
    (asked,) = await pending(turn)
    await turn.approve(asked.call_id, by="eve")


async def said(session: Session, text: str) -> str:
    """Say something to a session, and return its answer."""
    sent = await session.say(text)
    return str((await asyncio.wait_for(sent.result(), GONE_S)).output)


@pytest.mark.accepts("V11", "V12", "V13")
async def test_nothing_is_lost_or_twice_over_a_release_and_a_rollback_with_kills(
    tell: Tell, tmp_path: Path
) -> None:
    """A turn waits for approval, a session is idle, a batch is in the middle, a delegate waits."""
    story = await tell()
    walk, client = Walk(story), story.client
    old = await walk.start("v1")
    await walk.must("promote", "v1")

    waits = await client.start("sender", "letter")
    tree = await client.start("lead", "parcel")
    below = client.turn(f"{tree.id}/sender-1")
    session = client.session(f"chat-{secrets.token_hex(4)}", "talker")
    first = await said(session, "one")
    tasks = [f"task {number}" for number in range(TASKS)]
    batch = await client.start_batch(f"batch-{secrets.token_hex(4)}", "booker", tasks, at_once=2)
    await until_begun(below)
    await pending(waits)
    await pending(below)
    await settled(batch, 4)

    await story.replace(old)
    new = await walk.start("v2")
    promotion = asyncio.create_task(walk.must("promote", "v2"))
    await story.replace(old)
    await promotion
    draining = asyncio.create_task(walk.deploy("drain", "v1", "--timeout", "15s"))
    await settled(batch, 8)
    await story.replace(new)
    code, held = await draining
    tmp_path.joinpath("open").touch()
    await approved(below)
    of_tree = await asyncio.wait_for(tree.result(), GONE_S)
    second = await said(session, "two")
    await walk.must("drain", "v1")
    on_new = await builds_of(story.temporal, waits.id)

    rolled_back = await walk.must("rollback")
    draining = asyncio.create_task(walk.deploy("drain", "v2"))
    await story.replace(old)
    drained = await draining
    await kill_all(new)
    third = await said(session, "three")
    await approved(waits)
    of_waits = await asyncio.wait_for(waits.result(), GONE_S)
    results = [result async for result in batch.results()]
    replayed = await walk.must("check", "--last", "20")

    effects = Counter(entry.what for entry in story.journal())
    assert effects == Counter(["letter", "parcel", *tasks])
    assert (first, second, third) == ("v1 heard one", "v2 heard one two", "v1 heard one two three")
    assert [of_tree.outcome, of_waits.outcome] == [Outcome.COMPLETED] * 2
    assert of_waits.output == "letter is done"
    assert {result.state.value for result in results} == {"done"}
    assert len(results) == TASKS
    assert (code, f"waits for its child {below.id}" in held) == (1, True)
    assert "perdure.call_model runs" in held
    assert "new work goes to v1" in rolled_back
    assert drained[0] == 0, drained[1]
    assert "none would break" in replayed
    assert on_new == ["v1", "v2"]
    assert await builds_of(story.temporal, waits.id) == ["v1", "v2", "v1"]
    assert (await builds_of(story.temporal, batch.id))[:2] == ["v1", "v2"]
    for workflow_id in (waits.id, tree.id, session.id, batch.id):
        handle = story.temporal.get_workflow_handle(workflow_id)
        assert_no_task_failed(await handle.fetch_history())
