"""Request options that all APIs treat alike.

Fields of `extra` are merged last and replace fields of the same name entirely: `{"thinking": …}`
replaces all of `thinking`. Two kinds of fields are rejected before anything is sent: `stream`,
because streaming is chosen when the turn is started; and, if a budget limits money or tokens, the
fields that its reservation is computed from, because with a different output limit the bill could
exceed what is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from perdure import errors
from perdure.activities.provider import ModelRequest
from perdure.text import one_line

_INPUT = {
    "model",
    "messages",
    "system",
    "tools",
    "input",
    "instructions",
    "prompt",
    "previous_response_id",
    "conversation",
}
_OUTPUT = {"max_tokens", "max_completion_tokens", "max_output_tokens", "n"}
RESERVED_FROM = frozenset(_INPUT | _OUTPUT)


def choice(request: ModelRequest) -> str | None:
    """Return the tool choice of a request that has tools.

    It is `auto`, `required`, `none`, a tool's name, or None if the options set none.

    Raises:
        LLMInvalidRequestError: The chosen tool is not offered.
    """
    wish = request.options.tool_choice
    names = [tool.name for tool in request.tools]
    if wish is not None and wish not in ("auto", "required", "none", *names):
        raise errors.LLMInvalidRequestError(
            f"tool_choice {one_line(wish, 80)!r} is none of auto, required, none and the tools:"
            f" {', '.join(names)}"
        )
    return wish


def with_extra(
    body: Mapping[str, Any], request: ModelRequest, reserved: Set[str] = RESERVED_FROM
) -> dict[str, Any]:
    """Return `body` with the fields of `extra` merged in.

    With a budget of money or tokens, fields in `reserved` are rejected.

    Raises:
        LLMInvalidRequestError: `extra` has a field that must not be set.
    """
    extra = request.options.extra
    if extra.get("stream"):
        raise errors.LLMInvalidRequestError(
            "options.extra asks for a stream; start the turn with live=True instead"
        )
    taken = sorted(reserved & set(extra)) if _is_limited(request) else []
    if taken:
        raise errors.LLMInvalidRequestError(
            f"options.extra sets {', '.join(taken)}, which a budget's reservation is computed from;"
            " limit answers with options.max_output_tokens, or set no budget of money or tokens"
        )
    return {**body, **extra}


def _is_limited(request: ModelRequest) -> bool:
    return request.budget is not None and (request.budget.usd, request.budget.tokens) != (
        None,
        None,
    )
