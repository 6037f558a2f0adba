"""What the heartbeats of a model call say of its text."""

from __future__ import annotations

from pydantic import Field

from perdure.base import Wire


class TextSource(Wire):
    """Where a worker serves the text of a model call as it is generated.

    `address` is a host and a port. `key` proves that a reader may read the text; it is worth
    nothing after the call.
    """

    address: str
    key: str = Field(repr=False)


class LiveText(Wire):
    """The end of a model's text so far, as stored in the heartbeats of its activity.

    `offset` is the number of characters before it.
    """

    offset: int = 0
    text: str = ""
    source: TextSource | None = None
