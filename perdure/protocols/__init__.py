"""Protocols: how a model learns about its tools, and how it calls them.

`native` leaves that to the API. The other two are for models without tool calls, or with unreliable
tool calls: `react_text` (Thought, Action, Action Input, Observation, Final Answer; arXiv
2210.03629) and `json` (a schema that allows only a tool call or an answer). They render calls,
results and tools as text before a request, and parse calls from the text of the answer. The
transcript holds the same messages in every protocol, so only the model activity depends on it. All
of this is pure, and the same messages always render to the same text, so that a provider's prompt
cache works. The length of the text determines what a call reserves, so a release that changes it
changes budgets slightly.
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
    """Return the protocol of this name."""
    return _NAMED[name]
