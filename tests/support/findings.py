"""The findings of reviews about workflows, for `docs/proof.md`: the simulator has to find each.

They were mended before there was a simulator. So each is planted into the code of today, in
`tests/support/planted.py`, or has a reason why it is not.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A finding of a review.

    Attributes:
        fault: What went wrong.
        mended: The commit of the mend, and the statement that shows it.
        planted: The name of the fault in `PLANTED`; empty if it is not planted.
        reason: Why the simulator does not find it; empty if it does.
    """

    fault: str
    mended: str
    planted: str = ""
    reason: str = ""


FINDINGS = (
    Finding(
        "The next turn of a session was sent an answer that was refused",
        "`c1847c0`, G22",
        "the record of a session has refused answers",
    ),
    Finding(
        "The last words of a guarded delegate that failed were told to its parent's model",
        "`c1847c0`, G24",
        "what a guarded delegate said last is told to its parent when it fails",
    ),
    Finding(
        "An answer before the last one, after which the user wrote, was checked by nobody",
        "`dabf312`, G36",
        "an answer before the last one, which nobody has checked, is told once the last has passed",
    ),
    Finding(
        "After a handoff, the next turn of a session had the rules of the other agent",
        "`1e1b1c7`, U20",
        "the next turn of a session has the rules of the agent that was handed the turn before",
    ),
    Finding(
        "The same in a resumed turn and in a fork",
        "`1e1b1c7`, U20",
        "a fork of a turn that was handed over has the rules of the other agent",
    ),
    Finding(
        "What a killed process had in flight was given up, so a session lost a turn",
        "`7411f57`, Y70",
        "a supervisor leaves no time to try again what a killed worker had, so a session loses a"
        " turn",
    ),
    Finding(
        "The same in a schedule, whose turn was not counted",
        "`7411f57`, Y70",
        "a supervisor leaves no time to try again what a killed worker had, so a schedule does not"
        " count a turn",
    ),
    Finding(
        "The same in a webhook, which was not sent",
        "`7411f57`, Y70",
        "a supervisor leaves no time to try again what a killed worker had, so a webhook is not"
        " sent",
    ),
    Finding(
        "A cancel that came while a session recorded a turn was lost",
        "`fc8f5bf`, E168",
        "a cancel that comes while a session records a turn is lost",
    ),
    Finding(
        "A session that was closed while it recorded a turn kept messages that nobody read",
        "`3db8d91`, E154",
        "a session that is closed while it records a turn does not name what that has left unread",
    ),
    Finding(
        "A message right after a cancelled turn of a session was not read",
        "`d7b304d`, E98",
        "a message right after a cancelled turn of a session is not read",
    ),
    Finding(
        "A stream of updates kept a run from ending, until its history was full",
        "`9be68b5`, Y59",
        "a run that is to end takes in updates",
    ),
    Finding(
        "The same in a session",
        "`9be68b5`, Y60",
        "a session that is to end takes in updates",
    ),
    Finding(
        "The second attempt to read a turn for its session was refused, so the session waited for"
        " ever",
        "`f13e0e4`, E51",
        "a second attempt is refused although the workflow lets the server repeat it",
    ),
    Finding(
        "An input guardrail saw the task alone, and no later message",
        "`7e4bebf`, U21",
        "an input guardrail sees no message after the task",
    ),
    Finding(
        "What a terminated delegate had spent was not read if the worker was lost that read its"
        " history, where heartbeats come slowly",
        "`991053d`, Y71",
        reason="it is charged with all that it was given then, which breaks no promise; and"
        " heartbeats come as often as by default",
    ),
    Finding(
        "Tasks of a part of a batch that was reset were told failed while their turns completed",
        "`d9d967e`, E144",
        "a part that was reset takes the turns that it had begun for failed",
    ),
    Finding(
        "A decision that a reset delivered again counted for the workflow and not for its readers",
        "`35d9787`, Y14",
        "readers do not know the updates that a reset delivers again",
    ),
    Finding(
        "An activity that an operator paused or reset had a second effect",
        "`eec4a72`, Y15",
        "an attempt that an operator has caused is made",
    ),
    Finding(
        "A first run took the input of a later run, with the state of another turn",
        "`2a542eb`",
        "a first run of a turn takes the input of a later run",
    ),
    Finding(
        "The same in a session",
        "`8fd7187`",
        "a first run of a session takes the input of a later run",
    ),
    Finding(
        "A deadline hid the error of the provider that the turn had waited for",
        "`bdb08aa`",
        "a deadline hides the error of the provider that the turn has waited for",
    ),
)
"""The rows."""
