"""The interface to model providers: requests, providers, and the lookup of providers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pydantic import JsonValue

from perdure import errors, limits
from perdure.agents.definitions import ToolDefinition
from perdure.values.answers import ModelAnswer
from perdure.values.budgets import Remaining
from perdure.values.messages import Message
from perdure.values.options import NO_OPTIONS, RequestOptions


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """A request to a model.

    Attributes:
        model: The provider's own name of the model.
        messages: The conversation.
        system: The system prompt; empty for none.
        tools: The tools that the model may call.
        options: The request options; `max_output_tokens` is already limited by the budget.
        budget: What the turn has left before this request; None without a budget.
        response_schema: A JSON schema that the answer's text must fit; None for free text. A
            provider enforces it as far as its API can, but never so that no tool could be called.
        response_name: The name of the schema.

    It is a dataclass rather than a pydantic model, because its messages are validated already, and
    validating a long transcript again would be slow.
    """

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolDefinition, ...] = ()
    options: RequestOptions = NO_OPTIONS
    budget: Remaining | None = None
    response_schema: dict[str, JsonValue] | None = None
    response_name: str = "answer"


class Provider(Protocol):
    """The models of one vendor.

    A provider makes a single attempt: retries are the turn's decision.
    """

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Send the request and wait for the whole answer.

        Raises:
            LLMError: The subclass determines how the turn reacts.
        """

    async def close(self) -> None:
        """Close all connections."""


@runtime_checkable
class CheckedProvider(Provider, Protocol):
    """A provider that can check its setup before the first request."""

    def check_setup(self) -> None:
        """Check for a key and other prerequisites, without sending a request.

        Raises:
            ConfigurationError: Something is missing or unusable.
        """


Heard = Callable[[str], None]
"""A callback for each piece of an answer's text, called on the event loop of the request."""


@runtime_checkable
class StreamingProvider(Provider, Protocol):
    """A provider that can stream the text of an answer."""

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Send the request and pass the answer's text to `heard` in pieces, from its beginning.

        Returns the whole answer, like `complete`. Pieces at the end may be left out, even all of
        them: the returned answer is authoritative. Those of an answer that fails are discarded.

        Raises:
            LLMError: As for `complete`; also if a stream ends before the answer.
        """


async def listen(provider: Provider, request: ModelRequest, heard: Heard) -> ModelAnswer:
    """Send the request, streaming the answer if the provider supports it.

    Raises:
        LLMError: As for the provider.
    """
    if isinstance(provider, StreamingProvider):
        return await provider.stream(request, heard)
    return await provider.complete(request)


def refuse_many_calls(count: int, model: str) -> None:
    """Reject an answer with too many calls before it is processed.

    It has been paid for, and the same model would give it again.

    Raises:
        LLMInvalidRequestError: The answer has more calls than allowed.
    """
    if count > limits.CALLS:
        raise errors.LLMInvalidRequestError(
            f"{model} asked for {count} tool calls in one answer, more than the {limits.CALLS} that"
            " one may hold, and none of them was run; have the agent ask for fewer at a time, or"
            " give it a tool that takes a list",
            context={"calls": count, "limit": limits.CALLS},
        )


class Models:
    """Finds the provider of a model by its prefix (`provider:model`), and resolves aliases."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        aliases: Mapping[str, str | Sequence[str]] | None = None,
    ) -> None:
        self._providers = providers
        self._aliases = dict(aliases or {})

    def resolve(self, models: Sequence[str]) -> tuple[str, ...]:
        """Resolve a chain of models and aliases to `provider:model` names, without duplicates.

        An alias may be the name of another chain.

        Raises:
            ConfigurationError: An alias or a provider is unknown, or the chain is too long.
        """
        chain = tuple(dict.fromkeys(target for model in models for target in self._meant(model)))
        for target in chain:
            self.find(target)
        if len(chain) > limits.CHAIN:
            raise errors.ConfigurationError(
                f"a chain has at most {limits.CHAIN} models, and this one has {len(chain)}:"
                f" {', '.join(chain)}"
            )
        return chain

    def _meant(self, model: str) -> Sequence[str]:
        target = model if ":" in model else self._aliases.get(model)
        if not target:
            known = ", ".join(sorted(self._aliases)) or "none"
            raise errors.ConfigurationError(
                f"model {model!r} has no provider before a colon and is not an alias of this worker"
                f" (aliases: {known})"
            )
        return (target,) if isinstance(target, str) else target

    def find(self, target: str) -> tuple[Provider, str]:
        """Return the provider of `provider:model`, and the model's name there.

        Raises:
            ConfigurationError: The provider is unknown or not set up.
        """
        vendor, _, name = target.partition(":")
        if vendor not in self._providers:
            known = ", ".join(sorted(self._providers)) or "none"
            raise errors.ConfigurationError(
                f"model {target!r}: no provider named {vendor!r}; this worker has {known}"
            )
        return self._providers[vendor], name

    async def close(self) -> None:
        """Close every provider."""
        for provider in self._providers.values():
            await provider.close()
