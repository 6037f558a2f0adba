"""Messages that come to a session while no worker lives."""

import asyncio

import pytest
from temporalio.client import Client
from temporalio.worker import Replayer

from perdure.clients import Session
from perdure.session.wire import SessionRequest, SessionSnapshot
from perdure.temporal.names import SESSION
from perdure.temporal.payloads import pack
from perdure.testing import ScriptedModel, says
from perdure.workflows import WORKFLOWS
from perdure.workflows.single_input import OneInput

from ...support.carrying import continued
from ...support.conversing import session_of
from ...support.resets import task_ends
from ...support.session_updates import until_sent
from ...support.spending import SOON_S, app, queue


async def until_done(client: Client, session: Session, tasks: int) -> None:
    """Wait until so many workflow tasks of a session are done."""
    handle = client.get_workflow_handle(session.id)
    async with asyncio.timeout(SOON_S):
        while len(task_ends(await handle.fetch_history())) < tasks:  # noqa: ASYNC110 - of a server
            await asyncio.sleep(0.02)


NEW = SessionRequest(agent="spender")
"""A session whose first message was refused: it has begun without one."""
FORK = SessionSnapshot(session=NEW, count=0)


@pytest.mark.accepts("S128")
@pytest.mark.parametrize("begun", [NEW, FORK], ids=["new", "fork"])
async def test_two_messages_to_a_new_run_without_a_worker(
    perdure_server: str, begun: SessionRequest | SessionSnapshot
) -> None:
    """The first task of the run has no message, as that of a fork, and of a run that goes on while
    the session is idle. If it did nothing, the SDK would do it again with the next one, but not so
    in a replay.
    """
    model = ScriptedModel(says("one"))
    async with queue(perdure_server) as work:
        client, session = work.client.temporal, session_of(work.client)
        await continued(work.client, session.id, pack(begun), kind=SESSION)
        async with work.worker(app(), model):
            await until_done(client, session, 1)
        saying = []
        for message_id in ("1", "2"):
            saying.append(asyncio.create_task(session.say(message_id, id=message_id)))
            await until_sent(client, session, message_id)
        async with work.worker(app(), model):
            for sent in await asyncio.gather(*saying):
                assert (await sent.result()).output == "one"
        history = await client.get_workflow_handle(session.id).fetch_history()
        await Replayer(
            workflows=WORKFLOWS, interceptors=[OneInput()], data_converter=client.data_converter
        ).replay_workflow(history)
