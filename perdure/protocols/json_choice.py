"""The JSON protocol: every reply is an object with a tool call or an answer.

A schema allows nothing else. The protocol is for small models on servers that enforce a schema
during generation (vLLM, llama.cpp, Ollama): their replies are then always valid. If a server does
not, the model is told what was wrong.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from typing import Any

from perdure.protocols.arguments import call_in, dumped, object_in
from perdure.protocols.choices import schema_of
from perdure.protocols.prompt import Prompt, described
from perdure.protocols.spoken import Words, in_words, reasoning
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Text, Thinking, ToolCall, ToolResult
from perdure.values.reports import StopReason

NAME = "reply"
"""The name of the schema, for APIs that require one."""

_PLACES = 20
"""The number of opening braces to try before the object of a model without enforcement."""

_TOOLS = """\
You have these tools:

{tools}

Reply with one JSON object and nothing else. \
To use a tool: {{"name": "the tool", "arguments": {{…}}}}. \
You will be given its result, and then
reply again, as often as you need. To answer, when you know enough: {{"answer": {answer}}}."""
_ANSWER = """You have no tools now. Reply with one JSON object and nothing else: \
{{"answer": {answer}}}."""
_NEITHER = (
    "Your reply is no JSON object with a tool's name and arguments, and none with an answer, so"
    " nothing was done."
)
_OBJECTION = (
    f'{_NEITHER} Reply again, with {{"name": "the tool", "arguments": {{…}}}} or {{"answer": "…"}}'
    " and nothing else."
)


def ask(prompt: Prompt) -> Prompt:
    """Return the prompt with tools described in text and the choice as the response schema.

    Raises:
        LLMInvalidRequestError: The options demand a tool that does not exist.
    """
    demands = prompt.options.tool_choice not in (None, "auto", "none")
    return replace(
        prompt,
        system=f"{prompt.system}\n\n{_forms(prompt)}" if prompt.system.strip() else _forms(prompt),
        messages=in_words(
            prompt.messages,
            Words(_call, _typed_answer if prompt.response_schema else _answer, _result, _NEITHER),
        ),
        tools=(),
        options=prompt.options.model_copy(update={"tool_choice": None}),
        response_schema=schema_of(
            prompt.offered,
            None if demands and prompt.offered else prompt.response_schema or {"type": "string"},
        ),
        response_name=NAME,
    )


def read(answer: ModelAnswer, prompt: Prompt, *, corrects: bool) -> ModelAnswer:
    """Parse the call or the answer from the object in `answer`."""
    thought, text = _split_reasoning(answer.message.text)
    if answer.message.calls or answer.stop is StopReason.REFUSED or not text.strip():
        return answer
    part = _first_reply(text, prompt)
    if part is None:
        is_cut_off = answer.stop is StopReason.MAX_TOKENS
        return answer.model_copy(
            update={
                "objection": (
                    _OBJECTION
                    if not is_cut_off and (corrects or "{" in text) and prompt.offered
                    else ""
                )
            }
        )
    is_call = isinstance(part, ToolCall) and answer.stop is not StopReason.MAX_TOKENS
    thinking = (*reasoning(answer.message), *([Thinking(text=thought)] if thought else []))
    message = AssistantMessage(parts=(*thinking, part))
    return answer.model_copy(
        update={"message": message, "stop": StopReason.TOOL_CALLS if is_call else answer.stop}
    )


def _split_reasoning(text: str) -> tuple[str, str]:
    """Split the text of a reasoning model into its reasoning and its reply."""
    before, tag, after = text.rpartition("</think>")
    if not tag or before.lstrip().startswith("{"):
        return "", text
    return before.strip().removeprefix("<think>").strip(), after


def _first_reply(text: str, prompt: Prompt) -> ToolCall | Text | None:
    """Return the call or the answer of the first object that holds either."""
    places = itertools.islice(re.finditer(r"\{", text), _PLACES)
    objects = (object_in(text, brace.start()) for brace in places)
    return next(
        (part for value in objects if value and (part := _reply_in(value[1], prompt))), None
    )


def _reply_in(value: dict[str, Any], prompt: Prompt) -> ToolCall | Text | None:
    call = call_in(value) if prompt.offered else None
    if call is not None:
        return ToolCall(id="", name=call[0], arguments=call[1])
    answer = (
        value
        if prompt.response_schema is not None and "answer" not in value
        else value.get("answer")
    )
    text = answer if isinstance(answer, str) else dumped(answer)
    return Text(text=text) if answer is not None and text.strip() else None


def _forms(prompt: Prompt) -> str:
    answer = (
        f"your answer, by this schema: {dumped(prompt.response_schema)}"
        if prompt.response_schema
        else '"your answer"'
    )
    tools = "\n\n".join(map(described, prompt.offered))
    return _TOOLS.format(tools=tools, answer=answer) if tools else _ANSWER.format(answer=answer)


def _call(thought: str, call: ToolCall) -> str:
    return f'{{"name": {dumped(call.name)}, "arguments": {_json(call.arguments or "{}")}}}'


def _json(text: str) -> str:
    """Return JSON text as written, which is no longer than reserved; else a JSON string of it."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return dumped(text)
    return text


def _answer(thought: str, text: str) -> str:
    return dumped({"answer": text})


def _typed_answer(thought: str, text: str) -> str:
    return f'{{"answer": {_json(text)}}}'


def _result(result: ToolResult) -> str:
    return f"Result of {result.name}:\n{result.content}"
