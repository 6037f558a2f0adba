"""A release before this one: it begins what the workers of this release go on with.

It lacks one patch of this release, or all of them, and its agents have earlier rules. Histories
that it has begun have no marker of what it lacks. Then this release is deployed: its workers replay
these histories, and go on with them.
"""

from __future__ import annotations

from temporalio.common import RawValue

from perdure.agents.definitions import RULES, AgentDefinition
from perdure.temporal.payloads import pack, unpack
from perdure.testing.simulation.choices import Choices
from perdure.testing.simulation.server.server import SimulatedServer

FEATURE = "earlier release"
"""The feature, and the sequence of its choices."""

PATCHES = {
    "agent-at-hand": (),
    "answers-at-cancel": ("updates are answered",),
    "answers-cancelled-push": ("updates are answered",),
    "begun-by-updates": (),
    "cancelled-while-a-wait-is-told": ("nothing is stuck", "fold is state"),
    "cancelled-while-it-fails": ("tasks end once",),
    "cancelled-while-recording": ("nothing is stuck", "every history replays"),
    "cancels-before-the-next-run": ("nothing is stuck", "fold is state"),
    "carries-without-deadline": ("nothing raises",),
    "check-batch": (),
    "checked-id": (),
    "children-by-id": ("nothing is stuck", "session messages once, in order"),
    "close-after-the-record": ("session messages once, in order",),
    "continue-as-new": (),
    "continue-as-new-before-a-turn": (),
    "end-told-after-refused-on-wait": ("webhooks are delivered or recorded",),
    "ends-in-order": ("fold is state", "effects are taken back once"),
    "even-shares": (),
    "found-again": ("tasks end once",),
    "made-up-input-is-refused": (),
    "made-up-spending-is-not-counted": ("first runs take no state",),
    "marks-first-task": (),
    "messages-are-checked": (),
    "money-taken-back": (),
    "moves-on": (),
    "notes-early-additions": ("fold is state",),
    "orders-first": (),
    "parts-are-reset": ("tasks end once", "nothing is stuck", "fold is state"),
    "read-child": (),
    "read-session": (),
    "refuse-waiting-updates": ("updates are answered",),
    "refused-starts-before-updates": ("fold is state", "session messages once, in order"),
    "replayable": (),
    "replayable-3x": (),
    "results-before-updates": ("fold is state", "session messages once, in order"),
    "search-attributes-without-an-agent": (),
    "second-ids-are-repeated": ("every history replays",),
    "signal-apart": ("nothing is stuck",),
    "stops-by-an-event": ("every history replays", "no task fails", "nothing is stuck"),
    "updates-before-a-turn": ("fold is state", "session messages once, in order"),
    "webhook-with-another-id": ("webhooks are delivered or recorded",),
}
"""The patches of this release, each with the promises that releases without it did not keep."""

_OLDER_RULES = {
    7: ("effects are taken back once",),
    8: ("every history replays",),
    9: ("messages once, in order", "session messages once, in order"),
}
"""The promises that turns with rules before these did not keep."""
_DEPLOYED_AFTER_S = (3, 0.3, 30, 300)
_ALL = "all"


class EarlierRelease:
    """The workers of a release before this one, until this one is deployed."""

    def __init__(self, server: SimulatedServer) -> None:
        choices: Choices = server.choices
        self._server = server
        self.rules = choices.below(RULES, beside=FEATURE)
        lacks = choices.pick((*sorted(PATCHES), *(_ALL,) * 8), beside=FEATURE)
        self.lacks = frozenset(PATCHES if lacks == _ALL else (lacks,))
        server.activates = lambda patch: patch not in self.lacks
        server.clock.later(choices.pick(_DEPLOYED_AFTER_S, beside=FEATURE), self._deploy)

    def _deploy(self) -> None:
        """Let the workers of this release go on."""
        server = self._server
        if all(run.closed for run in server.runs):
            return
        server.activates = None
        server.counts["deploys of this release"] += 1
        for run in server.runs:
            if run.current is None:
                run.evict()

    def resolved(self, result: RawValue) -> RawValue:
        """Return an agent as the workers that are deployed resolve it."""
        if self._server.activates is None:
            return result
        agent = unpack(result, AgentDefinition)
        return pack(agent.model_copy(update={"rules": self.rules}))

    def did_not_keep(self, promise: str) -> bool:
        """Return whether a promise is one that the release did not keep."""
        by_patches = {one for patch in self.lacks for one in PATCHES[patch]}
        by_rules = {
            one for rules, told in _OLDER_RULES.items() if self.rules < rules for one in told
        }
        return promise in by_patches | by_rules
