"""Protocols: how a model is told of its tools, and how it asks for them.

`native` leaves that to the API. The other two are for models without tool calls, or with bad ones:
`react_text` (Thought, Action, Action Input, Observation, Final Answer; arXiv 2210.03629) and `json`
(a schema that leaves no choice but a tool's call or an answer). They put calls, results and tools
into words before a request, and read calls out of the words of the answer. The transcript holds the
same messages in every protocol, so nothing but the model activity knows which one is spoken. All of
it is pure, and the same messages always become the same words, so that a provider's prompt cache
finds them. How long the words are decides what a call reserves: a release that changes them changes
budgets a little.
"""

from __future__ import annotations

from collections.abc import Mapping

import perdure.protocols.json_choice as json_choice
import perdure.protocols.native as native
import perdure.protocols.react_text as react_text
from perdure.protocols.prompt import Prompt, Protocol

__all__ = ["Prompt", "Protocol", "named"]

_NAMED: Mapping[str, Protocol] = {"native": native, "react_text": react_text, "json": json_choice}


def named(name: str) -> Protocol:
    """The protocol of this name."""
    return _NAMED[name]
