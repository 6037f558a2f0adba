"""`perdure fork` and `perdure resume`: a new turn that goes on from a step of another one.

They print first which calls after that step may happen again, and ask on a terminal.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure import errors
from perdure.clients.cli.drawing.amounts import budget_of
from perdure.clients.cli.drawing.json_lines import tell
from perdure.clients.cli.drawing.screen import note, put
from perdure.clients.cli.exits import DONE
from perdure.clients.cli.follow import View, follow
from perdure.clients.client import AgentClient
from perdure.clients.turns.forks import Effect
from perdure.clients.turns.handle import Turn
from perdure.text import word
from perdure.values.budgets import Budget


@dataclass(frozen=True)
class Start:
    """How a new turn is started from another one.

    Attributes:
        view: The form in which the new turn is shown.
        is_agreed: Whether calls may happen again without a question.
        follows: Whether the new turn is followed to its end.
    """

    view: View
    is_agreed: bool
    follows: bool


async def fork(
    client: AgentClient,
    turn_id: str,
    start: Start,
    at_step: int | None,
    given: Mapping[str, Any],
) -> int:
    """Fork a turn, and return the exit code of the new turn.

    `given` has the other options of the command: the limits of the budget one by one, the labels as
    pairs.

    Raises:
        PerdureError: It cannot be forked, or the new turn has no answer.
    """
    options = _options(given)
    labels = dict(options.pop("labels")) or None
    turn = client.turn(turn_id)
    step = await turn.last_step() if at_step is None else at_step
    await _confirm(turn, step, start)
    new = await turn.fork(step, labels=labels, **options)
    return await _follow(client, new, start)


async def resume(client: AgentClient, turn_id: str, start: Start, given: Mapping[str, Any]) -> int:
    """Let a turn go on, and return the exit code of the new turn; 0 for a turn that waits.

    `given` has the other options of the command, as for `fork`.

    Raises:
        PerdureError: It cannot be resumed, or the new turn has no answer.
    """
    options = _options(given)
    turn = client.turn(turn_id)
    step = await turn.resume_step()
    if step is not None:
        await _confirm(turn, step, start)
        return await _follow(client, await turn.resume(**options), start)
    await turn.resume(**options)
    if start.view.as_json:
        tell({"turn": turn.id, "resumed": True})
    else:
        note(f"turn {word(turn.id)} asks its model again")
    return DONE


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a command with the limits of a budget as one value.

    Raises:
        InvalidRequestError: A limit is not valid.
    """
    limits = {name: value for name, value in given.items() if name in Budget.model_fields}
    others = {name: value for name, value in given.items() if name not in limits}
    return {**others, "budget": budget_of(limits)}


async def _confirm(turn: Turn[Any], step: int, start: Start) -> None:
    """Print the calls after a step that may happen again, and ask unless that is agreed.

    Raises:
        InvalidRequestError: The answer is not yes, or there is no terminal to ask on.
    """
    effects = await turn.effects_after(step)
    if start.view.as_json:
        tell({"turn": turn.id, "kind": "effects", "step": step, "effects": effects})
    if not effects:
        return
    called = f"after step {step} of turn {word(turn.id)}, {_in_words(effects)}"
    if not start.view.as_json:
        note(called)
    if not start.is_agreed:
        await _ask(called)


async def _ask(called: str) -> None:
    """Ask whether calls may happen again.

    Raises:
        InvalidRequestError: The answer is not yes, or there is no terminal to ask on.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise errors.InvalidRequestError(
            f"{called}; they may happen again, so nothing was started: add --yes to start"
        )
    put("they may happen again; start? [y/N] ", sys.stderr, end="")
    if (await _line()).strip().lower() not in ("y", "yes"):
        raise errors.InvalidRequestError("nothing was started")


def _in_words(effects: Sequence[Effect]) -> str:
    """Format calls: `steps 8-12 called: send_mail, pay (not read-only)`."""
    first, last = effects[0].step, effects[-1].step
    steps = f"step {first}" if first == last else f"steps {first}-{last}"
    tools = ", ".join(dict.fromkeys(word(one.tool) for one in effects))
    return f"{steps} called: {tools} (not read-only)"


async def _line() -> str:
    """Return a line from the terminal. Ctrl-C interrupts the wait."""
    loop = asyncio.get_running_loop()
    is_there = asyncio.Event()
    loop.add_reader(sys.stdin, is_there.set)
    try:
        await is_there.wait()
        return sys.stdin.readline()
    finally:
        loop.remove_reader(sys.stdin)


async def _follow(client: AgentClient, turn: Turn[Any], start: Start) -> int:
    if start.follows:
        return await follow(client, turn, start.view, is_new=True)
    if start.view.as_json:
        tell({"turn": turn.id, "started": True})
    else:
        note(f"turn {word(turn.id)}")
    return DONE
