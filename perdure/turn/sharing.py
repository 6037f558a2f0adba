"""What calls change of the shared state of a turn. Pure."""

from __future__ import annotations

from perdure import limits
from perdure.base import replace
from perdure.turn.facts import ToolReturned
from perdure.turn.state import TurnState
from perdure.values.shared_state import merged, size_of

_NOT_SHARED = (
    f"\n[The changes of this call to the shared state do not fit into {limits.SHARED_STATE_BYTES}"
    " bytes beside those of other calls, and were not made.]"
)


def changed(state: TurnState, fact: ToolReturned) -> tuple[TurnState, ToolReturned]:
    """Return the state with what a call has changed of the shared state, and its result.

    Calls that run at the same time do not see the changes of each other, so theirs may be too much.
    """
    output = fact.output
    if not output.shared_patch:
        return state, fact
    shared = merged(state.shared, output.shared_patch)
    if size_of(shared) <= limits.SHARED_STATE_BYTES:
        return replace(state, shared=shared), fact
    output = output.model_copy(update={"content": output.content + _NOT_SHARED})
    return state, replace(fact, output=output)
