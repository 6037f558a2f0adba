"""Items of a conversation or of an input, made from messages, and their pages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import Field

from perdure.base import Value
from perdure.clients.gateway.inputs import Query
from perdure.clients.gateway.responses.functions import OutputItem
from perdure.clients.gateway.responses.refusals import bad
from perdure.clients.gateway.responses.values import (
    OutputMessage,
    OutputText,
    ToolCallItem,
    ToolError,
)
from perdure.turn.wire import TurnRequest
from perdure.values.messages import (
    AssistantMessage,
    Media,
    Message,
    Text,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from perdure.values.tasks import opening

_LIMIT = 100


class InputText(Value):
    """Text of the user."""

    type: Literal["input_text"] = "input_text"
    text: str


class InputImage(Value):
    """An image of the user."""

    type: Literal["input_image"] = "input_image"
    image_url: str
    detail: Literal["auto"] = "auto"


class InputFile(Value):
    """A file of the user: its data as an address, or the address where it is."""

    type: Literal["input_file"] = "input_file"
    file_data: str | None = Field(default=None, exclude_if=not_)
    file_url: str | None = Field(default=None, exclude_if=not_)


class InputMessageItem(Value):
    """A message of the user."""

    type: Literal["message"] = "message"
    id: str
    role: Literal["user"] = "user"
    status: Literal["completed"] = "completed"
    content: tuple[InputText | InputImage | InputFile, ...]


ListedItem = InputMessageItem | OutputMessage | ToolCallItem | OutputItem


class ListItems(Query):
    """Which items to list.

    Attributes:
        after: The id of the item before the page.
        limit: The number of items in the page.
        order: The last item first, or the first.
        include: Ignored.
        include_: Ignored.
    """

    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=_LIMIT)] = 20
    order: Literal["asc", "desc"] = "desc"
    include: Any = None
    include_: Any = Field(None, alias="include[]")


class ItemList(Value):
    """A page of items. `first_id` and `last_id` are empty on an empty page."""

    object: Literal["list"] = "list"
    data: tuple[ListedItem, ...]
    first_id: str = ""
    last_id: str = ""
    has_more: bool = False


def page_of(items: Sequence[ListedItem], query: ListItems) -> ItemList:
    """Return a page of items.

    Raises:
        RefusedError: There is no item before the page.
    """
    ordered = list(items) if query.order == "asc" else list(reversed(items))
    begin = 0
    if query.after is not None:
        places = [place for place, item in enumerate(ordered, 1) if item.id == query.after]
        if not places:
            raise bad("after", f"there is no item {query.after!r}")
        begin = places[0]
    data = ordered[begin : begin + query.limit]
    return ItemList(
        data=tuple(data),
        first_id=data[0].id if data else "",
        last_id=data[-1].id if data else "",
        has_more=begin + len(data) < len(ordered),
    )


def input_of(request: TurnRequest) -> tuple[Message, ...]:
    """Return what a turn is asked, as far as its input has it: of a fork, only what is new."""
    said = request.said or ()
    if request.origin is not None and not request.origin.is_session:
        new = (UserMessage.of(request.origin.say),) if request.origin.say else ()
        return (*new, *said)
    return (*request.history, opening(request.task, request.context), *said)


def items_of(messages: Iterable[Message], prefix: str) -> Iterator[ListedItem]:
    """Yield the items of messages; the id of each begins with `prefix`, and ends in its number."""
    messages = list(messages)
    results = {
        result.call_id: result
        for message in messages
        if isinstance(message, ToolMessage)
        for result in message.results
    }
    made = chain.from_iterable(_items(message, results) for message in messages)
    for number, item in enumerate(made, 1):
        yield item.model_copy(update={"id": f"{prefix}{number}"})


def _items(message: Message, results: dict[str, ToolResult]) -> Iterator[ListedItem]:
    match message:
        case UserMessage():
            yield InputMessageItem(id="", content=tuple(map(_part, message.parts)))
        case AssistantMessage():
            if message.text:
                text = OutputText(text=message.text)
                phase: Literal["commentary", "final_answer"]
                phase = "commentary" if message.calls else "final_answer"
                yield OutputMessage(id="", status="completed", content=(text,), phase=phase)
            for call in message.calls:
                item = ToolCallItem(
                    id="", name=call.name, arguments=call.arguments, status="incomplete"
                )
                yield item.model_copy(update=_end(results.get(call.id)))


def _end(result: ToolResult | None) -> dict[str, Any]:
    """Return the fields of a call that its result has."""
    if result is None:
        return {}
    if result.is_error:
        return {"status": "failed", "error": ToolError(content=result.content)}
    return {"status": "completed", "output": result.content}


def _part(part: Text | Media) -> InputText | InputImage | InputFile:
    if isinstance(part, Text):
        return InputText(text=part.text)
    data = f"data:{part.media_type};base64,{part.data}" if part.data else None
    if part.media_type.startswith("image/"):
        return InputImage(image_url=part.url or data or "")
    return InputFile(file_data=data, file_url=part.url)
