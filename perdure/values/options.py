"""The options of requests to models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from perdure import validation
from perdure.validation import Given, Must


class RequestOptions(Given):
    """The options of every request of a turn.

    Options of a turn override those of the agent. For an option that is None, the provider's
    default applies.

    Attributes:
        temperature: 0 for the most likely words; the largest value depends on the model.
        max_output_tokens: The number of tokens after which an answer is cut off, thinking included;
            at most 1000000000.
        stop_sequences: Strings at which an answer ends, before it contains one.
        tool_choice: `auto`, `required` (some tool), `none`, or a tool's name.
        extra: More fields for the body of the request, as the provider names them; they override
            Perdure's fields.
    """

    temperature: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = None
    max_output_tokens: (
        Annotated[int, Field(gt=0, strict=True), validation.built(validation.Count)] | None
    ) = None
    stop_sequences: tuple[Annotated[str, Field(min_length=1)], ...] | None = None
    tool_choice: (
        Annotated[
            Literal["auto", "required", "none"] | str,
            Must("'auto', 'required', 'none' or the name of a tool"),
        ]
        | None
    ) = None
    extra: dict[str, JsonValue] = {}

    def over(self, other: RequestOptions) -> RequestOptions:
        """Return these options, with `other` as defaults; `extra` is merged likewise."""
        mine: dict[str, Any] = {name: value for name, value in self if value is not None}
        # both may be from history, and are not validated again
        return other.model_copy(update={**mine, "extra": {**other.extra, **self.extra}})


NO_OPTIONS = RequestOptions()
