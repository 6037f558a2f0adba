"""Profiles of models: limits of their input that Perdure does not know or that differ."""

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
    """The limits of a model's input.

    Attributes:
        window: The number of tokens of input and output together; None for the value of
            genai-prices, if it has a value.
        media: The most bytes of one image or file, by its MIME type or a pattern such as `image/*`;
            other types are not sent. `{}` is for a model that accepts only text; None leaves the
            check to the provider.
    """

    window: int | None = Field(default=None, ge=1)
    media: dict[str, int] | None = None


NO_PROFILE = ModelProfile()


def refusal(media: Media, sizes: Sizes | None) -> str:
    """Return the reason why a model with these limits cannot accept an image or file.

    It is empty if the model can, or if the limits are unknown.
    """
    lack = lack_of(media, sizes)
    return f"it {lack}" if lack else ""


def lack_of(media: Media, sizes: Sizes | None) -> str:
    """Return the same reason as a predicate, such as `takes no image/png`."""
    if sizes is None:
        return ""
    limit = max(
        (limit for pattern, limit in sizes.items() if fnmatchcase(media.media_type, pattern)),
        default=None,
    )
    kind = one_line(media.media_type, 80)
    if limit is None:
        return f"takes no {kind}"
    weight = media.size_bytes
    return (
        f"takes {kind} of at most {in_units(limit)}, and this one has {in_units(weight)}"
        if weight > limit
        else ""
    )
