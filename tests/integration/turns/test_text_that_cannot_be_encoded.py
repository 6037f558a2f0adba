"""Text that cannot be encoded is refused by every method, with a typed error."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure import errors
from perdure.clients import AgentClient, Turn

HALF: Any = "\ud800"
FIVE: Any = 5
Tells = Callable[[AgentClient, Turn[Any]], Awaitable[object]]


async def _all(items: Any) -> list[Any]:
    return [item async for item in items]


METHODS: dict[str, Tells] = {
    "get": lambda client, turn: client.turn(HALF).status(),
    "start": lambda client, turn: client.start("clerk", "go", id=HALF),
    "agent": lambda client, turn: client.start(HALF, "go"),
    "label": lambda client, turn: client.start("clerk", "go", labels={"a": HALF}),
    "task": lambda client, turn: client.start("clerk", HALF),
    "generate": lambda client, turn: client.generate(HALF, "go", str),
    "approve": lambda client, turn: client.turn(HALF).approve("c"),
    "call": lambda client, turn: client.turn(turn.id).approve(HALF),
    "token": lambda client, turn: client.turn(turn.id).approve("c", token=FIVE),
    "deny": lambda client, turn: client.turn(HALF).deny("c"),
    "list": lambda client, turn: _all(client.turns(HALF)),
    "parent": lambda client, turn: _all(client.turns(parent=HALF)),
    "labels": lambda client, turn: _all(client.turns(labels={"a": HALF})),
    "waiting": lambda client, turn: _all(client.pending_approvals(HALF)),
    "cancel": lambda client, turn: turn.cancel(HALF),
    "cursor": lambda client, turn: _all(turn.events(after=HALF)),
    "no cursor": lambda client, turn: _all(turn.events(after=FIVE)),
}


@pytest.mark.accepts("U15")
async def test_word_that_cannot_be_sent_is_refused_typed(perdure_server: str) -> None:
    """A lone surrogate is half a character; nothing is started or requested."""
    client = await AgentClient.connect(perdure_server, task_queue="nobody")
    turn = await client.start("clerk", "go")
    said: dict[str, str] = {}
    for name, method in METHODS.items():
        try:
            await method(client, turn)
            said[name] = "nothing"
        except errors.PerdureError as error:
            said[name] = (
                "typed"
                if isinstance(error, (errors.InvalidRequestError, errors.ApprovalConflictError))
                else repr(error)
            )
        except Exception as error:  # noqa: BLE001 - which one it is, is what is asked
            said[name] = repr(error)
    await client.temporal.get_workflow_handle(turn.id).terminate()

    assert said == dict.fromkeys(METHODS, "typed")


@pytest.mark.accepts("U15")
async def test_handle_of_no_id_is_refused(perdure_server: str) -> None:
    """By the client, which asks nothing; the ids of delegates' turns may have any length."""
    client = await AgentClient.connect(perdure_server, task_queue="nobody")
    for make in (client.turn, client.session, client.batch, client.schedule):
        with pytest.raises(errors.InvalidRequestError, match="not empty"):
            make("")
        assert make("x" * 300).id == "x" * 300
