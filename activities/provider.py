"""What a model call needs: a request, and a provider that answers it."""

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
    """One request to a model.

    `model` is the provider's own name for it; `system` is the system prompt, empty for none.

    `options.max_output_tokens` is what the budget allows already; `budget` is what the turn has
    left before this request, None without a budget.

    `response_schema` is a JSON schema that the answer's text must fit, called `response_name`; None
    for free text. A provider makes the model keep to it as far as its API can, and never so that it
    could not call a tool.

    A dataclass and no pydantic value, because its messages are values already and a long transcript
    would be gone through once more.
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
    """Asks the models of one vendor.

    It makes one attempt: the turn decides whether there is another.
    """

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Ask, and wait for the whole answer.

        Raises:
            LLMError: The subclass says what a caller would do about it.
        """

    async def close(self) -> None:
        """Close connections."""


@runtime_checkable
class CheckedProvider(Provider, Protocol):
    """A provider that can tell before the first request whether it is set up."""

    def check_setup(self) -> None:
        """Look whether a key and what else it needs is there, without sending anything.

        Raises:
            ConfigurationError: Something is missing or cannot work.
        """


Heard = Callable[[str], None]
"""What is called with each piece of an answer's text, on the event loop of the request."""


@runtime_checkable
class StreamingProvider(Provider, Protocol):
    """A provider that can tell what a model says while it speaks."""

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Ask, and give the text to `heard` piece by piece as it arrives, from its beginning.

        The whole answer is returned, as `complete` does.

        Pieces may be left out at the end, all of them if need be: the answer counts. Those of an
        answer that fails were said in vain.

        Raises:
            LLMError: As `complete` does; also where a stream ends before the answer.
        """


async def listen(provider: Provider, request: ModelRequest, heard: Heard) -> ModelAnswer:
    """Ask, and hear what is said as far as the provider can tell before its end.

    Raises:
        LLMError: As the provider does.
    """
    if isinstance(provider, StreamingProvider):
        return await provider.stream(request, heard)
    return await provider.complete(request)


def refuse_many_calls(count: int, model: str) -> None:
    """Refuse an answer with too many calls before anything is made of it.

    It is paid for, and the same model would say it again.

    Raises:
        LLMInvalidRequestError: It asks for more calls than one answer may.
    """
    if count > limits.CALLS:
        raise errors.LLMInvalidRequestError(
            f"{model} asked for {count} tool calls in one answer, more than the {limits.CALLS} that"
            " one may hold, and none of them was run; have the agent ask for fewer at a time, or"
            " give it a tool that takes a list",
            context={"calls": count, "limit": limits.CALLS},
        )


class Models:
    """Finds the provider of a model by the name before the colon, and resolves aliases."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        aliases: Mapping[str, str | Sequence[str]] | None = None,
    ) -> None:
        self._providers = providers
        self._aliases = dict(aliases or {})

    def resolve(self, models: Sequence[str]) -> tuple[str, ...]:
        """A chain of models and aliases as one of `provider:model`, each once.

        An alias may stand for a chain of its own.

        Raises:
            ConfigurationError: An alias or a provider is not known, or the chain is too long.
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
                f"model {model!r} has no provider before a colon and is no alias of this worker"
                f" (aliases: {known})"
            )
        return (target,) if isinstance(target, str) else target

    def find(self, target: str) -> tuple[Provider, str]:
        """The provider of `provider:model`, and the model's name there.

        Raises:
            ConfigurationError: The provider is not known, or not set up.
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
