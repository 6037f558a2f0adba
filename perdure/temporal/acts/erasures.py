"""The act of an erasure: the input of a workflow that does nothing, as history is where acts are.

It is encrypted with the key of the environment, so it can be read after the erasure.
"""

from __future__ import annotations

from datetime import timedelta

from perdure.base import Wire

ID_PREFIX = "erasures/"
"""How the ids of these workflows begin. The rest is random, as a name may have to be kept out."""
OPEN_AT_MOST = timedelta(hours=1)
"""After that, Temporal ends the workflow, if no worker polls its task queue."""


class Erasure(Wire):
    """Who has erased a data subject.

    Attributes:
        subject: The data subject.
        by: Who has asked for it; None without a name.
        key: The id of the key that is destroyed; empty if all had been destroyed before.
    """

    subject: str
    by: str | None = None
    key: str = ""
