"""Converts what a tool returns to its result: text for the model, with images and files.

Each image or file is named in the text by its kind and size, so that people, logs and models that
do not take it see what there was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from perdure import errors, limits
from perdure.activities.tool_compatibility import error_result
from perdure.agents.tool_context import encode
from perdure.text import clean, clip_recorded, described, in_units, one_line, size, words_of
from perdure.turn.wire import ToolOutput
from perdure.values.messages import Media, in_brief, is_base64, without_some

_AS_WORDS = "\n[The tool ran. This is its result as str() gives it: {error}]"
_NOTE_BYTES = 500
_NO_MEDIA = "left out, because this turn takes only text from tools"
_INSTEAD = (
    "ask it for smaller ones. Its author can return Media(url=…) with an address that the provider"
    " fetches, or give Temporal's client an external storage"
)


def output_of(value: object) -> ToolOutput:
    """Return the result for a value that a tool returned.

    Media alone, or in a list or tuple, are kept as media; everything else becomes text.

    Raises:
        ValueError: The value is still to be awaited; nothing has run. Or a medium has no data and
            no address, or data that is not base64.
    """
    if isinstance(value, ToolOutput):  # of an MCP server, which reports failures itself
        content = clip_recorded(value.content, limits.TOOL_RESULT_BYTES)
        return value.model_copy(update={"content": content})
    items = _mixed(value)
    if not items:
        return _text(value)
    media = tuple(item for item in items if isinstance(item, Media))
    for item in media:
        _check(item)
    texts = [in_brief(item) if isinstance(item, Media) else _text(item).content for item in items]
    content = clip_recorded("\n\n".join(texts), limits.TOOL_RESULT_BYTES)
    return ToolOutput(content=content, media=media)


def fitted(output: ToolOutput, tool: str, room: int, *, has_storage: bool) -> ToolOutput:
    """Return the result that history can hold.

    Args:
        output: The result of the tool.
        tool: The name of the tool.
        room: The most bytes of media that history holds; 0 if the turn takes none.
        has_storage: Whether the worker's client has an external storage, which holds large results.

    Returns:
        The result. If its media are too large, an error result that says what to do.
    """
    if not output.media:
        return output
    if not room:
        content, _ = without_some(output.content, output.media, lambda _: _NO_MEDIA)
        return output.model_copy(update={"content": content, "media": ()})
    bytes_ = sum(len(media.model_dump_json()) for media in output.media)
    limit = limits.MEDIA_BYTES if has_storage else room
    if bytes_ <= limit:
        return output
    error = errors.TooLargeError(
        f"the tool ran, but its images and files are {in_units(bytes_)} in base64, more than the"
        f" {in_units(limit)} that a result may have here; {_INSTEAD}"
    )
    return error_result(f"{tool}: {described(error)}\n\n{output.content}")


def most_bytes(output: ToolOutput, *, has_storage: bool) -> int:
    """Return the most bytes of this result as JSON."""
    return limits.STORED_BYTES if output.media and has_storage else limits.PAYLOAD_BYTES


def _mixed(value: object) -> Sequence[Any]:
    """Return the parts of a value with media; nothing for a value without media."""
    if isinstance(value, Media):
        return (value,)
    if isinstance(value, list | tuple) and any(isinstance(item, Media) for item in value):
        return value
    return ()


def _check(media: Media) -> None:
    if not media.data and not media.url:
        raise ValueError("a Media that the tool returned has neither data nor a url")
    if media.data and not is_base64(media.data):
        raise ValueError("the data of a Media that the tool returned is not base64")


def _text(value: object) -> ToolOutput:
    """Return a result of text: the value encoded, else as `str` gives it, with a note."""
    try:
        content = encode(value)
    except ValueError as error:
        if isinstance(value, Awaitable):  # nothing has run
            raise
        note = _AS_WORDS.format(error=one_line(clean(str(error)), _NOTE_BYTES))
        return ToolOutput(
            content=clip_recorded(words_of(value), limits.TOOL_RESULT_BYTES - size(note)) + note
        )
    return ToolOutput(content=clip_recorded(content, limits.TOOL_RESULT_BYTES))
