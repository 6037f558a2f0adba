"""What a session records of a turn that is over, from the history of the turn."""

from __future__ import annotations

from temporalio.client import Client

from perdure import limits
from perdure.session.wire import TurnEnd, TurnPart
from perdure.temporal.histories.fetching import recorded
from perdure.temporal.histories.read_turn import read_turn
from perdure.temporal.histories.runs import awaited_run, describe_last, runs_up_to
from perdure.turn import carry, effects, reservations, withheld
from perdure.turn.carry import Carried
from perdure.turn.facts import HookEnded
from perdure.turn.fold import apply
from perdure.turn.state import TurnState
from perdure.turn.wire import ChildRun
from perdure.values.messages import Message, UserMessage, closed
from perdure.values.shared_state import SharedState
from perdure.values.tasks import opening


async def parts_of(
    client: Client, turn_id: str, run_id: str, *, is_worker: bool = False
) -> tuple[TurnPart, ...]:
    """Return what a session records of a turn that is over, from its first run.

    Raises:
        RPCError: The server does not have the history, or does not answer.
        PayloadDecodeError: This process lacks the codec or the key of the turn.
    """
    run_id = await awaited_run(client, turn_id, run_id)
    state, checks = await _state(client, turn_id, run_id, is_worker=is_worker)
    summary = state.ended.summary if state.ended else None
    if summary is None:  # its spending is in the histories of its delegates
        run = ChildRun(turn_id=turn_id, run_id=run_id)
        summary = (await read_turn(client, run, is_worker=is_worker)).summary
    # no check and no model has seen its messages, also if the histories of earlier runs are gone
    is_unread = state.agent is None and not state.carried.first_run
    end = TurnEnd(
        outcome=summary.outcome,
        spent=summary.spent,
        is_priced=summary.is_priced,
        is_unread=is_unread,
        unread=tuple(message.id for message in state.unread if message.id is not None),
        agent=summary.last_agent or summary.agent,
        effects=tuple(record.in_turn(turn_id) for record in effects.gathered(state)),
        shared_state=_shared(state),
    )
    is_checked = withheld.task_has_passed(state, checks)
    messages = () if is_unread else own_messages(state, is_checked=is_checked)
    parts = carry.split(Carried(messages, 0), limits.PART_BYTES // 2)
    return tuple(
        TurnPart(
            number=part.number,
            count=part.count,
            messages=part.messages,
            end=end if part.number == part.count else None,
        )
        for part in parts
    )


def _shared(state: TurnState) -> SharedState | None:
    """Return the shared state of a turn; None if it had none at any time."""
    began_with = state.request.shared_state if state.request else {}
    return state.shared if state.shared or began_with else None


async def _state(
    client: Client, turn_id: str, run_id: str, *, is_worker: bool
) -> tuple[TurnState, list[HookEnded]]:
    """Return the state of a turn, from all of its runs that Temporal still has, and its checks."""
    description = await describe_last(client, turn_id, run_id, retry=True)
    state, checks = TurnState(), list[HookEnded]()
    for run in await runs_up_to(client, description):
        async for _, fact in recorded(client, turn_id, run, is_worker=is_worker):
            state = state if fact is None else apply(state, fact)
            if isinstance(fact, HookEnded):
                checks.append(fact)
    return state, checks


def own_messages(state: TurnState, *, is_checked: bool = True) -> tuple[Message, ...]:
    """Return the messages of a turn that is over, without those that it began with.

    Answers that the checks of the agent have not let pass are withheld, and so is the task if its
    check is not over: the model of the next turn would read it unchecked.
    Messages that no answer follows are left out: the session gives them to the next turn. Every
    call has a result. A turn that ended while it took over the messages before it has its task.
    """
    state = withheld.shown(state)
    request = state.request
    origin = request.origin if request else None
    taken_over = origin.steps - state.transcript.absent if origin else 0
    messages = list(state.all_messages[taken_over:])
    if request is not None and not messages:
        messages = [opening(request.task, request.context)]
    if messages and not is_checked:
        messages[0] = withheld.task_mark(state)
    while messages and _is_left_out(messages[-1]):
        messages.pop()
    return closed(messages)


def _is_left_out(message: Message) -> bool:
    if not isinstance(message, UserMessage):
        return False
    return message.id is not None or message == reservations.LAST_WORDS
