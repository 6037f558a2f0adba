"""The choices of a simulated run: drawn from a seed, recorded, and replayed in part.

Every choice is a number below the count of its options, and 0 is the option with which the least
happens: the call succeeds, nothing is lost, nobody interferes. So a run becomes simpler when its
choices are replaced by 0, which is how a failing run is shrunk.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Collection, Sequence
from typing import TypeVar

T = TypeVar("T")

BESIDE = "beside"
"""The first sequence of numbers beside the others, which several features share."""


CLOCKS = "clocks"
"""The feature of clocks that are wrong."""
STREAMS = "streams"
"""The feature of people who send updates without a pause, and its sequence."""
FORGERS = "forgers"
"""The feature of people who make up the input of workflows, and its sequence."""
FORGED = "forged-"
"""The beginning of the ids of workflows that they start with the input of a later run."""
PAUSES = "pauses"
"""The feature of operators who pause, unpause and reset activities, and its sequence."""
_FEATURES: dict[str, tuple[str, int]] = {
    "client tools": ("client tools 6", 8),
    "servers": ("servers 11", 8),
    "notices": ("notices 11", 8),
    "local tools": ("local tools 12", 8),
    "live": ("live 6", 8),
    "hooks": ("hooks 2", 8),
    "builds": ("builds 354", 8),
    "cancels": ("cancels 32", 6),
    "reminders": ("reminders 28", 5),
    "versions": ("versions 1", 6),
    "keyed events": ("keyed events 40", 8),
    "push": ("push 5", 8),
    "logins": ("logins 28071", 8),
    "scheduled messages": ("scheduled messages 1", 4),
    "scheduled batches": ("scheduled batches 6", 4),
    "jobs of a session": ("jobs of a session 3", 3),
    "jobs of a batch": ("jobs of a batch 19", 3),
    "operators": ("operators 2196", 8),
    "earlier release": ("earlier release 238", 8),
    CLOCKS: ("clocks 3570", 8),
    PAUSES: ("pauses 300350", 8),
    STREAMS: ("streams 750", 8),
    FORGERS: ("forgers 518", 8),
}
"""Features that a simulation has once in so many times, with the sequences that decide that.

The sequences leave the seeds alone that tests and pages name.
"""
TEAMS = "teams"
"""The feature of agents that delegate often, with what else `Choices.all_features` has."""
PAYMENTS, BILLS = "payments", "bills"
"""The features of `Choices.pays_often` and `Choices.bills_most`."""
BUDGETS, LOSSES, FORGERIES, DEADLINES, GUARDS, BRANCHES, RESETS, INPUTS = AIMS = (
    *("budgets", "losses", "forgeries", "deadlines", "guards", "branches", "resets", "inputs"),
)
"""What a focus makes happen far more often, and what happens as often as always without a focus."""
UNWELCOME = "unwelcome"
"""A word in messages that input guardrails refuse, with the aim of inputs."""
FEATURES = (TEAMS, PAYMENTS, BILLS, "waits", "jobs", *_FEATURES)
"""The features that a focus can have, besides aims."""


class Choices:
    """Choices drawn from a seed, or replayed from a list, after which all are 0.

    Attributes:
        made: The choices so far.
    """

    def __init__(
        self,
        seed: int,
        replayed: Sequence[int] | None = None,
        kind: str = "turn",
        focus: Collection[str] = (),
    ) -> None:
        self.made: list[int] = []
        self._seed = seed
        self._random = random.Random(seed)  # noqa: S311 - it has to be repeatable
        self._beside: dict[str, random.Random] = {}
        self._replayed = replayed
        self._kind = kind
        self._focus = focus
        self._has: dict[str, bool] = {}

    @functools.cached_property
    def all_features(self) -> bool:
        """Whether the simulation has the features that take most time, as a quarter of them.

        They are agents that delegate often, middleware, resets, forks, resumes and deploys.
        """
        return self._draws(TEAMS, 4, "deploys")

    @functools.cached_property
    def pays_often(self) -> bool:
        """Whether all agents have the tools with effect keys, and models mostly call these."""
        if self._focus:
            return self._draws(PAYMENTS, 2, "")
        return self.all_features and self.happens(2, beside="pays often")

    @functools.cached_property
    def bills_most(self) -> bool:
        """Whether every model bills all that was reserved for it."""
        if self._focus:
            return self._draws(BILLS, 2, "")
        may_bill = self._kind == "schedule" or (self._kind == "turn" and self.all_features)
        return may_bill and self.happens(2, beside=BILLS)

    @functools.cached_property
    def has_waits(self) -> bool:
        """Whether models of the simulation may wait, as in a sixth of the simulations."""
        return self._draws("waits", 6, "waits 125")

    @functools.cached_property
    def has_jobs(self) -> bool:
        """Whether tools of the simulation start jobs, as in a sixth of the simulations.

        Sessions and batches have them more often: their turns have less time for them.
        """
        return self._draws("jobs", 6, "jobs 57") or (
            self._kind in ("session", "batch") and self.has(f"jobs of a {self._kind}")
        )

    def has(self, feature: str) -> bool:
        """Return whether the simulation has a feature that most simulations do not have."""
        if feature not in self._has:
            sequence, one_in = _FEATURES[feature]
            self._has[feature] = self._draws(feature, one_in, sequence)
        return self._has[feature]

    def _draws(self, feature: str, one_in: int, sequence: str) -> bool:
        """Return whether the simulation has a feature, by a number of the sequence or its focus."""
        if self._focus and self._replayed is None:
            self.made.append(one_in - 1 if feature in self._focus else 0)
            return feature in self._focus
        drawn = random.Random(f"{self._seed} {sequence}")  # noqa: S311
        return self._make(one_in, drawn) == one_in - 1

    @functools.cached_property
    def calls_often(self) -> bool:
        """Whether models mostly call tools, as some are of a kind that few simulations have."""
        features = ("client tools", "servers", "local tools", "keyed events", "logins", PAUSES)
        return self.aims_at(LOSSES) or any(map(self.has, features))

    def aims_at(self, aim: str) -> bool:
        """Return whether the focus has an aim."""
        return aim in self._focus

    def about_waits(self, count: int) -> int:
        """Return a number from 0 to `count` - 1 for a wait or an event."""
        return self.below(count, beside="waits")

    def below(self, count: int, *, beside: str = "") -> int:
        """Return a number from 0 to `count` - 1.

        A number that is drawn `beside` the others, in a sequence of that name, changes none of
        them, so something new can be added to the seeds that there are.
        """
        return self._make(count, self._sequence(beside) if beside else self._random)

    def _sequence(self, name: str) -> random.Random:
        """Return the random numbers of a name."""
        if name not in self._beside:
            self._beside[name] = random.Random(f"{self._seed} {name}")  # noqa: S311
        return self._beside[name]

    def _make(self, count: int, drawn: random.Random) -> int:
        """Return the next choice, and note it."""
        if self._replayed is None:
            made = drawn.randrange(count)
        elif len(self.made) < len(self._replayed):
            made = min(self._replayed[len(self.made)], count - 1)
        else:
            made = 0
        self.made.append(made)
        return made

    def pick(self, options: Sequence[T], *, beside: str = "") -> T:
        """Return one of the options; the first is that with which the least happens."""
        return options[self.below(len(options), beside=beside)]

    def happens(self, one_in: int, *, beside: str = "") -> bool:
        """Return whether something happens that happens once in so many times."""
        return self.below(one_in, beside=beside) == one_in - 1
