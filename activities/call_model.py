"""Calls models. The workflow owns the retries, so nothing below it retries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal

from pydantic import JsonValue
from temporalio import activity
from temporalio.exceptions import FailureError

from perdure import errors, limits, protocols
from perdure.activities import streaming
from perdure.activities.answer_checks import Answers, checked
from perdure.activities.live_text import LiveTexts
from perdure.activities.pricing import Prices
from perdure.activities.provider import ModelRequest, Models, Provider, refuse_many_calls
from perdure.activities.transcripts import Transcripts
from perdure.agents.tracebacks import raised
from perdure.errors import PerdureError
from perdure.protocols import Prompt
from perdure.schemas import output_type
from perdure.schemas.strict_schema import strict
from perdure.text import size
from perdure.turn import fallback, handoffs, media, undo
from perdure.turn.circuit_breaker import Health
from perdure.turn.context_window import sent, shortened
from perdure.turn.keys import ModelKey, parse_key
from perdure.turn.retries import asked_pause_s
from perdure.turn.state import TurnState
from perdure.turn.wire import ModelCall
from perdure.values.answers import ModelAnswer
from perdure.values.messages import with_plain_ids
from perdure.values.reports import StopReason, Usage

_NOT_SAID = ("type", "id")
"""Fields of a part that do not count towards its size: an id that is too long is replaced."""
_SHORT_BYTES = 20_000
"""An answer of up to this size is parsed on the event loop; a thread would take longer."""


class ModelActivities:
    """The activity that calls a model: one request for each attempt."""

    def __init__(
        self,
        models: Models,
        prices: Prices,
        transcripts: Transcripts,
        answers: Answers,
        texts: LiveTexts,
    ) -> None:
        self._answers = answers
        self._health = Health()
        self._models = models
        self._texts = texts
        self._prices = prices
        self._transcripts = transcripts

    async def call_model(self, call: ModelCall) -> ModelAnswer:
        """Load the transcript that `call` refers to, call the model and cache the answer.

        Raises:
            LLMError: The provider's error, or an answer without content or with too many calls.
            TooLargeError: The answer does not fit into history.
            TranscriptMismatchError: History does not hold the transcript; nothing was sent.
            ConfigurationError: The provider is not set up on this worker, or a validator of the
                output type does not return in time.
            InvalidRequestError: The turn's output schema is invalid.
        """
        info = activity.info()
        state = await self._transcripts.load(activity.client(), info, call)
        assert state.agent is not None
        if state.request is not None and state.request.undo is not None:
            answer = undo.answer(state)
            self._remember(info, state, answer)
            return answer
        model = call.model or state.agent.model
        provider, name = self._models.find(model)
        if call.others:
            self._refuse_benched(model)
        protocol = protocols.named(state.agent.protocol)
        prompt = _prompt(call, state, model)
        request = _request(call, state, model, name, protocol.ask(prompt))
        check = await self._answers.check_of(state)

        def plain(error: errors.LLMInvalidRequestError) -> ModelRequest | None:
            less = _without_rejected_media(prompt, state, error)
            if less is None:
                return None
            return _request(call, state, model, name, protocol.ask(less))

        answer = await self._ask(provider, request, model, state, plain)
        _refuse_many_calls(model, answer)
        length = _size(answer)
        _refuse_large(model, answer, length)
        answer = answer.model_copy(
            update={"message": fallback.with_author(with_plain_ids(answer.message), model)}
        )
        corrects = state.agent.unmarked == "correct"
        if length <= _SHORT_BYTES:
            answer = protocol.read(answer, prompt, corrects=corrects)
        else:
            answer = await asyncio.to_thread(protocol.read, answer, prompt, corrects=corrects)
        _refuse_nothing(model, answer)
        self._health.succeeded(model)
        try:
            answer = await checked(answer, state, check)
        except errors.PerdureError as error:
            error.context.update(_billed(model, answer))
            raise
        message = await self._answers.with_arguments(answer.message, state.agent)
        answer = answer.model_copy(update={"message": message})
        self._remember(info, state, answer)
        return answer

    async def _ask(
        self,
        provider: Provider,
        request: ModelRequest,
        model: str,
        state: TurnState,
        plain: Callable[[errors.LLMInvalidRequestError], ModelRequest | None],
    ) -> ModelAnswer:
        """Send the request, and return the answer with its duration, its model and its cost.

        `plain` returns the request to send instead of a request that the provider rejected; None if
        there is none.

        Raises:
            LLMError: The provider's error, with the cost if it is known.
        """
        began = time.monotonic()
        try:
            try:
                answer = await _answer(self._asked(provider, request, state), model)
            except errors.LLMInvalidRequestError as error:
                instead = plain(error)
                if instead is None:
                    raise
                request = instead
                answer = await _answer(self._asked(provider, request, state), model)
        except errors.LLMError as error:
            self._note_failure(model, error)
            await self._price_failure(error, model, state, request)
            raise
        duration_ms = int((time.monotonic() - began) * 1000)
        cost = answer.cost
        if cost is None:
            cost = await self._cost(model, answer.model, answer.usage, state, request)
        fields = {
            "duration_ms": duration_ms,
            "model": "" if answer.model == request.model else answer.model,
            "cost": cost,
        }
        return answer.model_copy(update=fields)

    def _asked(
        self, provider: Provider, request: ModelRequest, state: TurnState
    ) -> Awaitable[ModelAnswer]:
        """Send the request; in a live turn, stream the answer.

        With a text protocol (ReAct, JSON) nothing is streamed, as the text is not the answer's.
        """
        is_live = (
            state.request is not None
            and state.request.live
            and state.agent is not None
            and state.agent.protocol == "native"
        )
        if is_live:
            return streaming.tell(provider, request, self._texts)
        return provider.complete(request)

    def _remember(self, info: activity.Info, state: TurnState, answer: ModelAnswer) -> None:
        """Cache the answer, so that the next call need not read it from history."""
        key = parse_key(info.activity_id)
        assert isinstance(key, ModelKey)
        assert info.workflow_run_id is not None
        self._transcripts.remember_answer(info.workflow_run_id, state, key, answer)

    def _refuse_benched(self, model: str) -> None:
        """Refuse a model that has recently failed in this process, so that the turn tries another.

        Raises:
            LLMUnavailableError: The model is benched.
        """
        left_s = self._health.benched_s(model, asyncio.get_running_loop().time())
        if left_s:
            context: dict[str, JsonValue] = {
                "model": model,
                fallback.SKIPPED: True,
                "charged": False,
            }
            raise errors.LLMUnavailableError(
                f"{model} has failed in other turns too and is skipped for another {left_s:.0f} s",
                context=context,
            )

    def _note_failure(self, model: str, error: errors.LLMError) -> None:
        if fallback.is_penalty(error):
            now_s = asyncio.get_running_loop().time()
            self._health.failed(model, now_s, asked_pause_s(error))

    async def _cost(
        self, model: str, served: str, usage: Usage, state: TurnState, request: ModelRequest
    ) -> Decimal | None:
        """Return the cost of a call; None if the model is free or had no known price initially."""
        price = state.agent.target(model).price if state.agent else None
        if price is None or price.is_free:
            return None
        if self._prices.is_loaded:
            return self._prices.cost(model, served, usage, request.options.extra)
        return await asyncio.to_thread(
            self._prices.cost, model, served, usage, request.options.extra
        )

    async def _price_failure(
        self, error: errors.LLMError, model: str, state: TurnState, request: ModelRequest
    ) -> None:
        """Add the cost to a failure that reports its usage, if the cost is known."""
        if "usage" not in error.context or "cost" in error.context:
            return
        cost = await self._cost(
            model, "", Usage.model_validate(error.context["usage"], extra="ignore"), state, request
        )
        if cost is not None:
            error.context["cost"] = str(cost)


async def _answer(answering: Awaitable[ModelAnswer], model: str) -> ModelAnswer:
    """Await the provider's answer within the time limit.

    Raises:
        LLMError: The provider's error. Whatever else it raises becomes such an error, even what
            would stop the worker, and the attempt may have been billed.
    """
    try:
        async with asyncio.timeout(limits.MODEL_CALL.total_seconds()):
            return await answering
    except TimeoutError as error:
        raise errors.LLMTimeoutError(
            f"{model} did not answer within {limits.MODEL_CALL.total_seconds():g} s"
        ) from error
    except (PerdureError, FailureError, asyncio.CancelledError):
        raise
    except BaseException as error:
        context: dict[str, JsonValue] = {
            "model": model,
            "charged": True,
            "raised": type(error).__name__,
        }
        raise errors.LLMError(
            f"the provider {model.partition(':')[0]!r} raised {raised(error)}", context=context
        ) from error


def _prompt(call: ModelCall, state: TurnState, model: str) -> Prompt:
    """Return the prompt: the whole transcript, or as much as the budget pays for.

    Media that the model does not take are replaced by sentences, except those of the task. No tools
    are offered for a final answer.
    """
    assert state.agent is not None
    options = state.options(state.agent)
    if call.max_output_tokens is not None:
        options = options.model_copy(update={"max_output_tokens": call.max_output_tokens})
    if state.finishing or _is_no_demand_now(options.tool_choice, state):
        options = options.model_copy(update={"tool_choice": None})
    schema = state.output_schema(state.agent)
    messages = sent(handoffs.without_earlier_thoughts(state).messages, call.cut)
    if call.most_input is not None:
        messages = shortened(messages, call.most_input, keep=1)
    return Prompt(
        system=state.agent.instructions,
        messages=media.for_model(messages, state.agent.target(model).media),
        tools=() if state.finishing else state.agent.tools,
        options=options,
        response_schema=None if schema is None else strict(schema),
        response_name=output_type.name_of(schema),
    )


def _is_no_demand_now(wish: str | None, state: TurnState) -> bool:
    """Return whether a demand of the turn's options for a tool does not hold, or no longer.

    They may name a tool that its agent after a handoff lacks. And a client that brings tools
    demands one for the first answer; held to it, the model could not answer with the results.
    """
    if wish in (None, "auto", "none"):
        return False
    request = state.request
    own = request.options.tool_choice if request and request.options else None
    if request and request.client_tools and own is not None and state.step_count:
        return True
    if wish == "required" or not state.handoffs.by or state.agent is None:
        return False
    return state.agent.tool(wish or "") is None


def _without_rejected_media(
    prompt: Prompt, state: TurnState, error: errors.LLMInvalidRequestError
) -> Prompt | None:
    """Return the prompt without media that came later than the task, after a provider rejected it.

    A broken image, of a tool or in a message of the user, would otherwise fail every further
    request of the turn or the session. None if the prompt has no such media, or if the rejected
    request may have been billed.
    """
    messages = media.without_rejected(prompt.messages, state.transcript.media)
    if messages == prompt.messages or error.context.get("charged"):
        return None
    return replace(prompt, messages=messages)


def _request(
    call: ModelCall, state: TurnState, target: str, model: str, prompt: Prompt
) -> ModelRequest:
    return ModelRequest(
        model=model,
        system=prompt.system,
        messages=(
            prompt.messages
            if state.transcript.thinkers <= {target}
            else tuple(fallback.for_target(prompt.messages, target))
        ),
        tools=prompt.tools,
        options=prompt.options,
        budget=call.budget,
        response_schema=prompt.response_schema,
        response_name=prompt.response_name,
    )


def _refuse_many_calls(model: str, answer: ModelAnswer) -> None:
    """Check the number of calls, for providers that do not check it.

    Raises:
        LLMInvalidRequestError: The answer has more calls than allowed.
    """
    try:
        refuse_many_calls(len(answer.message.calls), model)
    except errors.LLMInvalidRequestError as error:
        error.context.update(_billed(model, answer))
        raise


def _size(answer: ModelAnswer) -> int:
    """Return the bytes of the texts of an answer."""
    texts = (text for part in answer.message.parts for name, text in part if name not in _NOT_SAID)
    return sum(size(text) for text in texts if isinstance(text, str))


def _refuse_large(model: str, answer: ModelAnswer, bytes_: int) -> None:
    """Check that an answer fits into history, before it is parsed, checked and recorded.

    Raises:
        TooLargeError: It does not fit.
    """
    if bytes_ > limits.PAYLOAD_BYTES:
        raise errors.TooLargeError(
            f"the answer of {model} is {bytes_} bytes, more than the {limits.PAYLOAD_BYTES} that"
            " fit into history",
            context={**_billed(model, answer), "bytes": bytes_, "limit": limits.PAYLOAD_BYTES},
        )


def _refuse_nothing(model: str, answer: ModelAnswer) -> None:
    """Raise if an answer has neither text nor calls, unless it was cut off or declined."""
    empty = not answer.message.text.strip() and not answer.message.calls
    if empty and answer.stop not in (StopReason.MAX_TOKENS, StopReason.REFUSED):
        raise errors.LLMUnavailableError(
            f"{model} answered with nothing (stop reason: {answer.stop})",
            context={**_billed(model, answer), fallback.EMPTY: True},
        )


def _billed(model: str, answer: ModelAnswer) -> dict[str, JsonValue]:
    """Return the error context for an answer that the provider gave, and therefore bills."""
    cost: dict[str, JsonValue] = {} if answer.cost is None else {"cost": str(answer.cost)}
    return {"model": model, "charged": True, "usage": answer.usage.model_dump(), **cost}
