"""What the model reads of a call whose answer was lost, whenever it was sent."""

import re

_SENT = re.compile(r", after it was sent at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")


def timeless(content: str) -> str:
    """The text of a result without the time at which its call was sent."""
    return _SENT.sub("", content)
