"""What the options of turns and sessions may hold."""

from __future__ import annotations

from collections.abc import Sequence

from perdure import errors, limits
from perdure.schemas.strict_schema import check_size, strict
from perdure.text import counted, one_line, size
from perdure.values.client_tools import ClientTool, tools_size
from perdure.values.turn_options import StoredOptions


def check_options(options: StoredOptions) -> None:
    """Refuse options that are too large, and an output schema that no model can be held to.

    Raises:
        TooLargeError: The labels or the instructions are over their limit.
        InvalidRequestError: The schema is recursive, or allows any value somewhere.
    """
    labels = sum(size(name) + size(value) for name, value in options.labels.items())
    if labels > limits.LABELS_BYTES:
        raise errors.TooLargeError(
            f"the labels are {labels} bytes, more than {limits.LABELS_BYTES}; they go with every"
            " tool call",
            context={"bytes": labels, "limit": limits.LABELS_BYTES},
        )
    instructions = size(options.instructions or "")
    if instructions > limits.INSTRUCTIONS_BYTES:
        raise errors.TooLargeError(
            f"the instructions are {instructions} bytes, more than {limits.INSTRUCTIONS_BYTES};"
            " they go with every request to a model",
            context={"bytes": instructions, "limit": limits.INSTRUCTIONS_BYTES},
        )
    try:
        strict({"type": "string"} if options.output_schema is None else options.output_schema)
    except ValueError as error:
        reason = one_line(str(error), 300)
        raise errors.InvalidRequestError(f"the output schema: {reason}") from None


def check_client_tools(tools: Sequence[ClientTool]) -> None:
    """Refuse tools that are too many or too large, or that no model can be told of.

    Raises:
        TooLargeError: They are too many, or too large.
        InvalidRequestError: Two have one name, or the schema of the arguments is not one.
    """
    if len(tools) > limits.CLIENT_TOOLS:
        raise errors.TooLargeError(
            f"there are {counted(len(tools), 'tool')} of the client, more than"
            f" {limits.CLIENT_TOOLS}; give those that this turn may need",
            context={"tools": len(tools), "limit": limits.CLIENT_TOOLS},
        )
    bytes_ = tools_size(tools)
    if bytes_ > limits.CLIENT_TOOLS_BYTES:
        raise errors.TooLargeError(
            f"the tools of the client are {bytes_} bytes, more than {limits.CLIENT_TOOLS_BYTES};"
            " they go with every request to a model",
            context={"bytes": bytes_, "limit": limits.CLIENT_TOOLS_BYTES},
        )
    names: set[str] = set()
    for tool in tools:
        if tool.name in names:
            raise errors.InvalidRequestError(f"two tools of the client have the name {tool.name}")
        names.add(tool.name)
        _check_schema(tool)


def _check_schema(tool: ClientTool) -> None:
    if tool.parameters.get("type") != "object":
        raise errors.InvalidRequestError(
            f"the parameters of the client's tool {tool.name} are no JSON schema of an object: add"
            ' "type": "object"'
        )
    try:
        check_size(tool.parameters)
    except ValueError as error:
        reason = one_line(str(error), 300)
        raise errors.InvalidRequestError(
            f"the parameters of the client's tool {tool.name}: {reason}"
        ) from None
