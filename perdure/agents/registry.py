"""The registry of the agents that a worker can run."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from perdure import errors, validation
from perdure.agents.agent import Agent
from perdure.agents.tracebacks import raised
from perdure.validation import Must
from perdure.values.tasks import TurnInfo

Factory = Callable[[TurnInfo], Agent[Any]]
Entry = Agent[Any] | Factory

_ENTRY = Annotated[
    object,
    Must(
        "an Agent, or a function that makes one",
        lambda value: isinstance(value, Agent) or callable(value),
    ),
]

_MODELS = re.compile(
    r"[\w.-]+:|(gpt|claude|gemini|llama|mistral|qwen|deepseek)[-.\d]|o[1-9](-|$)", re.IGNORECASE
)
"""The beginnings of names of models, with a provider or without."""
_OF_A_MODEL = (
    ". It looks like the name of a model: give the name of an agent that has it, or ask the model"
    " itself with client.generate(model, prompt, type)"
)


def described_in(entry: Entry) -> str:
    """Return the purpose of an agent, in one line.

    It is the agent's description, or the first paragraph of its factory's docstring.
    """
    if isinstance(entry, Agent):
        return entry.description
    return " ".join((inspect.getdoc(entry) or "").partition("\n\n")[0].split())


class Registry:
    """Agents by name. Thread-safe; an added agent is available to new turns."""

    def __init__(self, agents: Iterable[Entry] = ()) -> None:
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()
        for agent in validation.listed("the registry", "agents", agents, _ENTRY):
            self.add(agent)

    def add(self, entry: Entry, *, replace: bool = False) -> None:
        """Add an agent, or a factory that is called once for each turn.

        A factory's agents have the name of the factory function. Agents that delegate see the first
        paragraph of its docstring.

        Raises:
            ConfigurationError: The name is taken and `replace` is not set, or a factory has no
                name.
        """
        name = entry.name if isinstance(entry, Agent) else getattr(entry, "__name__", None)
        if name is None:
            raise errors.ConfigurationError(
                f"{entry!r} has no name to be registered under; use a function that is called as"
                " its agents are"
            )
        with self._lock:
            if name in self._entries and not replace:
                raise errors.ConfigurationError(
                    f"an agent named {name!r} is registered already; pass replace=True to"
                    " replace it"
                )
            self._entries[name] = entry

    def list(self) -> tuple[str, ...]:
        """Return the names, sorted."""
        with self._lock:
            return tuple(sorted(self._entries))

    def descriptions(self) -> dict[str, str]:
        """Return the purpose of each agent, in one line, by its name, sorted.

        It is the agent's description, or the first paragraph of its factory's docstring; empty if
        neither exists.
        """
        with self._lock:
            return {name: described_in(entry) for name, entry in sorted(self._entries.items())}

    def entry(self, name: str) -> Entry:
        """Return the agent or factory of this name.

        Raises:
            UnknownAgentError: There is none; the message lists the known names.
        """
        with self._lock:
            registered = self._entries.get(name)
            is_model = _MODELS.match(name) or any(
                isinstance(entry, Agent) and name in entry.models
                for entry in self._entries.values()
            )
        if registered is None:
            known = ", ".join(self.list()) or "none at all"
            advice = _OF_A_MODEL if is_model else ""
            raise errors.UnknownAgentError(
                f"no agent named {name!r}; this worker knows {known}{advice}",
                context={"agent": name},
            )
        return registered

    @property
    def has_factories(self) -> bool:
        """Whether some agents are made by factories, for each turn."""
        with self._lock:
            return any(not isinstance(entry, Agent) for entry in self._entries.values())

    def agents(self) -> tuple[Agent[Any], ...]:
        """Return the agents that are values, sorted by name.

        Agents of factories are not known before a turn needs them.
        """
        with self._lock:
            return tuple(
                entry for _, entry in sorted(self._entries.items()) if isinstance(entry, Agent)
            )

    def make(self, info: TurnInfo) -> Agent[Any]:
        """Return the agent for a turn.

        Raises:
            UnknownAgentError: There is no agent of this name.
            ConfigurationError: A factory failed, or made an agent with another name.
        """
        registered = self.entry(info.agent)
        if isinstance(registered, Agent):
            return registered
        try:
            agent = registered(info)
        except Exception as error:
            raise errors.ConfigurationError(
                f"the factory of agent {info.agent!r} failed: {raised(error)}"
            ) from error
        if not isinstance(agent, Agent) or agent.name != info.agent:
            raise errors.ConfigurationError(
                f"the factory {info.agent!r} must return an Agent of that name, not {agent!r}"
            )
        return agent
