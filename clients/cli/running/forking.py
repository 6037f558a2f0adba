"""`perdure fork` and `perdure resume`: a new turn that continues from a step of another turn.

They print first which calls after that step may happen again, and ask on a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure import errors
from perdure.clients.cli.common import Display
from perdure.clients.cli.drawing.amounts import with_budget
from perdure.clients.cli.drawing.json_lines import tell
from perdure.clients.cli.drawing.screen import note
from perdure.clients.cli.running.agreement import agrees
from perdure.clients.cli.running.following import follow
from perdure.clients.client import AgentClient
from perdure.clients.turns.forks import Effect
from perdure.clients.turns.handle import Turn
from perdure.text import word


@dataclass(frozen=True)
class ForkStart:
    """How a new turn is started from another turn.

    Attributes:
        display: The form in which the new turn is shown.
        is_agreed: Whether calls may happen again without a question.
        follows: Whether the new turn is followed to its end.
    """

    display: Display
    is_agreed: bool
    follows: bool


async def fork(
    client: AgentClient,
    turn_id: str,
    start: ForkStart,
    at_step: int | None,
    values: Mapping[str, Any],
) -> int:
    """Fork a turn, and return the exit code of the new turn.

    `values` has the other options of the command, with the limits of the budget one by one.

    Raises:
        PerdureError: It cannot be forked, or the new turn has no answer.
    """
    options = with_budget(values)
    labels = options.pop("labels") or None
    turn = client.turn(turn_id)
    step = await turn.last_step() if at_step is None else at_step
    await _confirm(turn, step, start)
    live = start.display.stream or None
    new = await turn.fork(step, labels=labels, live=live, **options)
    return await _follow(client, new, start)


async def resume(
    client: AgentClient, turn_id: str, start: ForkStart, values: Mapping[str, Any]
) -> int:
    """Let a turn continue, and return the exit code of the new turn; 0 for a turn that waits.

    `values` has the other options of the command, as for `fork`.

    Raises:
        PerdureError: It cannot be resumed, or the new turn has no answer.
    """
    options = with_budget(values)
    turn = client.turn(turn_id)
    step = await turn.resume_step()
    if step is not None:
        await _confirm(turn, step, start)
        return await _follow(client, await turn.resume(**options), start)
    # if it ends meanwhile, nobody has been asked which calls may happen again
    await turn.resume(start=False, **options)
    return start.display.report(
        {"turn": turn.id, "resumed": True}, f"turn {word(turn.id)} asks its model again"
    )


async def _confirm(turn: Turn[Any], step: int, start: ForkStart) -> None:
    """Print the calls after a step that may happen again, and ask unless that is agreed.

    Raises:
        InvalidRequestError: The answer is not yes, or there is no terminal to ask on.
    """
    effects = await turn.effects_after(step)
    if start.display.as_json:
        tell({"turn": turn.id, "kind": "effects", "step": step, "effects": effects})
    if not effects:
        return
    called = f"after step {step} of turn {word(turn.id)}, {_in_words(effects)}"
    if not start.display.as_json:
        note(called)
    if not start.is_agreed:
        problem = f"{called}; they may happen again, so nothing was started: add --yes to start"
        if not await agrees("they may happen again; start?", problem):
            raise errors.InvalidRequestError("nothing was started")


def _in_words(effects: Sequence[Effect]) -> str:
    """Format calls: `steps 8-12 called: send_mail, pay (not read-only)`."""
    first, last = effects[0].step, effects[-1].step
    steps = f"step {first}" if first == last else f"steps {first}-{last}"
    called = f"{steps} called: {_tools(effects)} (not read-only)"
    known = _tools([effect for effect in effects if effect.is_known])
    return f"{called}, of which a repeated call of {known} is not made again" if known else called


def _tools(effects: Sequence[Effect]) -> str:
    return ", ".join(dict.fromkeys(word(effect.tool) for effect in effects))


async def _follow(client: AgentClient, turn: Turn[Any], start: ForkStart) -> int:
    if start.follows:
        return await follow(client, turn, start.display, is_new=True)
    return start.display.report({"turn": turn.id, "started": True}, f"turn {word(turn.id)}")
