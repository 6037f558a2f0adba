"""What a model call needs: a request, and a provider that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from perdure import errors
from perdure.agents import ToolDefinition
from perdure.messages import Message
from perdure.wire import ModelAnswer


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """One request to a model. `model` is the provider's own name for it; `system` is the system prompt, empty for none.

    A dataclass and no pydantic value, because its messages are values already and a long transcript would be gone through once more.
    """

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolDefinition, ...] = ()


class Provider(Protocol):
    """Asks the models of one vendor. It makes one attempt: the turn decides whether there is another."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Ask, and wait for the whole answer.

        Raises:
            LLMError: The subclass says what a caller would do about it.
        """

    async def close(self) -> None:
        """Close connections."""


class Models:
    """Finds the provider of a model by the name before the colon, and resolves aliases."""

    def __init__(self, providers: Mapping[str, Provider], aliases: Mapping[str, str] | None = None) -> None:
        self._providers = providers
        self._aliases = dict(aliases or {})

    def resolve(self, model: str) -> str:
        """`provider:model` for a model or an alias.

        Raises:
            ConfigurationError: The alias or the provider is not known.
        """
        target = model if ":" in model else self._aliases.get(model)
        if target is None:
            known = ", ".join(sorted(self._aliases)) or "none"
            raise errors.ConfigurationError(f"model {model!r} has no provider before a colon and is no alias of this worker (aliases: {known})")
        self.find(target)
        return target

    def find(self, target: str) -> tuple[Provider, str]:
        """The provider of `provider:model`, and the model's name there.

        Raises:
            ConfigurationError: The provider is not known, or not set up.
        """
        vendor, _, name = target.partition(":")
        if vendor not in self._providers:
            known = ", ".join(sorted(self._providers)) or "none"
            raise errors.ConfigurationError(f"model {target!r}: no provider named {vendor!r}; this worker has {known}")
        return self._providers[vendor], name

    async def close(self) -> None:
        """Close every provider."""
        for provider in self._providers.values():
            await provider.close()
