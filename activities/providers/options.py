"""The options of a request, as far as every API treats them alike.

`extra` comes last, so its fields stand in place of ours of the same name, whole: `{"thinking": …}`
replaces all of `thinking`. Two kinds are refused before anything is sent. `stream`, because whether
an answer comes as one is said where the turn is started. And, where a budget limits money or
tokens, the fields that its reservation is made from: another limit of the answer there, and the
bill may be above what is left.
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
    """What to send as tool choice of a request that has tools.

    `auto`, `required`, `none` or a tool's name; None without a wish.

    Raises:
        LLMInvalidRequestError: The tool is not offered.
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
    """`body` with the fields of `extra` in it.

    Under a budget of money or tokens those in `reserved` may not be set.

    Raises:
        LLMInvalidRequestError: `extra` has a field that may not be set.
    """
    extra = request.options.extra
    if extra.get("stream"):
        raise errors.LLMInvalidRequestError(
            "options.extra asks for a stream; start the turn with live=True for that"
        )
    taken = sorted(reserved & set(extra)) if _is_limited(request) else []
    if taken:
        raise errors.LLMInvalidRequestError(
            f"options.extra sets {', '.join(taken)}, which the reservation of a budget is made"
            " from; limit answers with options.max_output_tokens, or have no budget of money or"
            " tokens"
        )
    return {**body, **extra}


def _is_limited(request: ModelRequest) -> bool:
    return request.budget is not None and (request.budget.usd, request.budget.tokens) != (
        None,
        None,
    )
