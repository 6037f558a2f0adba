"""The section of `docs/proof.md` about the kill matrix, with what it has shown."""

from __future__ import annotations

CONTROLS = """\
| a tool that may not be repeated is, after its worker was lost | kill in charge | duplicates | \
1 | 22 |
| tools are retried by Temporal | machine in charge | duplicates | 1 | 27 |
| each attempt of a tool has another idempotency key | kill in book | duplicates | 1 | 20 |
| nothing is reserved before a call | nothing | bill | 1 | 7 |
| an approval is bound neither to arguments nor to a run | replaced call | unapproved | 1 | 15 |
| calls that need an approval do not wait for it | nothing | unapproved | 1 | 8 |
| every decision that arrives in one workflow task is accepted | 16 deciders | *not in this run* | \
4 | 22 |
| heartbeats are not missed for an hour | machine in charge | stuck | 1 | 119 |
| a worker process that died is not started again | kill in charge | stuck | 1 | 120 |
| a tool whose worker was lost is reported as done | kill before charge | overclaims | 1 | 25 |
| the last message is read first | nothing | messages | 1 | 15 |
| a message that is not read yet is forgotten when another one comes | nothing | messages | 1 | 14 |
"""
FAULTS = """\
| fault | runs | not landed | task success | exactly once | unknown, named | bill <= limit | \
messages | goes on, s | p95 | red |
|---|---|---|---|---|---|---|---|---|---|---|
| none | 3 | 0 | 3/3 | 3/3 | 0 | 3/3 | 3/3 |  |  | 0 |
| kill | 3 | 0 | 3/3 | 3/3 | 0 | 3/3 | 3/3 | 4.3 | 8.7 | 0 |
| stop | 3 | 0 | 3/3 | 3/3 | 0 | 3/3 | 3/3 | 9.6 | 9.6 | 0 |
| drain | 3 | 0 | 3/3 | 3/3 | 0 | 3/3 | 3/3 | 0.1 | 0.1 | 0 |
| machine | 3 | 0 | 3/3 | 3/3 | 0 | 3/3 | 3/3 | 8.8 | 20.5 | 0 |
| server | 3 | 0 | 3/3 | 3/3 | 0 | 3/3 | 3/3 | 2.7 | 3.3 | 0 |
| gateway | 3 | 0 | 3/3 | 3/3 | 0 | 3/3 | 3/3 | 0.4 | 0.9 | 0 |
| cut | 3 | 0 | 3/3 | 3/3 | 1 | 3/3 | 3/3 | 20.4 | 20.4 | 0 |
| disk | 3 | 0 | 3/3 | 3/3 | 1 | 3/3 | 3/3 | 0.2 | 20.1 | 0 |
| deploy | 3 | 0 | 3/3 | 3/3 | 0 | 3/3 | 3/3 | 0.2 | 3.0 | 0 |
| reset | 3 | 0 | 3/3 | 3/3 | 1 | 3/3 | 3/3 | 0.1 | 0.7 | 0 |
| carry | 2 | 1 | 2/2 | 2/2 | 0 | 2/2 | 2/2 | 0.6 | 0.7 | 0 |
| kill before charge | 1 | 0 | 0/1 | 0/1 | 1 | 1/1 | 1/1 | 20.8 | 20.8 | 0 |
| kill in charge | 1 | 0 | 1/1 | 1/1 | 1 | 1/1 | 1/1 | 5.9 | 5.9 | 0 |
| kill in book | 1 | 0 | 1/1 | 1/1 | 0 | 1/1 | 1/1 | 8.7 | 8.7 | 0 |
| machine in charge | 1 | 0 | 1/1 | 1/1 | 1 | 1/1 | 1/1 | 8.5 | 8.5 | 0 |
| replaced call | 1 | 0 | 1/1 | 1/1 | 0 | 1/1 | 1/1 | 0.2 | 0.2 | 0 |
| 2 deciders | 1 | 0 | 1/1 | 1/1 | 0 | 1/1 | 1/1 | 1.0 | 1.0 | 0 |
| 4 deciders | 1 | 0 | 1/1 | 1/1 | 0 | 1/1 | 1/1 | 0.9 | 0.9 | 0 |
| 8 deciders | 1 | 0 | 1/1 | 1/1 | 0 | 1/1 | 1/1 | 0.8 | 0.8 | 0 |
| 16 deciders | 1 | 0 | 1/1 | 1/1 | 0 | 1/1 | 1/1 | 1.3 | 1.3 | 0 |
"""
NOTE = """
Run at once on 2026-11-27 on commit `3a71ebb0`, with seed 29, six jobs at a time on two quiet cores,
in 5.6 minutes: 10 of 12 were seen. The decisions were seen on commit `f5dea97` by *decided twice*,
while other work shared the cores, after one job and 29 s: on a quiet machine, 16 decisions seldom
arrive in one workflow task. The heartbeats were run again on commit `cd73112a`: until then, the
call ended by its own timeout of a minute, before a job counts as stuck.
"""
SECTION = (
    """
## The kill matrix

`make -C benchmarks matrix` runs a job as users run theirs: on a Temporal server with a file, with
`perdure worker` and its supervisor, and with people who use `perdure serve`. The job has a tool
that may be repeated, one that may not, one with an idempotency key, and one that waits for an
approval; a budget, and a delegate that only its own budget stops; three messages to the running
turn; and a run that continues as new. When its history has *n* events, a fault is made:

| fault | what is done |
|---|---|
| `kill` | SIGKILL of the worker process; its supervisor starts another one |
| `stop` | SIGSTOP of the process that worked last, beside another one, for longer than heartbeats \
may be late; then SIGCONT |
| `drain` | SIGTERM of the supervisor, while another one starts |
| `machine` | SIGKILL of the supervisor and its worker; another one starts |
| `server` | SIGKILL of the Temporal server, which starts again on its file |
| `gateway` | SIGKILL of the gateway that the people use; they go on with another one |
| `cut` | the connections between worker and server are broken, and refused for a while |
| `disk` | the disk of the server is full for a while |
| `deploy` | a worker of another build takes over, with other instructions and one more tool |
| `reset` | the turn is reset to the end of its last workflow task |
| `carry` | the turn continues as new |

Other faults are aimed at a moment: a kill before or after an effect, and a decision about a call
that a reset has replaced by another one. Then 2 to 16 deciders decide about one call at the same
moment, on two gateways.

The witness is another process. It is the model, with a bill by its own counter, and the service
behind the tools, and it has every line on the disk before it answers. Only its lines are judged. A
fault counts if it has landed: there is evidence of it, such as a process that is gone, and the turn
was open. Others are counted apart. The columns are those of LIMBO (arXiv 2609.29095), and more:

| column | meaning |
|---|---|
| task success | the turn completed, and every effect was made, or was denied |
| exactly once | the same, and no effect was made twice that may not be |
| duplicates | effects that may not be repeated, and were |
| overclaims | effects that the answer claims, and the witness does not have |
| unknown, named | effects whose outcome the answer names as unknown: no success, but honest |
| unapproved, decided twice | effects without an approval of these arguments; calls for which two \
decisions were used |
| bill <= limit | the witness has billed at most the budget, of the job and of its delegate |
| messages | each accepted message was in the transcript once, in order, or was named as unread |
| stuck | turns that did not end |
| goes on, s; p95 | seconds from the fault to the next model call or effect: the median, and 95 % |
| red | jobs that broke a check |

A reset may do again what came after its point, and spend the rest of the budget again, as
[documented](operating.md#reset-a-turn); so after one reset, two are allowed.

### What it has shown

FAULTS

No effect was made twice, claimed and not made, or made without its approval; no call was decided
twice, and no turn was stuck. The job with `kill before charge` ends honestly without its payment:
its worker was killed before the payment was made, the tool may not be repeated, and the answer
names it as unknown. Measured on 2026-11-27 on commit `3a71ebb0`, with seed 29: the short form, at
events 36, 76 and 116 of 124, six jobs at a time on two quiet cores, in 3.4 minutes.

### Builds without a safeguard

These are copies of the product from which a safeguard is removed, in all of its layers. Their jobs,
and their gateways, run that build. Each was seen by the check that is named, after so many jobs and
seconds.

| removed | what was done | seen by | jobs | seconds |
|---|---|---|---|---|
CONTROLS
NOTE
""".replace("FAULTS\n", FAULTS)
    .replace("CONTROLS\n", CONTROLS)
    .replace("NOTE\n", NOTE)
)
