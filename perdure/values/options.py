"""What a request to a model may ask for beside its messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from perdure import validation
from perdure.validation import Given, Must


class RequestOptions(Given):
    """Options of every request of a turn; of the agent, or of one turn, which wins.

    What is None is left to the provider.

    Attributes:
        temperature: 0 for the most likely words; what a model allows at most differs.
        max_output_tokens: An answer is cut off after so many, thinking included; at most
            1000000000.
        stop_sequences: An answer ends where it would write one of these.
        tool_choice: `auto`, `required` (some tool), `none`, or a tool's name.
        extra: More fields for the body of the request, as the provider names them; they win over
            ours.
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
        """These options, and those of `other` where these say nothing; `extra` of both, ours first."""
        mine: dict[str, Any] = {name: value for name, value in self if value is not None}
        return other.model_copy(
            update={**mine, "extra": {**other.extra, **self.extra}}
        )  # both may be from history, and are not looked at again


NO_OPTIONS = RequestOptions()
