"""The input of a turn, made from what a caller says: checked before anything is started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from pydantic import ValidationError

from perdure import errors, limits, validation
from perdure.agents.agent import Agent
from perdure.schemas import output_type
from perdure.temporal.names import MEMO
from perdure.temporal.payloads import explain
from perdure.text import markdown, word
from perdure.turn.wire import TurnRequest
from perdure.values import keywords
from perdure.values.messages import Media
from perdure.values.tasks import Task, headline, opening
from perdure.values.turn_options import TurnOptions


def turn_request(
    agent: Agent[Any] | str,
    task: str | Task,
    *,
    output: Any = None,
    model: str | None = None,
    live: bool = False,
    **given: Unpack[TurnOptions],
) -> TurnRequest:
    """The input of a turn.

    Raises:
        TypeError: There is no such option.
        TooLargeError: The input is too large.
        InvalidRequestError: It is not valid.
        ConfigurationError: No model can be held to the output type.
    """
    keywords.check("a turn", given, TurnOptions)
    context, labels = given.get("context"), given.get("labels")
    fields = {
        **given,
        "agent": agent.name if isinstance(agent, Agent) else agent,
        "task": task,
        "context": {"blocks": dict(context)} if isinstance(context, Mapping) else context,
        "history": _listed(given.get("history", ())),
        "labels": {} if labels is None else labels,
        "output_schema": output_type.schema_of(output),
        "model": model,
        "allowed_tools": _listed(given.get("allowed_tools")),
        "live": live,
    }
    try:
        request = TurnRequest.model_validate(fields)
        request.check()
    except ValidationError as error:
        raise errors.InvalidRequestError(f"the turn cannot be started: {explain(error)}") from None
    return request


def refuse_silence(request: TurnRequest) -> None:
    """Refuse a turn in which nothing is asked. A context alone may say it.

    Raises:
        InvalidRequestError: Task and context hold no word, no image and no file.
    """
    if not any(
        isinstance(part, Media) or part.text.strip()
        for part in opening(request.task, request.context).parts
    ):
        raise errors.InvalidRequestError(
            "the task is empty: give a text, an image or a file, or a context that says what is"
            " asked"
        )


def checked_id(turn_id: str) -> str:
    """The id of a turn that is to be started.

    Raises:
        InvalidRequestError: It is no text, empty, too long, or has a character that is not
            printable.
    """
    validation.check(
        "the turn", {"id": turn_id}, {"id": validation.Text}, errors.InvalidRequestError
    )
    if not 0 < len(turn_id) <= limits.TURN_ID_CHARACTERS:
        raise errors.InvalidRequestError(
            f"a turn's id has 1 to {limits.TURN_ID_CHARACTERS} characters, not {len(turn_id)}"
        )
    if not turn_id.isprintable():
        raise errors.InvalidRequestError("a turn's id has printable characters only")
    return turn_id


def introduced(request: TurnRequest, trace: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a turn's start.

    How it introduces itself in Temporal's lists, and how long its workflow tasks may take.

    `trace` is the memo that says whose trace it goes on in. The web UI shows the summary as
    Markdown.
    """
    line = headline(request.task)
    return {
        "static_summary": f"{markdown(word(request.agent))}: {markdown(line)}",
        "memo": {MEMO: {"agent": request.agent, "task": line}, **trace},
        "task_timeout": limits.TASK_TIMEOUT,
    }


def type_of(agent: Agent[Any] | str, output: Any) -> Any:
    """What an answer is read as: the type that was asked for, else the agent's own.

    None where nobody knows.
    """
    if output is not None:
        return output
    return agent.output or str if isinstance(agent, Agent) else None


def _listed(given: Any) -> Any:
    """Any iterable as a tuple; what is a text or no iterable, as it is, for pydantic to refuse."""
    return (
        tuple(given)
        if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
        else given
    )
