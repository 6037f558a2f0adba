"""Converts the results of MCP servers to text, with images and files."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from perdure.agents.tool_context import encode
from perdure.text import in_units
from perdure.turn.wire import ToolOutput
from perdure.values.messages import Media, in_brief, is_base64

_TAKEN = re.compile(r"image/|application/pdf$")


def output_of(result: CallToolResult) -> ToolOutput:
    """Return texts and resources in order, and the structured value unless a text block repeats it.

    Images, and resources that are images or PDF, become media, which the text names. Other media
    are replaced by a note.
    """
    blocks = [(block, _media(block)) for block in result.content]
    parts = [_part(block, media) for block, media in blocks]
    media_blocks = tuple(media for _, media in blocks if media)
    if result.structured_content is not None and not _is_said(result):
        parts.append(_structured(result.structured_content, media_blocks))
    return ToolOutput(
        content="\n\n".join(parts),
        is_error=result.is_error,
        media=media_blocks,
    )


def _structured(value: Any, media: Sequence[Media]) -> str:
    """Return a structured value as JSON, with the kind and size of media in place of their data."""
    text = encode(value)
    for item in media:
        text = text.replace(f'"{item.data}"', f'"{in_brief(item)}"')
    return text


def _media(block: Any) -> Media | None:
    """Return the image or the PDF in a block; None if it holds none that is valid."""
    if isinstance(block, ImageContent):
        kind, data = block.mime_type, block.data
    elif isinstance(block, EmbeddedResource) and isinstance(block.resource, BlobResourceContents):
        kind, data = block.resource.mime_type or "", block.resource.blob
    else:
        return None
    if not _TAKEN.match(kind) or not data or not is_base64(data):
        return None
    return Media(media_type=kind, data=data)


def _part(block: Any, media: Media | None) -> str:
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, EmbeddedResource) and media:
        return f"[resource {block.resource.uri}]\n{in_brief(media)}"
    if media:
        return in_brief(media)
    if isinstance(block, ImageContent | AudioContent):
        return _left_out(block.type, block.mime_type, block.data)
    if isinstance(block, ResourceLink):
        about = ", ".join(
            part for part in (block.title or block.name, block.mime_type, block.description) if part
        )
        return f"[resource {block.uri}: {about}]"
    if isinstance(block, EmbeddedResource):
        resource = block.resource
        if isinstance(resource, TextResourceContents):
            return f"[resource {resource.uri}]\n{resource.text}"
        return _left_out(f"resource {resource.uri}", resource.mime_type, resource.blob)
    return f"[{type(block).__name__} left out]"


def _left_out(kind: str, mime_type: str | None, base64: str) -> str:
    return f"[{kind} left out: {mime_type or 'unknown type'}, {in_units(len(base64) * 3 // 4)}]"


def _is_said(result: CallToolResult) -> bool:
    """Return whether the texts repeat the structured value, as the protocol recommends.

    Many servers wrap a string in an object with one field.
    """
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    values = [_parsed(text) for text in texts]
    value = result.structured_content
    candidates = (
        [value, *value.values()] if isinstance(value, dict) and len(value) == 1 else [value]
    )
    return any(item in (*values, *texts, values, texts) for item in candidates)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
