"""Creates and validates the input of a turn from a caller's arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from pydantic import JsonValue, ValidationError

from perdure import errors, limits, validation
from perdure.agents.agent import Agent
from perdure.schemas import output_type
from perdure.temporal.names import MEMO
from perdure.text import markdown, word
from perdure.turn.wire import Origin, TurnRequest
from perdure.values import keywords
from perdure.values.budgets import Budget
from perdure.values.messages import Media, UserMessage
from perdure.values.options import RequestOptions
from perdure.values.tasks import Task, headline, opening
from perdure.values.turn_options import TurnOptions


def turn_request(
    agent: Agent[Any] | str,
    task: str | Task,
    *,
    output: Any = None,
    model: str | None = None,
    live: bool = False,
    **options: Unpack[TurnOptions],
) -> TurnRequest:
    """The input of a turn.

    Raises:
        TypeError: There is no such option.
        TooLargeError: The input is too large.
        InvalidRequestError: It is not valid.
        ConfigurationError: The output type is not supported.
    """
    keywords.check("a turn", options, TurnOptions)
    arguments = {"agent": agent, "task": task, "output": output, **options}
    fields = {**fields_of(arguments), "model": model, "live": live}
    try:
        request = TurnRequest.model_validate(fields)
        request.check()
    except ValidationError as error:
        raise _refused(error) from None
    return request


def _refused(error: ValidationError) -> errors.InvalidRequestError:
    """Return the error for an input that a program gave."""
    places = [problem["loc"] for problem in error.errors(include_url=False)]
    first = next((location for location in places if location[0:1] == ("history",)), ())
    if len(first) > 1:  # each kind of message has its reasons
        reason = (
            f"history[{first[1]}] is no message of Perdure: give UserMessage, AssistantMessage and"
            " ToolMessage, report.messages of another turn, or what MessagesTypeAdapter reads"
        )
    else:
        reason = validation.in_words(error, TurnRequest.model_fields)
    return errors.InvalidRequestError(f"the turn cannot be started: {reason}")


def changed(request: TurnRequest, changes: Mapping[str, Any]) -> TurnRequest:
    """Return the input of a turn with other arguments of `turn_request` where `changes` has them.

    Raises:
        TooLargeError: The input is too large.
        InvalidRequestError: It is not valid.
        ConfigurationError: The output type is not supported.
    """
    try:
        new = TurnRequest.model_validate({**dict(request), **fields_of(changes)})
        new.check()
    except ValidationError as error:
        raise _refused(error) from None
    return new


def fields_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of `turn_request`, or of a session, as fields of the input.

    Raises:
        InvalidRequestError: There is an output type as well as a schema.
        ConfigurationError: The output type is not supported.
    """
    fields = dict(arguments)
    agent, context = arguments.get("agent"), arguments.get("context")
    if isinstance(agent, Agent):
        fields["agent"] = agent.name
    if isinstance(context, Mapping):
        fields["context"] = {"blocks": dict(context)}
    if arguments.get("labels", ()) is None:
        fields["labels"] = {}
    output, schema = fields.pop("output", None), arguments.get("output_schema")
    if output is not None and schema is not None:
        raise errors.InvalidRequestError("give output or output_schema, not both")
    if "output" in arguments and schema is None:
        fields["output_schema"] = output_type.schema_of(output)
    return {
        name: _listed(value) if name in ("history", "allowed_tools", "client_tools") else value
        for name, value in fields.items()
    }


def fork_of(
    request: TurnRequest, origin: Origin, *, said: Sequence[UserMessage] = (), **changes: Any
) -> TurnRequest:
    """Return the input of a turn that continues another turn, whose input is `request`.

    `changes` has the fields that differ; None keeps what the other turn was given, except for
    `on_done` and `on_wait`. Limits of a budget and options override each of the other turn. `said`
    are messages that the other turn's model has not read.

    Raises:
        TooLargeError: The message to the fork, or the labels, are too large.
        InvalidRequestError: A field is not valid.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    fields = {name: _listed(v) if name == "client_tools" else v for name, v in given.items()}
    urls = {"on_done": None, "on_wait": None}
    fields = {**urls, **fields}  # who waits for the other turn did not ask for this one
    budget = fields.get("budget")
    if isinstance(budget, Budget):
        fields["budget"] = budget.over(request.budget)
    options = fields.get("options")
    if isinstance(options, RequestOptions) and request.options is not None:
        fields["options"] = options.over(request.options)
    agent = fields.get("agent")
    if agent is not None:  # the caller's choice, whose own rules hold
        name = agent.name if isinstance(agent, Agent) else agent
        fields = {"version": None, **fields, "agent": name, "handed_to": None}
    here: dict[str, Any] = {"context": None, "history": (), "lineage": None, "origin": origin}
    subject = request.subject_of(origin.turn_id)
    if subject != origin.turn_id:
        here["origin"] = origin.model_copy(update={"subject": subject})
    here |= {"said": said or None, "session": None, "schedule": None}
    here |= {"delay": None, "deadline": None}  # moments in the life of the other turn
    try:
        fork = TurnRequest.model_validate({**dict(request), **fields, **here})
        fork.check()
    except ValidationError as error:
        raise _refused(error) from None
    return fork


def refuse_silence(request: TurnRequest) -> None:
    """Reject a turn without a task; a context alone is sufficient.

    Raises:
        InvalidRequestError: Task and context have no text, no image and no file.
    """
    if request.origin is not None:
        return  # the task is in the messages that it takes over
    if not any(
        isinstance(part, Media) or part.text.strip()
        for part in opening(request.task, request.context).parts
    ):
        raise errors.InvalidRequestError(
            "the task is empty: give text, an image or a file, or a context with the request"
        )


def introduced(request: TurnRequest, trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the start options of a turn: its summary, its memo and the timeout of its tasks.

    `trace` is the memo of the caller's trace. The web UI renders the summary as Markdown.
    """
    line = headline(request.task)
    memo = {"agent": request.agent, "task": line, **forked_from(request)}
    return {
        "static_summary": f"{markdown(word(request.agent))}: {markdown(line)}",
        "memo": {MEMO: memo, **trace},
        "task_timeout": limits.TASK_TIMEOUT,
    }


def forked_from(request: TurnRequest | None) -> dict[str, Any]:
    """Return the field of the memo that says from where a fork continues; empty for other turns."""
    origin = request and request.forked_from
    return {"forked_from": origin.model_dump(exclude_none=True)} if origin else {}


def type_of(
    agent: Agent[Any] | str, output: Any, output_schema: Mapping[str, JsonValue] | None = None
) -> Any:
    """Return the type of the answer: the requested one, else the agent's; None if unknown.

    With a schema in place of a type, it is None, for JSON values.
    """
    if output is not None or output_schema is not None:
        return output
    return agent.output or str if isinstance(agent, Agent) else None


def _listed(value: Any) -> Any:
    """Return an iterable as a tuple; other values unchanged, for pydantic to reject."""
    return (
        tuple(value)
        if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        else value
    )
