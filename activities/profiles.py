"""Model profiles: the worker's own, documented media types, and windows from genai-prices."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.activities.pricing import FREE, ByModel, window_of
from perdure.values.profiles import NO_PROFILE, ModelProfile

_MB = 1_000_000
_IMAGES = ("image/gif", "image/jpeg", "image/png", "image/webp")

MEDIA: Mapping[str, dict[str, int]] = {
    "anthropic": {**dict.fromkeys(_IMAGES, 5 * _MB), "application/pdf": 32 * _MB},
    "openai": dict.fromkeys(_IMAGES, 50 * _MB),
    "openai-responses": {
        **dict.fromkeys(_IMAGES, 50 * _MB),
        "application/*": 50 * _MB,
        "text/*": 50 * _MB,
    },
}
"""The media types and sizes that a provider's API accepts for any of its models.

A model may accept less, which its provider then reports.
"""


class Profiles:
    """Looks up the profile of a model.

    `named` has the worker's own profiles, by `provider:model`, or by `provider:*` for all other
    models of a provider. They take precedence.

    Raises:
        ConfigurationError: A key has neither form.
    """

    def __init__(self, named: Mapping[str, ModelProfile]) -> None:
        self._named = ByModel("profiles", named)

    def of(self, target: str) -> ModelProfile:
        """Return the profile of `provider:model`."""
        vendor = target.partition(":")[0]
        profile = self._named.get(target) or NO_PROFILE
        window = profile.window
        if window is None and vendor not in FREE:
            window = window_of(target)
        media = MEDIA.get(vendor) if profile.media is None else profile.media
        return ModelProfile(window=window, media=media)
