"""The ReAct protocol: tools, calls and results as plain text.

Calls and answers are rendered in the format that the system prompt requests, so that the model's
own messages are examples of it.
"""

from __future__ import annotations

from dataclasses import replace

from perdure import errors
from perdure.protocols.arguments import dumped, object_in
from perdure.protocols.prompt import Prompt, described
from perdure.protocols.react_parser import ParsedReply, parse
from perdure.protocols.spoken import Words, in_words, reasoning
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Text, Thinking, ToolCall, ToolResult
from perdure.values.reports import StopReason

STOP = "\nObservation:"
"""Where a model begins to invent a result.

It is sent unless the options set stop sequences, even an empty list, as some models reject the
parameter.
"""

_TOOLS = """\
You have these tools:

{tools}

Reply in one of two forms and in no other. To use a tool:

Thought: why you need it
Action: the name of one tool: {names}
Action Input: its arguments as one JSON object

Stop after the Action Input. You will be given the result as an Observation; \
never write one yourself. Then reply again, as often as you need.

To answer, when you know enough:

Thought: why you know enough
Final Answer: {answer}"""
_ANSWER = """\
You have no tools now. Reply in this form:

Thought: what you know
Final Answer: {answer}"""
_NEITHER = "Your reply has neither an Action nor a Final Answer, so nothing was done."
_OBJECTION = f"""\
{_NEITHER} Reply again in one of these forms and in no other:

Thought: why you need a tool
Action: the name of one tool
Action Input: its arguments as one JSON object

Thought: why you know enough
Final Answer: your answer"""


def ask(prompt: Prompt) -> Prompt:
    """Return the prompt with tools, calls and results rendered as text.

    Raises:
        LLMInvalidRequestError: The options demand a call, which text cannot enforce.
    """
    if prompt.options.tool_choice not in (None, "auto", "none"):
        raise errors.LLMInvalidRequestError(
            f"tool_choice {prompt.options.tool_choice!r} cannot be kept by the protocol react_text;"
            " choose 'auto' or 'none', or the protocol 'json'"
        )
    options = prompt.options
    stops = (STOP,) if options.stop_sequences is None and prompt.offered else options.stop_sequences
    return replace(
        prompt,
        system=f"{prompt.system}\n\n{_forms(prompt)}" if prompt.system.strip() else _forms(prompt),
        messages=in_words(prompt.messages, _WORDS),
        tools=(),
        options=options.model_copy(update={"stop_sequences": stops, "tool_choice": None}),
        response_schema=None,
    )


def read(answer: ModelAnswer, prompt: Prompt, *, corrects: bool) -> ModelAnswer:
    """Parse the call or the answer from the text of `answer`."""
    text = answer.message.text
    if answer.message.calls or answer.stop is StopReason.REFUSED or not text.strip():
        return answer
    reply = parse(text, prompt.offered)
    if (
        not reply.action
        and not reply.answer
        and prompt.response_schema is not None
        and object_in(text)
    ):
        reply = ParsedReply(answer=text.strip())
    if not reply.action and not reply.answer:
        return answer.model_copy(
            update={"objection": _objection(answer, prompt) if corrects else ""}
        )
    part = (
        ToolCall(id="", name=reply.action, arguments=reply.arguments)
        if reply.action
        else Text(text=reply.answer)
    )
    message = AssistantMessage(parts=(*_thinking(answer.message, reply), part))
    is_call = reply.action and answer.stop is not StopReason.MAX_TOKENS
    return answer.model_copy(
        update={"message": message, "stop": StopReason.TOOL_CALLS if is_call else answer.stop}
    )


def _objection(answer: ModelAnswer, prompt: Prompt) -> str:
    """Return the objection to text that is neither; empty if the text was stopped or cut off."""
    was_stopped = answer.stop is StopReason.STOP_SEQUENCE and prompt.options.stop_sequences
    if not prompt.offered or was_stopped or answer.stop is StopReason.MAX_TOKENS:
        return ""
    return _OBJECTION


def _thinking(message: AssistantMessage, reply: ParsedReply) -> tuple[Thinking, ...]:
    """Return the reasoning, then the Thought.

    The Thought is empty if there is only reasoning, which is not sent to the model again.
    """
    before = (*reasoning(message), *([Thinking(text=reply.reasoning)] if reply.reasoning else []))
    is_apart = any(not part.signature and not part.redacted for part in before)
    return (*before, Thinking(text=reply.thought)) if reply.thought or is_apart else before


def _forms(prompt: Prompt) -> str:
    answer = (
        f"your answer, as JSON that fits this schema: {dumped(prompt.response_schema)}"
        if prompt.response_schema
        else "your answer"
    )
    if not prompt.offered:
        return _ANSWER.format(answer=answer)
    names = ", ".join(tool.name for tool in prompt.offered)
    return _TOOLS.format(
        tools="\n\n".join(map(described, prompt.offered)), names=names, answer=answer
    )


def _call(thought: str, call: ToolCall) -> str:
    return f"{_label(thought)}Action: {call.name}\nAction Input: {call.arguments or '{}'}"


def _answer(thought: str, text: str) -> str:
    return f"{_label(thought)}Final Answer: {text}"


def _result(result: ToolResult) -> str:
    return f"Observation: {result.content}"


def _label(thought: str) -> str:
    return f"Thought: {thought}\n" if thought else ""


_WORDS = Words(call=_call, answer=_answer, result=_result, objection=_NEITHER)
