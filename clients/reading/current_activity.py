"""The current activity of a turn, in words."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.text import word
from perdure.turn.keys import (
    AgentKey,
    ChildKey,
    HandoffKey,
    HookKey,
    Key,
    ModelKey,
    PolicyKey,
    ReadKey,
    ToolKey,
    VerifyKey,
)
from perdure.turn.state import TurnState
from perdure.turn.waiting import DELAY, PROVIDER, Waiting
from perdure.values.moments import in_words


def doing(state: TurnState, gap: str = "  ") -> str:
    """Describe what happens in a turn right now, without its duration.

    `gap` separates an activity's id from its description.
    """
    waiting = state.waiting
    goes_on = waiting is not None and (waiting.kind == PROVIDER or waiting.is_of_calls)
    if waiting is not None and not (goes_on and state.in_flight):
        return _waits(waiting)
    calls = [key for key in state.in_flight if not isinstance(key, ChildKey | ReadKey)]
    children = [child for child in state.children if not child.ended]
    parts = [f"{calls[0]}{gap}{', '.join(_activity(state, key) for key in calls)}"] if calls else []
    parts += [f"{key}{gap}waits before {name} is looked up" for key, name in _in_doubt(state)]
    parts += [f"{len(children)} delegate{'s' * (len(children) > 1)} at work"] if children else []
    parts += [_waits(waiting)] if waiting is not None and waiting.is_of_calls else []
    return ", ".join(parts) or "waits for a worker"


def _in_doubt(state: TurnState) -> Iterator[tuple[ToolKey, str]]:
    """Yield the calls that are looked up once they have had the time to take effect."""
    looked_up = {key.call for key in state.in_flight if isinstance(key, VerifyKey)}
    for position, open_call in state.open_step.unfinished:
        is_in_doubt = open_call.doubt is not None and not open_call.doubt.waits
        if is_in_doubt and position not in looked_up:
            yield ToolKey(state.step_count + 1, position), word(open_call.call.name)


def _waits(waiting: Waiting) -> str:
    until = waiting.until
    if waiting.kind == DELAY and until is not None:
        return f"begins at {in_words(until)}"
    if waiting.kind == PROVIDER and until is not None:
        moment = in_words(until) if waiting.limit else f"{until:%H:%M:%S} UTC"
        return f"waits for provider, attempt {waiting.attempt} at {moment}"
    if waiting.is_of_calls and until is not None:
        return f"{waiting.of_calls_in_words} until {in_words(until)}"
    return f"waits for {word(waiting.kind)}" if waiting.is_told else "asks again in a moment"


def is_stopped(state: TurnState) -> bool:
    """Whether the whole turn waits for a person, for a provider's limit, or for its beginning.

    This time does not count towards the time of the turn.
    """
    if state.is_untimed:
        return True
    waiting = [child for child in state.children if child.waits_for and not child.ended]
    return bool(waiting) and len(waiting) == state.at_work


def _activity(state: TurnState, key: Key) -> str:
    match key:
        case HookKey("observe"):
            return "observers"
        case HookKey():
            return "middleware"
        case AgentKey():
            return "looks the agent up"
        case HandoffKey():
            return "hands the turn over"
        case ModelKey():
            model = state.in_flight.get(key) or (state.agent.model if state.agent else "")
            return f"asks {word(model) if model else 'the model'}"
    open_call = state.open_step.find(key.call)
    name = word(open_call.call.name) if open_call else "a tool"
    if isinstance(key, VerifyKey):
        return f"looks up whether {name} has taken effect"
    return f"asks the policy about {name}" if isinstance(key, PolicyKey) else f"runs {name}"
