"""Versions of an agent: their names, and the rollout that chooses one for each turn. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from perdure import errors, validation
from perdure.agents.tools import NAME
from perdure.base import Wire
from perdure.validation import Must

if TYPE_CHECKING:
    from perdure.agents.definitions import AgentDefinition

_AT = "@"
"""Between the name and the version of an agent. It is in neither."""
_TENANT = "@"
"""The beginning of the ids of a tenant: `@<tenant>/`."""
_BITS = 53


def _is_number(value: object, above: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and above < value <= most


def _has_names(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


_Times = Annotated[
    float, Must("a number above 1, at most 1000", lambda value: _is_number(value, 1, 1000))
]
_Weights = Annotated[
    Mapping[str, float],
    Must("a mapping from versions to their shares, such as {'v2': 0.1}", _has_names),
]


@dataclass(frozen=True, kw_only=True)
class StopRule:
    """When a rollout gives a version no more turns.

    The turns that count have ended with an answer or without one, and not because somebody
    cancelled or terminated them. Those of delegates count as well.

    Attributes:
        times_worse: How many times as often as those of the default version turns of the version
            fail, more than 1.
        over: The smallest number of its turns that have ended, at least 1.
        failures: The smallest number of them that have failed, at least 1, so that a single failure
            stops nothing.

    Raises:
        ConfigurationError: A value is not valid.
    """

    times_worse: _Times = 2.0
    over: validation.Count = 50
    failures: validation.Count = 5

    def __post_init__(self) -> None:
        validation.check_fields(StopRule, "the stop rule", self)

    def stops(self, version: Tally, default: Tally) -> bool:
        """Return whether the turns of a version fail too often; no, with nothing to compare."""
        if version.ended < self.over or version.failed < self.failures or not default.ended:
            return False
        # rates as products, so that they are exact
        worse = version.failed * default.ended
        return worse >= self.times_worse * default.failed * version.ended


@dataclass(frozen=True)
class Tally:
    """How many turns of a version have ended by themselves, and how many of them have failed."""

    ended: int = 0
    failed: int = 0

    def __str__(self) -> str:
        return f"{self.failed} of {self.ended}"


@dataclass(frozen=True)
class Rollout:
    """Which version of an agent a turn gets.

    The choice depends on nothing but the weights and the id by which it is made, so a turn gets the
    same one wherever it is resolved. A greater weight of a version moves only turns to it that had
    the default version. A turn of a session is chosen by the id of the session, a delegate by that
    of the turn at the root of its tree, and a fork by that of the turn that it goes on from.

    Attributes:
        weights: The share of each new version, from 0 to 1: `{"v2": 0.1}`. The default version gets
            the rest.
        default: The version of all other turns, and after a stop; it may be left out if the worker
            has one version without a weight.
        by: What is chosen by: the id of each `turn`, or its `tenant`, so that all turns of a tenant
            have the same version. Turns without a tenant are chosen by their id.
        stop: When a version gets no more turns; None for never.

    Raises:
        ConfigurationError: A value is not valid.
    """

    weights: _Weights
    default: validation.Text | None = None
    by: Literal["turn", "tenant"] = "turn"
    stop: Annotated[StopRule, validation.instance("a StopRule", StopRule)] | None = None

    def __post_init__(self) -> None:
        validation.check_fields(Rollout, "the rollout", self)
        for version, share in self.weights.items():
            if share != 0 and not _is_number(share, 0, 1):
                raise errors.ConfigurationError(
                    f"the rollout: the share of version {version!r} must be a number from 0 to 1,"
                    f" not {share!r}"
                )
        total = sum(self.weights.values())
        if total > 1 + 1e-9:
            raise errors.ConfigurationError(
                f"the rollout: its shares are {total:g} together; they must be at most 1"
            )

    def among(self, agent: str, versions: Collection[str]) -> Rollout:
        """Return the rollout with its default, for an agent that has these versions.

        Raises:
            ConfigurationError: It names another version, or its default is not clear.
        """
        who, has = f"the rollout of agent {agent}", ", ".join(sorted(versions)) or "no versions"
        named = [*self.weights, *([] if self.default is None else [self.default])]
        for version in named:
            if version not in versions:
                raise errors.ConfigurationError(
                    f"{who}: there is no version {version!r}; this worker has {has}"
                )
        if self.default is not None:
            return self
        others = sorted(set(versions) - set(self.weights))
        if len(others) != 1:
            raise errors.ConfigurationError(
                f"{who}: name the version of all other turns, such as"
                f" Rollout({dict(self.weights)!r}, default={sorted(versions)[0]!r}); this worker"
                f" has {has}"
            )
        return replace(self, default=others[0])

    def choice(self, agent: str, subject: str) -> str:
        """Return the version for the turn that is chosen by the id `subject`."""
        point, below = _point(agent, self._key(subject)), 0.0
        for version, share in self.weights.items():
            below += share
            if point < below:
                return version
        assert self.default is not None
        return self.default

    def _key(self, subject: str) -> str:
        if self.by == "tenant" and subject.startswith(_TENANT):
            return subject.partition("/")[0]
        return subject


class PinnedVersion(Wire):
    """The version of an agent that a turn is pinned to.

    `name` is empty for an agent without versions. `started` is the version of the agent that the
    turn was started with; it is another one than `name` after a handoff. `fell_back_from` is the
    version that the rollout would have chosen if its rule had not stopped it for this `reason`.
    """

    name: str = ""
    started: str = ""
    fell_back_from: str = ""
    reason: str = ""


UNVERSIONED = PinnedVersion()


def check_name(agent: str, version: str) -> None:
    """Refuse a name that a version cannot have.

    Raises:
        ConfigurationError: It is not valid.
    """
    if version and not NAME.fullmatch(version):
        raise errors.ConfigurationError(
            f"agent {agent}: version {version!r}: use 1 to 64 of A-Z, a-z, 0-9, _ and -"
        )


def address(agent: str, version: str) -> str:
    """Return how activities name a version of an agent: `support@v2`, or `support` alone."""
    return f"{agent}{_AT}{version}" if version else agent


def parts_of(address: str) -> tuple[str, str]:
    """Return the name and the version in an address; the version may be empty."""
    name, _, version = address.partition(_AT)
    return name, version


def address_of(definition: AgentDefinition) -> str:
    """Return the address of the agent of a definition."""
    return address(definition.name, definition.version.name)


def _point(agent: str, key: str) -> float:
    """Return a number from 0 to 1, without 1, that is the same in each process and release."""
    digest = hashlib.sha256(f"{agent}\n{key}".encode("utf-8", "replace")).digest()
    return (int.from_bytes(digest[:8], "big") >> (64 - _BITS)) / float(2**_BITS)
