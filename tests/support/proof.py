"""The table of `docs/proof.md`: what is promised, and the test of each promise with each feature.

A feature that comes later is a second way around a promise that was tested without it. So a new
feature is a column here, and each of its cells says which test shows the crossing, or that none
does. `tests/docs/test_proof.py` compares the columns with the code, and
`python -m tests.support.docs.proof` writes the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """What is known of a crossing.

    Attributes:
        ids: Statements of `docs/acceptance.md`, each with a test of this crossing.
        reason: Why the promise does not apply to the feature.
        missing: What is not tested.
    """

    ids: tuple[str, ...] = ()
    reason: str = ""
    missing: str = ""


def by(ids: str) -> Cell:
    """Return a crossing that tests show, by the ids of their statements.

    Without ids, it is only simulated.
    """
    return Cell(tuple(ids.split()))


def no(reason: str) -> Cell:
    """Return a crossing that there is not."""
    return Cell(reason=reason)


def gap(missing: str) -> Cell:
    """Return a crossing that no test shows."""
    return Cell(missing=missing)


@dataclass(frozen=True)
class Promise:
    """A row of the table.

    Attributes:
        name: The promise in a few words.
        meaning: The promise in a sentence.
        term: What the literature calls it; empty without a name.
        checks: The checks of the simulator, by their names.
        simulated: The features with which they are checked; None for each that the simulator has.
        cells: A cell for each feature, by its key.
    """

    name: str
    meaning: str
    term: str
    cells: Mapping[str, Cell]
    checks: tuple[str, ...] = ()
    simulated: frozenset[str] | None = None


@dataclass(frozen=True)
class Feature:
    """A column of the table.

    Attributes:
        name: Its heading.
        workflows: The types of workflows that it is made of.
        facts: The kinds of the facts of turns and sessions that it makes.
        operations: What it does over HTTP.
    """

    name: str
    workflows: frozenset[str] = frozenset()
    facts: frozenset[str] = frozenset()
    operations: frozenset[str] = frozenset()


def names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


FEATURES = {
    "plain": Feature(
        "plain turn",
        names("AgentTurn"),
        names(
            "turn_started scheduled agent_resolved model_answered call_failed tool_returned"
            " approval_needed tool_lost policy_answered hook_ended decided budget_added said"
            " wait_began wait_ended cancel_requested turn_ended task_began"
        ),
        names(
            "start_turn list_turns get_turn get_turn_messages get_result watch_turn cancel_turn"
            " approve_call deny_call settle_call list_approvals list_decisions add_budget"
            " steer_turn get_about list_hooks list_webhooks send_webhook read_audit"
        ),
    ),
    "delegate": Feature(
        "delegate", facts=names("child_scheduled child_ended child_read child_told")
    ),
    "parallel": Feature("parallel tools"),
    "handoff": Feature("handoff", facts=names("handed_over")),
    "session": Feature(
        "session",
        names("AgentSession"),
        names(
            "session_started message_sent message_steered steering_failed message_unqueued"
            " turn_began turn_over turn_recorded turn_interrupted session_budget_added"
            " session_closed"
        ),
        names(
            "send_message list_sessions get_session get_messages get_message get_turns"
            " watch_session interrupt_session cancel_session unqueue_message add_to_session"
            " close_session run_agent"
        ),
    ),
    "fork": Feature("fork", operations=names("fork_turn fork_session")),
    "resume": Feature(
        "resume",
        facts=names("resumed session_resumed"),
        operations=names("resume_turn resume_session"),
    ),
    "carry": Feature(
        "continue-as-new", facts=names("turn_continued part_carried session_continued")
    ),
    "schedule": Feature(
        "schedule",
        names("AgentScheduledMessage AgentScheduledBatch"),
        operations=names(
            "create_schedule list_schedules get_schedule get_scheduled_turns watch_runs"
            " change_schedule delete_schedule run_schedule pause_schedule cancel_schedule"
            " add_to_schedule resume_schedule backfill_schedule"
        ),
    ),
    "batch": Feature(
        "batch",
        names("AgentBatch AgentBatchPart"),
        operations=names(
            "start_batch list_batches get_batch watch_results cancel_batch add_to_batch retry_batch"
        ),
    ),
    "local": Feature("local tool"),
    "release": Feature("later release"),
    "reset": Feature("reset"),
    "effects": Feature(
        "effects with keys",
        names("AgentSettlement"),
        facts=names("verified"),
        operations=names("list_effects"),
    ),
    "undo": Feature("undo", operations=names("undo_call")),
    "questions": Feature("questions", operations=names("answer_call")),
    "logins": Feature("logins", operations=names("ask_for_login")),
    "waits": Feature(
        "waits and events",
        names("AgentEvents"),
        facts=names("emitted reminder_set reminder_forgotten reminder_due"),
        operations=names("emit_event emit_by_key forget_reminder"),
    ),
    "jobs": Feature(
        "jobs",
        facts=names("call_finished polled job_stopped"),
        operations=names("finish_call"),
    ),
    "supervisor": Feature("supervisor"),
    "builds": Feature("builds"),
    "versions": Feature("versions of agents"),
}
"""The columns, by their keys."""

SIMULATED = names(
    "plain delegate parallel handoff session fork resume carry schedule batch local reset effects"
    " undo questions logins waits jobs versions"
)
"""The features that the simulator has."""

OWN_TURN = no("a fork is a turn of its own")
PLAIN = no("its turns are plain turns")
UNDO = no("a turn that takes an effect back is a plain turn")
TASKS = no("only batches have tasks")
MOVE = no("a move is a continue-as-new")


def is_simulated(row: Promise, key: str) -> bool:
    """Return whether the simulator checks a promise with a feature."""
    simulated = SIMULATED if row.simulated is None else row.simulated
    return bool(row.checks) and key in simulated and not row.cells[key].reason


PROMISES = (
    Promise(
        "bill within limit",
        "What the providers bill is at most the budget, over the whole tree, at every moment.",
        "safety; escrow",
        {
            "plain": by("B3 B7 B8 B15"),
            "delegate": by("B12 B13 Y22"),
            "parallel": by("B12"),
            "handoff": by("D45"),
            "session": by("E56"),
            "fork": by("E31"),
            "resume": by("E31 M13"),
            "carry": by("Y27 Y46"),
            "schedule": by("E110 E111 E112 B19"),
            "batch": by("E78 E167"),
            "local": by("T38"),
            "release": by("Y10"),
            "reset": no("each reset may spend the rest again, as documented"),
            "effects": by(""),
            "undo": no("it asks no model"),
            "questions": by("J10"),
            "logins": by(""),
            "waits": no("a wait costs no money"),
            "jobs": no("a job costs no money of the turn"),
            "supervisor": by("B8 B12 B15 Y46"),
            "builds": by("V1"),
            "versions": by(""),
        },
        ("bill within limit", "schedules keep their limits"),
    ),
    Promise(
        "recorded once",
        "A step whose result is recorded is never made again, and never paid again.",
        "durable execution",
        {
            "plain": by("Y1 Y2"),
            "delegate": by("D12"),
            "parallel": by("P38"),
            "handoff": by("D46"),
            "session": by("Y70"),
            "fork": by("E30"),
            "resume": by("E35 M13"),
            "carry": by("Y45"),
            "schedule": by("E73"),
            "batch": by("E75 E82 E144"),
            "local": by("T41 T42"),
            "release": by("Y10"),
            "reset": by("Y13"),
            "effects": by(""),
            "undo": by("T63"),
            "questions": by("J14"),
            "logins": by("G128 G140"),
            "waits": by("W12 W16 W60 W61"),
            "jobs": by("F11 F18 W61"),
            "supervisor": by("Y2 Y70 P37"),
            "builds": by("V1 V12"),
            "versions": by("V33"),
        },
        ("recorded once", "jobs have one result", "jobs are charged once", "slots start once"),
    ),
    Promise(
        "effects at most once",
        "A call of a tool that may not be repeated is started at most once.",
        "at-most-once execution",
        {
            "plain": by("T14 Y15"),
            "delegate": by(""),
            "parallel": by("P38"),
            "handoff": by("D42"),
            "session": by("E166"),
            "fork": no("it may repeat what came after its step, and names it (E37)"),
            "resume": no("as a fork"),
            "carry": by("Y24 Y45"),
            "schedule": by("E73 E166"),
            "batch": by("E166"),
            "local": no("local tools are read-only (T43)"),
            "release": by("Y10 T31"),
            "reset": by("Y13"),
            "effects": by("T46 T48"),
            "undo": by("T59"),
            "questions": no("a question has no effect"),
            "logins": by("G128 G141"),
            "waits": no("a wait changes nothing"),
            "jobs": by("F18 W62"),
            "supervisor": by("P38 T14"),
            "builds": by("V11"),
            "versions": by(""),
        },
        ("effects at most once", "refused calls are made once"),
    ),
    Promise(
        "effects once",
        "An effect that has a key is brought about at most once, if it can be looked up.",
        "idempotence",
        {
            "plain": by("T46 T47 T48"),
            "delegate": by("T51"),
            "parallel": by("T46"),
            "handoff": by(""),
            "session": by("T51 T57"),
            "fork": by("T51 T57"),
            "resume": by("T51 T57"),
            "carry": by("T51"),
            "schedule": PLAIN,
            "batch": by(""),
            "local": no("local tools are read-only (T43)"),
            "release": no("turns with such tools need workers of this release, as documented"),
            "reset": by("T51 T58"),
            "effects": by("T46 T47 T48 T57"),
            "undo": by("T59 T61"),
            "questions": no("a question has no effect"),
            "logins": by("G142"),
            "waits": no("a wait changes nothing"),
            "jobs": by("F12 F14"),
            "supervisor": by("T52 T58"),
            "builds": by("V11"),
            "versions": by("V47"),
        },
        ("effects once", "results are true", "effects are taken back once"),
    ),
    Promise(
        "refused text leaves by no door",
        "An answer that the checks of its agent have not let pass is seen by its own turn alone.",
        "non-interference",
        {
            "plain": by("O14 G37 G38 H174"),
            "delegate": by("G24 G26 U33"),
            "parallel": by("Y121"),
            "handoff": by("U20 U31"),
            "session": by("G22 G26 G36 S110 S126"),
            "fork": by("G23 G36"),
            "resume": by("G23"),
            "carry": by("G22 G36 U32"),
            "schedule": by("Y121"),
            "batch": by("G26"),
            "local": no("an answer has no calls"),
            "release": by("X6"),
            "reset": by("Y121"),
            "effects": no("a record has the result of a call, not an answer"),
            "undo": no("its only text is the result of a call"),
            "questions": no("a question is a call, not an answer"),
            "logins": no("a login is a call, not an answer"),
            "waits": no("an answer has no calls"),
            "jobs": no("an answer has no calls"),
            "supervisor": by("Y125"),
            "builds": MOVE,
            "versions": by(""),
        },
        ("refused text leaves by no door", "refused messages reach no model"),
    ),
    Promise(
        "decided once",
        "What a person decided holds for one call with its arguments, and is used once.",
        "one-shot capability",
        {
            "plain": by("A2 A3 A9"),
            "delegate": by("E14 H42"),
            "parallel": by("A1 A3"),
            "handoff": by("D49"),
            "session": by("Y123"),
            "fork": by("Y123"),
            "resume": by("Y123"),
            "carry": by("Y28 Y30"),
            "schedule": PLAIN,
            "batch": by("E86"),
            "local": by("T38"),
            "release": by("T28 T32 T33"),
            "reset": by("Y14"),
            "effects": by("T50"),
            "undo": by("T59"),
            "questions": by("J8 J16 J18"),
            "logins": by("G127 G149"),
            "waits": by("W15"),
            "jobs": by("F13"),
            "supervisor": by("Y125"),
            "builds": by("V1 V9"),
            "versions": by("V33"),
        },
        ("answers are of people", "servers are told answers once", "logins are asked for once"),
        names("questions logins"),
    ),
    Promise(
        "messages once, in order",
        "A message that was accepted is answered, queued or named as unread: once, and in order.",
        "exactly-once, first-in first-out delivery",
        {
            "plain": by("E45 E47 Y19"),
            "delegate": by("E45"),
            "parallel": by(""),
            "handoff": by(""),
            "session": by("E52 E53 E54 E55 E98 E134 E154 Y52"),
            "fork": by("E47 E58"),
            "resume": by("E47"),
            "carry": by("Y36 Y50 Y60"),
            "schedule": by("E105 E106 E107"),
            "batch": no("a batch takes no messages, and its turns are plain turns"),
            "local": by("Y124"),
            "release": by("Y153"),
            "reset": by("S102 S104 S107 Y124"),
            "effects": by(""),
            "undo": UNDO,
            "questions": by("J5"),
            "logins": by("G141"),
            "waits": by("W6 W18 W21 W22"),
            "jobs": by("F6"),
            "supervisor": by("Y52 Y70"),
            "builds": by("V3 V9"),
            "versions": by("V37"),
        },
        (
            *("messages once, in order", "session messages once, in order"),
            *("updates are answered", "reminders come once", "hooks start once"),
        ),
    ),
    Promise(
        "cancel reaches everything",
        "After a cancel nothing of the turn goes on, or the report names it.",
        "structured concurrency",
        {
            "plain": by("E4 L11 T11"),
            "delegate": by("D11 Y22"),
            "parallel": by(""),
            "handoff": by("D46"),
            "session": by("E54 E166 E168"),
            "fork": OWN_TURN,
            "resume": by("M17 M43"),
            "carry": by("Y31 Y33"),
            "schedule": by("B21 E64 E166"),
            "batch": by("E83 E84 E144 E166"),
            "local": by("T39"),
            "release": by("Y10"),
            "reset": by("S103"),
            "effects": by("T51"),
            "undo": by("T60"),
            "questions": by("J16"),
            "logins": by("G141"),
            "waits": by("W7 W14"),
            "jobs": by("F8 F12 F18 T78"),
            "supervisor": by("Y125"),
            "builds": by("V9"),
            "versions": by("V39"),
        },
        (
            "nothing is stuck",
            "cancels reach children",
            "a cancel reaches each task",
            "a batch ends last",
            "jobs are cancelled",
        ),
    ),
    Promise(
        "limits of the caller hold",
        "A limit that a caller has set holds for all that goes on from there.",
        "attenuation of authority",
        {
            "plain": by("B1 E21 E93 U1 U28"),
            "delegate": by("B12 D10 E94 U29 U33"),
            "parallel": by("B12 L24"),
            "handoff": by("D45 U29 U31 Y122"),
            "session": by("E56 U29 U31 Y122"),
            "fork": by("E31 U29 U31 Y122"),
            "resume": by("E31 U29 U31 Y122"),
            "carry": by("E94 U32 Y27 Y122"),
            "schedule": by("E111 U29 Y122"),
            "batch": by("E78 U28 Y122"),
            "local": by("T38"),
            "release": by("Y10"),
            "reset": by("E23 Y14 Y122"),
            "effects": no("a read-back is no tool call, and in the time of the turn"),
            "undo": no("it makes one call, which a person or the agent asks for"),
            "questions": by("J10"),
            "logins": by("G137 G142"),
            "waits": by("W4 W5"),
            "jobs": by("F10"),
            "supervisor": by("B12 E23"),
            "builds": MOVE,
            "versions": by("V34"),
        },
        (
            *("limits of the caller hold", "definition is pinned", "clients run their tools"),
            *("turns keep their versions", "tools of a login stay"),
        ),
        SIMULATED - {"batch"},
    ),
    Promise(
        "every wait ends or is shown",
        "Whatever waits goes on by itself, or says for whom it waits, and until when.",
        "no hidden wait",
        {
            "plain": by("A3 E13 E14 M15 O12"),
            "delegate": by("D13 E14 M44"),
            "parallel": by("A1 A3"),
            "handoff": by("D45 D49"),
            "session": by("E54 E166 H14"),
            "fork": by("E42"),
            "resume": by("E36 M13"),
            "carry": by("Y30"),
            "schedule": by("E66 E107 E110"),
            "batch": by("E86 Y67"),
            "local": by("T38"),
            "release": by("T28 Y11 Y33"),
            "reset": by("E23"),
            "effects": by("T50"),
            "undo": by("T59"),
            "questions": by("J6 J11 J15"),
            "logins": by("G125 G141 H249"),
            "waits": by("W1 W2 W11 W17"),
            "jobs": by("F1 F7 F10"),
            "supervisor": by("E23 P40"),
            "builds": by("V1 V6"),
            "versions": by("V33"),
        },
        ("waits are shown", "waits end once", "events by key come once"),
    ),
    Promise(
        "fold is state",
        "The fold of the history is the state of the workflow, for every reader.",
        "event sourcing; refinement",
        {
            "plain": by("Y12"),
            "delegate": by("Y12 Y22"),
            "parallel": by("Y12"),
            "handoff": by("D48"),
            "session": by("E51 E115"),
            "fork": by("E30 E34"),
            "resume": by("E35"),
            "carry": by("Y25 Y28 Y36"),
            "schedule": by("E62"),
            "batch": by("E76"),
            "local": by("T34"),
            "release": by("Y6 Y10 Y12"),
            "reset": by("Y14"),
            "effects": by(""),
            "undo": UNDO,
            "questions": by("J14"),
            "logins": by("G125 G140"),
            "waits": by("W1 W8 W11 W22"),
            "jobs": by("F1 F5 F11"),
            "supervisor": by("Y2 Y45"),
            "builds": by("V9"),
            "versions": by("V33"),
        },
        ("fold is state",),
    ),
    Promise(
        "every history replays",
        "A replay of a history makes the same decisions, on this release and on the next one.",
        "determinism",
        {
            "plain": by("Y5 Y6"),
            "delegate": by("Y5 Y6"),
            "parallel": by("Y5 Y6"),
            "handoff": by("Y5 Y6"),
            "session": by("E51 E115 H133"),
            "fork": by("E30"),
            "resume": by("E35"),
            "carry": by("Y25"),
            "schedule": by("B17 E106"),
            "batch": by("Y65 Y66"),
            "local": by("T40 Y5"),
            "release": by("Y6 Y10 Y11 Y58"),
            "reset": by("Y14 Y38"),
            "effects": by(""),
            "undo": UNDO,
            "questions": by("J14"),
            "logins": by("G125 G140"),
            "waits": by("W1 W12 W16 W60 W63"),
            "jobs": by("F1 F11 F18 W60"),
            "supervisor": by("Y2 Y45"),
            "builds": by("V9 V12 V21"),
            "versions": by("V33"),
        },
        ("every history replays", "no task fails"),
    ),
    Promise(
        "the records agree",
        "Report, log, card, memo, events and bill say the same.",
        "consistent reads",
        {
            "plain": by("D58 O1 O5 O10 O16 O18"),
            "delegate": by("O9 Y18 Y22"),
            "parallel": by("B12 Y12"),
            "handoff": by("D48"),
            "session": by("E56 E150 E171 Y70"),
            "fork": by("E38"),
            "resume": by("E38"),
            "carry": by("Y24 Y46"),
            "schedule": by("E68 E112 E171"),
            "batch": by("E141 E144 E171 G30"),
            "local": by("T34"),
            "release": by("Y10 Y12"),
            "reset": by("Y14"),
            "effects": by("T47 T51"),
            "undo": by("T59 T62"),
            "questions": by("J1"),
            "logins": by("G149"),
            "waits": by("W2"),
            "jobs": by("F1"),
            "supervisor": by("B12 Y46 Y70"),
            "builds": by("V9"),
            "versions": by("V39 V41 V42"),
        },
        ("live text is of its call",),
        names("plain"),
    ),
    Promise(
        "what is erased is unreadable",
        "What was started for a data subject can be read by nobody after its erasure.",
        "crypto-shredding",
        {
            "plain": by("G31 G33"),
            "delegate": by("G31 G39"),
            "parallel": PLAIN,
            "handoff": by("G31"),
            "session": by("G31 G39 G93"),
            "fork": by("G31 G39"),
            "resume": by("G39"),
            "carry": by("G39"),
            "schedule": by("G31"),
            "batch": by("G31 G32 G93"),
            "local": by("G31"),
            "release": no("a release without subjects reads nothing of them"),
            "reset": by("G39"),
            "effects": by("G92"),
            "undo": by("G39"),
            "questions": PLAIN,
            "logins": by("G131 G143"),
            "waits": no("events by key have no subject, as documented"),
            "jobs": PLAIN,
            "supervisor": by("G39"),
            "builds": PLAIN,
            "versions": PLAIN,
        },
    ),
    Promise(
        "each act is told once",
        "An audit has what each person and program has done, once, with who and through what.",
        "accountability",
        {
            "plain": by("G40 G45 G91"),
            "delegate": by("G41"),
            "parallel": by("G40"),
            "handoff": PLAIN,
            "session": by("G40"),
            "fork": by("G40"),
            "resume": by("G40"),
            "carry": by("G42"),
            "schedule": by("G49"),
            "batch": by("G40 G92"),
            "local": no("nobody acts on a local call"),
            "release": by("G47"),
            "reset": by("G42"),
            "effects": by("G92"),
            "undo": by("G40"),
            "questions": by("G40"),
            "logins": by("G149"),
            "waits": by("G40"),
            "jobs": by("G40"),
            "supervisor": PLAIN,
            "builds": no("Temporal keeps the changes of routing, as documented"),
            "versions": PLAIN,
        },
    ),
    Promise(
        "each task once",
        "Each task of a batch runs in one turn at a time and has one result, within its limits.",
        "at-most-once execution; bulkhead",
        {
            **dict.fromkeys(FEATURES, TASKS),
            "jobs": by("F12"),
            "carry": by("E88"),
            "schedule": by("B19"),
            "batch": by("E75 E76 E77 E80 E81 E82"),
            "reset": by("E144"),
            "supervisor": by("E75"),
            "builds": by("V4 V11"),
            "versions": by("V37"),
        },
        ("tasks end once", "turns at once within limit"),
    ),
    Promise(
        "webhooks tell the end once",
        "A turn with `on_done` tells its end once, or says why it is not told.",
        "at-least-once delivery; idempotency key",
        {
            "plain": by("H80 H82"),
            "delegate": no("delegates send no webhook (H80)"),
            "parallel": PLAIN,
            "handoff": by(""),
            "session": by("H133"),
            "fork": by("H84"),
            "resume": by("H133"),
            "carry": by("H85"),
            "schedule": by("H84"),
            "batch": by(""),
            "local": no("a local call ends no turn"),
            "release": by("H251 H252"),
            "reset": by("H89 S106"),
            "effects": by(""),
            "undo": no("it has no webhook"),
            "questions": no("its turn is a plain turn"),
            "logins": no("a turn ends the same way after a login"),
            "waits": no("a turn ends the same way after a wait"),
            "jobs": no("a turn ends the same way after a job"),
            "supervisor": by("H86 Y70"),
            "builds": by("V31"),
            "versions": by(""),
        },
        ("webhooks are delivered or recorded",),
    ),
    Promise(
        "webhooks tell each wait once",
        "A turn with `on_wait` tells each wait for a person, for budget or for a provider once.",
        "at-least-once delivery; idempotency key",
        {
            "plain": by("H160 H162"),
            "delegate": by("H161"),
            "parallel": PLAIN,
            "handoff": PLAIN,
            "session": by("H164"),
            "fork": by("H161"),
            "resume": no("a resumed turn has no `on_wait` of the turn before"),
            "carry": by("H161"),
            "schedule": by("H164"),
            "batch": by("H164"),
            "local": no("a local call waits for nobody"),
            "release": by("H252"),
            "reset": by("H161"),
            "effects": by("H164"),
            "undo": by("H164"),
            "questions": by("J19"),
            "logins": by("G148"),
            "waits": no("a call that waits needs nobody"),
            "jobs": by("J20"),
            "supervisor": by("H250"),
            "builds": by("V31"),
            "versions": PLAIN,
        },
        ("waits are told once", "push notifications tell each change once"),
    ),
    Promise(
        "nothing is stuck",
        "Every turn ends, and no workflow task fails for ever.",
        "liveness",
        {
            "plain": by("T2 U9 U12"),
            "delegate": by("D7 D12 D14"),
            "parallel": by("L14 L24"),
            "handoff": by("D43 D44 D46"),
            "session": by("E116 E168 Y51"),
            "fork": by("E42"),
            "resume": by("E36 M12"),
            "carry": by("Y32 Y59"),
            "schedule": by("B19 E73"),
            "batch": by("E84 E85 Y54"),
            "local": by("T35 T42"),
            "release": by("Y10 Y11 Y33"),
            "reset": by("Y13 E144"),
            "effects": by("T47"),
            "undo": UNDO,
            "questions": by("J6 J7"),
            "logins": by("G141"),
            "waits": by("W16 W17 W60"),
            "jobs": by("F7 F8 F18 W60"),
            "supervisor": by("P37 P44 Y70 Y82 Y86"),
            "builds": by("V6 V12"),
            "versions": by("V43 V44"),
        },
        (
            "nothing is stuck",
            "full runs end",
            "first runs take no state",
            "nothing raises",
            "deadlines name errors",
        ),
    ),
)
"""The rows."""


@dataclass(frozen=True)
class Surface:
    """A way out of the system, and a column of the second table.

    Attributes:
        name: Its heading.
        folders: The folders of the gateway that it is made of.
        workflows: The types of workflows that send it.
    """

    name: str
    folders: frozenset[str] = frozenset()
    workflows: frozenset[str] = frozenset()


SURFACES = {
    "python": Surface("Python", workflows=names("AgentErasure")),
    "rest": Surface("REST", names("rest hooks oidc")),
    "sse": Surface("SSE"),
    "responses": Surface("Responses", names("responses")),
    "agui": Surface("AG-UI", names("agui")),
    "a2a": Surface("A2A", names("a2a"), names("AgentPush")),
    "mcp": Surface("MCP", names("mcp")),
    "page": Surface("page", names("page")),
    "cli": Surface("command line"),
    "webhook": Surface("webhook", workflows=names("AgentWebhook")),
    "log": Surface("log"),
    "memo": Surface("memo"),
    "card": Surface("card"),
    "spans": Surface("spans"),
}
"""The columns, by their keys."""


@dataclass(frozen=True)
class Taint:
    """A row of the second table: a text that must not leave.

    Attributes:
        name: What it is.
        where: Where it is allowed.
        cells: A cell for each surface, by its key.
    """

    name: str
    where: str
    cells: Mapping[str, Cell]


def everywhere(
    reads: str, protocols: str, page: str, terminal: str, /, **others: Cell
) -> Mapping[str, Cell]:
    """Return cells by the statements of the tests that look at many surfaces at once."""
    return {
        **dict.fromkeys(("python", "rest", "sse", "log", "memo", "card", "spans"), by(reads)),
        **dict.fromkeys(("responses", "agui", "a2a", "mcp", "webhook"), by(protocols)),
        "page": by(page),
        "cli": by(terminal),
        **others,
    }


TAINTS = (
    Taint(
        "a refused answer",
        "live text, history, the turn's own model",
        everywhere("G26", "G27", "G34", "G35", python=by("G22 G26")),
    ),
    Taint(
        "a secret of the worker",
        "nowhere",
        everywhere(
            "G26", "G27", "G34", "G35", **dict.fromkeys(("python", "log", "spans"), by("G1 G26"))
        ),
    ),
    Taint(
        "the argument of a denied call",
        "whoever decides, transcripts, protocols that show calls",
        everywhere("G26", "G27", "G34", "G35"),
    ),
    Taint(
        "words of a guarded delegate",
        "its own events and messages, if they stand beside calls",
        everywhere(
            *("G26", "G27", "G34", "G35 E194"),
            python=by("G24 G26 E194"),
            **dict.fromkeys(("rest", "sse"), by("G26 E194")),
            **dict.fromkeys(("responses", "agui", "a2a", "mcp"), by("G27 E194")),
        ),
    ),
    Taint(
        "the data of an image",
        "transcripts and the model",
        everywhere("G26", "G27", "G34", "G35", python=by("G26 M38"), cli=by("G35 M38")),
    ),
)
"""The rows of the second table."""


@dataclass(frozen=True)
class Found:
    """A fault that a crossing has shown.

    Attributes:
        fault: What went wrong.
        crossing: The promise and the feature.
        mended: The commit of the mend, and the statement that shows it.
    """

    fault: str
    crossing: str
    mended: str


FOUND = (
    Found(
        "`resume`, `fork` and the next turns of a session went on without the guardrails and the"
        " limits of the agent that the caller had named",
        "limits of the caller, refused text; handoff",
        "`1e1b1c7`, U20",
    ),
    Found(
        "A refused answer was in the session, in its forks, and in the next request to the model",
        "refused text; session, fork",
        "`c1847c0`, G22, G23",
    ),
    Found(
        "What a guarded delegate said beside its calls was told to its parent when it failed",
        "refused text; delegate",
        "`c1847c0`, G24",
    ),
    Found(
        "An answer before the last one, after which the user wrote, was checked by nobody",
        "refused text; message to a running turn",
        "`dabf312`, G36",
    ),
    Found(
        "Input guardrails checked the task, and not what came to the turn later",
        "refused text; session, fork",
        "`7e4bebf`, U21",
    ),
    Found(
        "A caller without the right to set limits removed those of a schedule by `null`",
        "limits of the caller; schedule",
        "`9d2818e`, H113",
    ),
    Found(
        "Additions to the budget of a batch went to the turn that started first",
        "bill within limit; batch",
        "`bca23cc`, E167",
    ),
    Found(
        "A denial, or an approval by id, could reach another call than the one that was shown",
        "decided once; a turn that was started again",
        "`b7c2381`, `ce8f87c`, `d92ca3f`, A9",
    ),
    Found(
        "A decision that a reset delivered again counted for the workflow and not for its readers",
        "fold is state; reset",
        "`35d9787`, Y14",
    ),
    Found(
        "A message right after a cancelled turn of a session was not read",
        "messages; session",
        "`d7b304d`, E98",
    ),
    Found(
        "A session that was closed while it recorded a turn kept messages that nobody read",
        "messages; session",
        "`3db8d91`, E154",
    ),
    Found(
        "A turn that was cancelled before it had the messages of its session lost its message",
        "messages, cancel; session",
        "`f13e0e4`, Y51",
    ),
    Found(
        "A stream of updates kept a run from ending, until its history was full",
        "nothing is stuck; continue-as-new",
        "`9be68b5`, Y59",
    ),
    Found(
        "A cancel that came while a session recorded a turn was lost",
        "cancel; session",
        "`fc8f5bf`, E168",
    ),
    Found(
        "A cancel that came while a delegate told of its wait was lost; the simulator found it",
        "cancel; delegate",
        "`a002fce`, Y110",
    ),
    Found(
        "A cancel of a batch whose part was reset reached the turn of another caller",
        "cancel; batch, reset",
        "`6e9eaa1`, E144",
    ),
    Found(
        "What a killed process had in flight was given up when its supervisor reported it, so a"
        " session lost a turn and a schedule did not count one",
        "recorded once, the records agree; supervisor",
        "`7411f57`, Y70",
    ),
    Found(
        "An activity that an operator paused or reset had a second effect",
        "effects at most once; reset of an activity",
        "`eec4a72`, Y15",
    ),
    Found(
        "An update of a session that came with the record of a turn, or with the news that a"
        " message came too late for it, counted in another order than for its readers",
        "fold is state; session",
        "`3e3efd3`, Y155",
    ),
    Found(
        "A turn that was reset to before a delegate, and then to a later point, could not be"
        " replayed",
        "every history replays; delegate, reset",
        "`227c185`, Y14",
    ),
    Found(
        "A task that Temporal sent to a worker that began to drain was dropped by the SDK, and a"
        " turn stood still for 20 s; the kill matrix found it",
        "nothing is stuck; supervisor",
        "`6825553`, P39",
    ),
    Found(
        "A turn that was cancelled in the moment in which it failed left no end: its task in a"
        " batch was `terminated`, and all that it might have spent was charged",
        "the records agree; batch, webhook",
        "`967468a`, Y132",
    ),
    Found(
        "A cancel in the workflow task in which a signal ended a full run was lost with the run",
        "cancel; continue-as-new, batch",
        "S20",
    ),
    Found(
        "A turn with `on_wait` that a worker of an earlier release had begun stood still as soon as"
        " a worker of this one took it over",
        "every history replays; webhooks, later release",
        "H252",
    ),
    Found(
        "An effect that a lost call shared with an earlier one was taken back twice; the simulator"
        " found it",
        "effects once; undo",
        "S23",
    ),
    Found(
        'A message with `if_busy="steer"` that was taken back while its turn began failed the '
        "workflow task of its session for ever; the simulator found it",
        "nothing is stuck; session",
        "`563f8c27`, S49",
    ),
    Found(
        "A turn that waited for a job saw by the clock that its time was up. An update that was"
        " refused in that workflow task let it look too early, and a replay, which has no such "
        "update, differed; the simulator found it",
        "every history replays; jobs",
        "`3793d4a3`, S46",
    ),
    Found(
        "A session that was full and idle, and a fork that was to read its messages again, "
        "looked too early in the same way",
        "every history replays; session, fork",
        "`7174d9f5`, `30377528`, S52, S53",
    ),
    Found(
        "A turn that had to go on in a new run while a poll for its job was on its way failed; "
        "the simulator found it",
        "nothing is stuck; jobs, continue-as-new",
        "`254a1f8a`, S34",
    ),
    Found(
        "Push notifications that were cancelled before they began left a client's update "
        "without an answer",
        "every wait ends or is shown; push notifications",
        "`a7d78a80`, S31",
    ),
    Found(
        'A read-back that asked for a login of a person was taken for "absent", and the effect '
        "was made again",
        "effects once; logins",
        "G142",
    ),
    Found(
        "A call that was cancelled while its login was renewed lost the new tokens",
        "nothing is stuck; logins, cancel",
        "G129",
    ),
    Found(
        "A login that ended after the erasure of its person was kept",
        "what is erased is unreadable; logins",
        "G143",
    ),
    Found(
        "A timer of a deadline that fired while the clock of its turn was behind kept a "
        "workflow task from ending; the simulator found it",
        "nothing is stuck; clocks of the service",
        "`0c4bf4b5`, Y176",
    ),
    Found(
        "A cancel or an interrupt after a reset did not reach the delegates of a turn, the turn of "
        "a session and the turns of a part that had begun before the point of the reset: Temporal "
        "refuses that to the new run, which waited for them for ever",
        "cancel reaches everything; reset",
        "S103",
    ),
    Found(
        "A message that an input guardrail had refused was read by the model of the session's next "
        "turn; the simulator found it",
        "refused text; session",
        "S126",
    ),
    Found(
        "A message that a session sends on again after its reset was read twice; the simulator "
        "found it",
        "messages; session, reset",
        "S102",
    ),
    Found(
        "A message that came between two attempts of a session to start a turn, as after a reset, "
        "counted as read, and no model was sent it; the simulator found it",
        "messages; session, reset",
        "S104",
    ),
    Found(
        "A message that was taken back while Temporal refused to start its turn, as after a reset, "
        "was read all the same under the turn's second id; the simulator found it",
        "messages; session, reset",
        "S107",
    ),
    Found(
        "The effects of a delegate, or of a turn of a session, that was begun again after a reset "
        "were not taken back, as the turn of before the reset had the same id",
        "effects are taken back once; delegate, session, reset",
        "S108, S109",
    ),
    Found(
        "A message to a session whose turn was cancelled before its agent was known was read "
        "unchecked by the model of the next turn",
        "refused text; session",
        "S110",
    ),
    Found(
        "A turn that was reset to a task that had got updates told nobody of its end, as the id of "
        "its webhook was that of the run before; the simulator found it",
        "webhooks; reset",
        "S106",
    ),
    Found(
        "Calls that ended in the task that sees a cancel counted in the order of the calls for the "
        "turn, which takes back in that order, and as they ended for its readers; the simulator "
        "found it",
        "fold is state, effects are taken back once; cancel",
        "S116",
    ),
    Found(
        "A turn of which an earlier run was reset did not know the effects of the runs that had "
        "continued it, and brought them about again; the simulator found it",
        "effects once; reset, continue-as-new",
        "Y191",
    ),
    Found(
        "A turn that was reset a second time, to a point before that of the first reset, did not "
        "know the effects of the first run, and brought them about again; the simulator found it",
        "effects once; reset",
        "Y192",
    ),
    Found(
        "A turn that refused the made-up input of a later run counted what that said to be spent "
        "in the total budget of a schedule; the simulator found it",
        "schedules keep their limits; continue-as-new",
        "Y193",
    ),
)
"""What was found where a promise meets a feature, and is mended."""
