"""What a model can take, where Perdure does not know it or knows it otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from pydantic import Field

from perdure.text import in_units, one_line
from perdure.validation import Given
from perdure.values.messages import Media

Sizes = Mapping[str, int]
"""The most bytes of one image or file, by its MIME type or a pattern such as `image/*`."""


class ModelProfile(Given):
    """What a model can take.

    Attributes:
        window: Tokens of input and output together; None where it is as genai-prices says, or
            unknown.
        media: The most bytes of one image or file, by its MIME type or a pattern such as `image/*`;
            what is not named is not sent. `{}` is a model that takes words alone; None one of which
            only its provider knows.
    """

    window: int | None = Field(default=None, ge=1)
    media: dict[str, int] | None = None


NO_PROFILE = ModelProfile()


def refusal(media: Media, sizes: Sizes | None) -> str:
    """Why a model that takes these cannot take this image or file.

    Empty where it can, or nobody knows.
    """
    if sizes is None:
        return ""
    most = max(
        (most for pattern, most in sizes.items() if fnmatchcase(media.media_type, pattern)),
        default=None,
    )
    kind = one_line(media.media_type, 80)
    if most is None:
        return f"it takes no {kind}"
    weight = len(media.data or "") * 3 // 4
    return (
        f"it takes {kind} of at most {in_units(most)}, and this one has {in_units(weight)}"
        if weight > most
        else ""
    )
