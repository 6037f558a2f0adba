"""The registry of the agents that a worker can run."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from perdure import errors, validation
from perdure.agents.agent import Agent
from perdure.agents.tracebacks import raised
from perdure.agents.versions import Rollout, address, parts_of
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
    """Agents by name. Thread-safe; an added agent is available to new turns.

    An agent may have several versions, which a `Rollout` of the worker chooses from.
    """

    def __init__(self, agents: Iterable[Entry] = ()) -> None:
        self._entries: dict[str, dict[str, Entry]] = {}
        self._rollouts: dict[str, Rollout] = {}
        self._lock = threading.Lock()
        for agent in validation.listed("the registry", "agents", agents, _ENTRY):
            self.add(agent)

    def add(self, entry: Entry, *, replace: bool = False) -> None:
        """Add an agent, or a factory that is called once for each turn.

        A factory's agents have the name of the factory function. Agents that delegate see the first
        paragraph of its docstring.

        Raises:
            ConfigurationError: The name is taken, by the same version, and `replace` is not set;
                one of two agents of a name has no version; or a factory has no name.
        """
        name = entry.name if isinstance(entry, Agent) else getattr(entry, "__name__", None)
        if name is None:
            raise errors.ConfigurationError(
                f"{entry!r} has no name to be registered under; use a function that is called as"
                " its agents are"
            )
        version = entry.version if isinstance(entry, Agent) else ""
        with self._lock:
            others = self._entries.setdefault(name, {})
            if version in others and not replace:
                raise errors.ConfigurationError(
                    f"an agent named {address(name, version)!r} is registered already; pass"
                    " replace=True to replace it, or give each a version"
                )
            if others and version not in others and "" in (version, *others):
                raise errors.ConfigurationError(
                    f"one of two agents named {name!r} has no version; give each one with version="
                )
            others[version] = entry

    def roll_out(self, rollouts: Mapping[str, Rollout]) -> None:
        """Set how the versions of agents are chosen, by the names of the agents.

        Raises:
            ConfigurationError: An agent or a version is not registered, or an agent has several
                versions and no rollout.
        """
        for name in rollouts:
            if name not in self.list():
                raise errors.ConfigurationError(
                    f"there is a rollout of agent {name!r}, but this worker only has"
                    f" {', '.join(self.list()) or 'none'}"
                )
        for name in self.list():
            versions = self.versions(name)
            if name not in rollouts and len(versions) > 1:
                raise errors.ConfigurationError(
                    f"agent {name} has the versions {', '.join(versions)}; say which turns get"
                    f" which, such as rollouts={{{name!r}: Rollout({{{versions[-1]!r}: 0.1}})}}"
                )
        checked = {
            name: rollout.among(name, self.versions(name)) for name, rollout in rollouts.items()
        }
        with self._lock:
            self._rollouts = checked

    def rollout(self, name: str) -> Rollout | None:
        """Return the rollout of an agent; None if it has none."""
        with self._lock:
            return self._rollouts.get(name)

    def versions(self, name: str) -> tuple[str, ...]:
        """Return the versions of an agent, in the order in which they were added."""
        with self._lock:
            return tuple(filter(None, self._entries.get(name, {})))

    def list(self) -> tuple[str, ...]:
        """Return the names, sorted."""
        with self._lock:
            return tuple(sorted(self._entries))

    def descriptions(self) -> dict[str, str]:
        """Return the purpose of each agent, in one line, by its name, sorted.

        It is the agent's description, or the first paragraph of its factory's docstring; empty if
        neither exists.
        """
        return {name: described_in(self.entry(name)) for name in self.list()}

    def entry(self, name: str) -> Entry:
        """Return the agent or factory of this name, or of a name and a version: `support@v2`.

        It is the default version for a name alone, and for a version that is not here any more: as
        after any later deploy, the deployed agent has the code of a turn that was begun before.

        Raises:
            UnknownAgentError: There is none; the message lists the known names.
        """
        base, version = parts_of(name)
        with self._lock:
            versions = self._entries.get(base, {})
            rollout = self._rollouts.get(base)
            default = (rollout and rollout.default) or next(iter(versions), "")
            registered = versions.get(version) or versions.get(default)
            is_model = _MODELS.match(name) or any(
                isinstance(entry, Agent) and name in entry.models for entry in self._all()
            )
        if registered is None:
            known = ", ".join(self.list()) or "none at all"
            advice = _OF_A_MODEL if is_model else ""
            raise errors.UnknownAgentError(
                f"no agent named {name!r}; this worker knows {known}{advice}",
                context={"agent": name},
            )
        return registered

    def check_version(self, name: str, version: str) -> None:
        """Refuse a version of an agent that is not here.

        Raises:
            UnknownAgentError: It is not; the message lists the versions.
        """
        entry, versions = self.entry(name), self.versions(name)
        if version in versions:
            return
        has = f"it has {', '.join(versions)}" if versions else "it has no versions"
        made = "" if isinstance(entry, Agent) else ", and is made by a factory"
        raise errors.UnknownAgentError(
            f"agent {name!r} has no version {version!r} in this worker; {has}{made}",
            context={"agent": name, "version": version},
        )

    def _all(self) -> Iterable[Entry]:
        """Return all versions of all agents, sorted by name."""
        return [entry for _, each in sorted(self._entries.items()) for entry in each.values()]

    @property
    def has_factories(self) -> bool:
        """Whether some agents are made by factories, for each turn."""
        return any(not isinstance(entry, Agent) for entry in self.entries())

    def entries(self) -> tuple[Entry, ...]:
        """Return all agents and factories, each version of an agent, sorted by name."""
        with self._lock:
            return tuple(self._all())

    def agents(self) -> tuple[Agent[Any], ...]:
        """Return the agents that are values, each of their versions, sorted by name.

        Agents of factories are not known before a turn needs them.
        """
        return tuple(entry for entry in self.entries() if isinstance(entry, Agent))

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
