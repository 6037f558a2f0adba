"""An offline model that answers by quoting files. It is not a language model.

It follows four rules: search for the words of the question, read on from the best match, quote the
best paragraphs with their source, and report if nothing was found. It understands neither the
question nor the answer. It lets you try Perdure without a key or a network, and runs through the
same turn as any other model. The same request always gets the same answer. Its tokens are words.

It supports the output limit, stop sequences and the tool choice `none`. Temperature has no effect,
as nothing is random. It cannot be forced to call a tool, and its requests have no body, so a tool
choice that demands a call and `extra` are rejected.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue, ValidationError

from perdure import errors
from perdure.activities.provider import ModelRequest
from perdure.activities.toolboxes.folder import Excerpt, FolderListing, Matches
from perdure.activities.toolboxes.search import Match, keywords, sections, stems
from perdure.values.answers import ModelAnswer
from perdure.values.messages import (
    AssistantMessage,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from perdure.values.options import RequestOptions
from perdure.values.reports import StopReason, Usage

NAME = "librarian"

_WORDS, _MATCHES, _LINES, _FILES = 32, 5, 120, 10
_ANSWER = 1200  # characters of the quotation


class Librarian:
    """Answers from a folder through `search_files`, `read_file` and `list_files`."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Return the next tool call or the answer.

        Raises:
            LLMInvalidRequestError: The request names another model, or an option that the librarian
                does not support.
        """
        _check(request)
        message, stop = _limited(_Desk.of(request).reply(), request.options)
        usage = Usage(
            input_tokens=_count(_texts(request)), output_tokens=_count(_texts_of(message))
        )
        return ModelAnswer(message=message, stop=stop, usage=usage, model=NAME)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


@dataclass(frozen=True, slots=True)
class _Desk:
    """The librarian's input: the question's words, the tools, and each tool's latest result."""

    terms: Sequence[str]
    tools: frozenset[str]
    results: dict[str, ToolResult]
    calls: int

    @classmethod
    def of(cls, request: ModelRequest) -> _Desk:
        since = max(
            (at for at, message in enumerate(request.messages) if isinstance(message, UserMessage)),
            default=0,
        )
        results = [
            result
            for message in request.messages[since:]
            if isinstance(message, ToolMessage)
            for result in message.results
        ]
        return cls(
            terms=keywords(_question(request.messages[since:]))[:_WORDS],
            tools=frozenset(
                item.name for item in request.tools if request.options.tool_choice != "none"
            ),
            results={result.name: result for result in results},
            calls=sum(
                len(message.calls)
                for message in request.messages
                if isinstance(message, AssistantMessage)
            ),
        )

    def reply(self) -> AssistantMessage:
        failed = next((result for result in self.results.values() if result.is_error), None)
        if failed is not None:
            return _message(f"I could not look it up: {failed.content}")
        if not self.terms:
            return _message("I can only look words up, and this question has none.")
        try:
            return self._next()
        except ValidationError:
            return _message("I could not look it up: a tool answered in a form that I cannot read.")

    def _next(self) -> AssistantMessage:
        if "search_files" not in self.results:
            return self._search()
        matches = Matches.model_validate_json(self.results["search_files"].content)
        if not matches.matches:
            return self._nothing(matches)
        best = matches.matches[0]
        if "read_file" in self.results:
            return _message(
                _quoted(
                    Excerpt.model_validate_json(self.results["read_file"].content),
                    best,
                    self.terms,
                )
            )
        if "read_file" in self.tools:
            return self._calls("read_file", path=best.path, first_line=best.line, lines=_LINES)
        return _message(_quoted(_as_excerpt(best), best, self.terms))

    def _search(self) -> AssistantMessage:
        if "search_files" not in self.tools:
            return _message(
                "I am no language model. I can only look things up with the tools search_files and"
                " read_file, and I have none here."
            )
        return self._calls("search_files", query=" ".join(self.terms), limit=_MATCHES)

    def _nothing(self, matches: Matches) -> AssistantMessage:
        if "list_files" in self.tools and "list_files" not in self.results:
            return self._calls("list_files")
        lines = [
            (
                f"I found nothing about this. I searched {matches.files} files for:"
                f" {', '.join(self.terms)}."
            )
        ]
        if matches.note:
            lines.append(f"The search says: {matches.note}.")
        if "list_files" in self.results:
            files = FolderListing.model_validate_json(self.results["list_files"].content).files
            more = f" and {len(files) - _FILES} more" if len(files) > _FILES else ""
            lines.append(
                f"The folder has {', '.join(files[:_FILES])}{more}."
                if files
                else "The folder has no files."
            )
        return _message("\n".join(lines))

    def _calls(self, name: str, **arguments: JsonValue) -> AssistantMessage:
        call = ToolCall(
            id=f"call_{self.calls + 1}",
            name=name,
            arguments=json.dumps(arguments, ensure_ascii=False),
        )
        return AssistantMessage(parts=(call,))


def _check(request: ModelRequest) -> None:
    if request.model != NAME:
        raise errors.LLMInvalidRequestError(
            f"the only model here is {NAME!r}, not {request.model!r}"
        )
    if request.options.extra:
        raise errors.LLMInvalidRequestError(
            f"{NAME} does not support {', '.join(sorted(request.options.extra))}: options.extra is"
            " for other models"
        )
    if request.tools and request.options.tool_choice not in (None, "auto", "none"):
        raise errors.LLMInvalidRequestError(
            f"{NAME} cannot be made to call a tool: options.tool_choice may be auto or none"
        )


def _limited(
    message: AssistantMessage, options: RequestOptions
) -> tuple[AssistantMessage, StopReason]:
    """Apply the stop sequences and the output limit; return the message and the stop reason."""
    stop = StopReason.TOOL_CALLS if message.calls else StopReason.END
    begins = [
        at for sequence in options.stop_sequences or () if (at := message.text.find(sequence)) >= 0
    ]
    if begins:
        message = _message(message.text[: min(begins)])
        stop = StopReason.STOP_SEQUENCE
    limit = options.max_output_tokens
    if limit is not None and _count(_texts_of(message)) > limit:
        message = _message(_first_words(message.text, limit))
        stop = StopReason.MAX_TOKENS
    return message, stop


def _first_words(text: str, count: int) -> str:
    ends = [word.end() for word in itertools.islice(re.finditer(r"\S+", text), count)]
    return text[: ends[-1]] if ends else ""


def _message(text: str) -> AssistantMessage:
    return AssistantMessage(parts=(Text(text=text),))


def _question(messages: Sequence[Message]) -> str:
    """Return the last text of the first user message: the task, which follows context blocks."""
    parts = messages[0].parts if messages and isinstance(messages[0], UserMessage) else ()
    return next((part.text for part in reversed(parts) if isinstance(part, Text)), "")


def _as_excerpt(match: Match) -> Excerpt:
    last = match.line + match.text.count("\n")
    return Excerpt(
        path=match.path, first_line=match.line, last_line=last, total_lines=last, text=match.text
    )


def _quoted(excerpt: Excerpt, match: Match, terms: Sequence[str]) -> str:
    section = next(sections(excerpt.path, excerpt.text))
    begin, text = _best_part(section.lines, terms)
    there, *each = stems([f"{text} {match.heading} {match.path}", *terms])
    missing = [word for word, its in zip(terms, each, strict=True) if not its <= there]
    doubt = (
        f"Nothing fits well: the closest passage does not have the words {', '.join(missing)}.\n\n"
        if 2 * len(missing) > len(terms)
        else ""
    )
    return f"{doubt}{text}\n\nSource: {excerpt.path}:{excerpt.first_line + begin}"


def _best_part(lines: Sequence[str], terms: Sequence[str]) -> tuple[int, str]:
    """Return (index of the first line, text) of the passage to quote.

    It is the paragraph with the most words, extended downwards and then upwards as far as it fits.
    """
    blocks = list(_blocks(lines)) or [(0, len(lines))]
    query, *each = stems([" ".join(terms), *(" ".join(lines[begin:end]) for begin, end in blocks)])
    having = [len(query & its) for its in each]
    begin, end = _extended(lines, blocks, having.index(max(having)))
    text = "\n".join(lines[begin:end])
    return begin, text if len(text) <= _ANSWER else text[: _ANSWER - 1] + "…"


def _extended(
    lines: Sequence[str], blocks: Sequence[tuple[int, int]], best: int
) -> tuple[int, int]:
    """Return (begin, end) of a paragraph with those after it, then before it, that fit."""
    first = last = best
    while (
        last + 1 < len(blocks) and _length(lines[blocks[first][0] : blocks[last + 1][1]]) <= _ANSWER
    ):
        last += 1
    while first > 0 and _length(lines[blocks[first - 1][0] : blocks[last][1]]) <= _ANSWER:
        first -= 1
    return blocks[first][0], blocks[last][1]


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of each paragraph; paragraphs too long for an answer are split by line."""
    for is_text, group in itertools.groupby(
        range(len(lines)), key=lambda number: bool(lines[number].strip())
    ):
        numbers = list(group)
        if is_text and _length(lines[numbers[0] : numbers[-1] + 1]) <= _ANSWER:
            yield numbers[0], numbers[-1] + 1
        elif is_text:
            yield from ((number, number + 1) for number in numbers)


def _length(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines) - 1


def _texts(request: ModelRequest) -> Iterator[str]:
    yield request.system
    yield from (f"{item.name} {item.description}" for item in request.tools)
    for message in request.messages:
        yield from _texts_of(message)


def _texts_of(message: Message) -> Iterator[str]:
    if isinstance(message, ToolMessage):
        yield from (result.content for result in message.results)
        return
    yield message.text
    if isinstance(message, AssistantMessage):
        yield from (f"{call.name} {call.arguments}" for call in message.calls)


def _count(texts: Iterator[str]) -> int:
    return sum(len(text.split()) for text in texts)
