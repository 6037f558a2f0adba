"""Faults in features that begin, wait, tell and end in other ways than plain calls."""

from __future__ import annotations

from .planted import FOLD, REPLAYS, Planted

CLIENTS, SERVERS = "clients run their tools", "servers are told answers once"
LOGINS, TOOLS = "logins are asked for once", "tools of a login stay"
LIMITS_HOLD = "limits of the caller hold"
NOTICES, REMINDERS, HOOKS = "waits are told once", "reminders come once", "hooks start once"
SLOTS = "slots start once"
KEYED, PUSHES = "events by key come once", "push notifications tell each change once"
VERSIONS = "turns keep their versions"
LIMITS, LIVE, RECORDED = (
    "schedules keep their limits",
    "live text is of its call",
    "recorded once",
)

OF_FEATURES = (
    Planted(
        "the token of a call of the client is not recorded",
        "perdure/turn/jobs.py",
        'begun=ToolOutput(content="", proof=wait.proof)',
        'begun=ToolOutput(content="")',
        (CLIENTS,),
    ),
    Planted(
        "an agent that is handed a turn has the tools of the client",
        "perdure/turn/agent_call.py",
        "client_tools=request.client_tools if agent == request.agent else (),",
        "client_tools=request.client_tools,",
        (CLIENTS,),
        focus=("teams", "client tools"),
    ),
    Planted(
        "a turn that is handed over forgets the version that it was started with",
        "perdure/turn/handoffs.py",
        'version = before.version.model_copy(update={"name": agent.version.name})',
        "version = agent.version",
        (VERSIONS,),
        focus=("teams", "versions"),
    ),
    Planted(
        "a delegate has the version of its own id",
        "perdure/turn/wire.py",
        "            return self.lineage.ancestors[0].turn_id\n",
        "            return turn_id\n",
        (VERSIONS,),
        focus=("teams", "versions"),
    ),
    Planted(
        "a server is told the answers of an earlier round again",
        "perdure/turn/inquiries.py",
        "        before = before.over()  # its keys are those of one round\n",
        "",
        (SERVERS,),
        seeds=200,
    ),
    Planted(
        "a server is told that people accept who decline",
        "perdure/turn/inquiries.py",
        '"decline" if answer is None else "accept"',
        '"accept"',
        (SERVERS,),
        seeds=200,
    ),
    Planted(
        "a new run of a turn forgets what a server has asked",
        "perdure/turn/carry.py",
        "        inquiries=_if_any(tuple(call.inquiry for call in step.calls)),\n",
        "",
        (FOLD, SERVERS),
        seeds=400,
    ),
    Planted(
        "a person is asked to log in again who has declined to",
        "activities/mcp/login_results.py",
        '    if last is not None and last.action != "accept":\n',
        "    if False:\n",
        (LOGINS,),
        focus=("logins",),
    ),
    Planted(
        "a person is asked again after a login with all that the server demands",
        "activities/mcp/login_results.py",
        "    if last is not None and needed.has_them:",
        "    if False:",
        (LOGINS,),
        seeds=200,
        focus=("logins",),
    ),
    Planted(
        "a login brings tools that the turn may not use",
        "perdure/turn/new_tools.py",
        "        if agent.tool(tool.name) is None"
        " and (agent.allowed is None or tool.name in agent.allowed)\n",
        "        if agent.tool(tool.name) is None\n",
        (TOOLS, LIMITS_HOLD),
        focus=("logins",),
    ),
    Planted(
        "another login brings the tools in other words",
        "perdure/turn/new_tools.py",
        "    state = replace(state, agent=agent.model_copy("
        'update={"tools": (*agent.tools, *new)}))\n',
        "    names = {tool.name for tool in new}\n"
        "    old = tuple(tool for tool in agent.tools if tool.name not in names)\n"
        "    state = replace(state, agent=agent.model_copy("
        'update={"tools": (*old, *new)}))\n',
        (TOOLS,),
        seeds=200,
        focus=("logins",),
        also=(
            (
                "perdure/turn/new_tools.py",
                "        if agent.tool(tool.name) is None and (",
                "        if (",
            ),
        ),
    ),
    Planted(
        "live text is told backwards",
        "activities/live_text.py",
        "        self._pieces.append(piece)",
        "        self._pieces.insert(0, piece)",
        (LIVE,),
    ),
    Planted(
        "live text is told with the wrong place in the answer",
        "activities/live_text.py",
        "offset=self._length - len(text), text=text",
        "offset=self._length, text=text",
        (LIVE,),
    ),
    Planted(
        "only waits for an approval are told",
        "workflows/turn/waits.py",
        "        if shown.kind != DELAY:",
        '        if shown.kind == "approval":',
        (NOTICES,),
    ),
    Planted(
        "a new run of a turn tells a wait again",
        "workflows/turn/waits.py",
        '    else:\n        board.show(f"waits for {waits.kind}")\n',
        '    else:\n        board.show(f"waits for {waits.kind}")\n'
        "        await webhooks.tell_of_wait(board.state, waits)\n",
        (NOTICES,),
        focus=("notices", "builds"),
    ),
    Planted(
        "a turn that is not told of waits does not tell its end either",
        "workflows/turn/webhooks.py",
        '    return error.context.get("option") != "on_wait" or',
        "    return True or",
        ("webhooks are delivered or recorded",),
        focus=("notices",),
    ),
    Planted(
        "a receiver of push notifications is told of a wait at each look",
        "workflows/delivery/agent_push.py",
        '                call = call.model_copy(update={"told": change.place})\n',
        "",
        (PUSHES,),
        focus=("push", "builds"),
    ),
    Planted(
        "a new run of a session does not wait for its reminders",
        "workflows/session/agent_session.py",
        "        self._reminders.resume()\n",
        "",
        (REMINDERS, "nothing is stuck"),
        kind="session",
        seeds=150,
    ),
    Planted(
        "a reminder comes at once",
        "workflows/session/reminders.py",
        "        delay = max(reminder.at - workflow.now(), timedelta())",
        "        delay = timedelta()",
        (REMINDERS,),
        kind="session",
    ),
    Planted(
        "a new run of the workflow that keeps events forgets who waits",
        "workflows/keyed_events/agent_events.py",
        '        payload = pack(self._current, "the next run\'s input")',
        '        left = self._current.model_copy(update={"waiters": ()})\n'
        '        payload = pack(left, "the next run\'s input")',
        (KEYED,),
        focus=("keyed events", "builds"),
    ),
    Planted(
        "an event by key that is sent twice counts twice",
        "perdure/keyed_events/state.py",
        "    if event_id in state.ids:\n        return state\n",
        "",
        (KEYED,),
        focus=("keyed events",),
    ),
    Planted(
        "a turn is registered as if it had got no event by key",
        "workflows/turn/event_waits.py",
        "waiter=EventWaiter(turn_id=turn_id, until=until, after=after)",
        "waiter=EventWaiter(turn_id=turn_id, until=until)",
        (KEYED,),
        focus=("keyed events",),
    ),
    Planted(
        "each attempt of a delivery starts a turn of its own",
        "clients/gateway/hooks/starting.py",
        'f"hooks/{hook.name}/{short}")',
        'f"hooks/{hook.name}/{short}-{id(delivery)}")',
        (HOOKS,),
    ),
    Planted(
        "a delivery that nobody has signed is taken",
        "clients/gateway/hooks/schemes.py",
        "        if not any(\n            hmac.compare_digest(made, signature)",
        "        if not digests and not any(\n            hmac.compare_digest(made, signature)",
        (HOOKS,),
    ),
    Planted(
        "a delivery that comes after the end of its turn starts it again",
        "clients/turns/starting.py",
        "start_if(WorkflowIDReusePolicy.REJECT_DUPLICATE)",
        "start_if(WorkflowIDReusePolicy.ALLOW_DUPLICATE)",
        (HOOKS,),
    ),
    Planted(
        "the beginning of a local call is not noted",
        "workflows/turn/local_calls.py",
        "        self._board.note(Scheduled(key))\n",
        "",
        (FOLD,),
    ),
    Planted(
        "a local call that has a result is made again",
        "workflows/turn/moves.py",
        "            if await self._local.run(move.key, named, summary, locally,"
        " is_async=tool.is_async):\n                return\n",
        "            await self._local.run(move.key, named, summary, locally,"
        " is_async=tool.is_async)\n",
        (RECORDED, FOLD),
    ),
    Planted(
        "a schedule counts a turn again whose worker was lost meanwhile",
        "activities/settle_schedule.py",
        "    if account is None or account.counts(call.run_id):",
        "    if account is None:",
        (LIMITS,),
        kind="schedule",
    ),
    Planted(
        "each turn of a schedule may spend its whole total",
        "perdure/turn/schedule_account.py",
        "        return self._ledger.rest.within(budget)",
        "        return self.total.within(budget)",
        (LIMITS,),
        kind="schedule",
    ),
    Planted(
        "a message of a schedule that skips waits for the turn that runs",
        "perdure/session/scheduled.py",
        '"skip": "reject", "queue"',
        '"skip": "queue", "queue"',
        (SLOTS,),
        kind="schedule",
        focus=("scheduled messages",),
    ),
    Planted(
        "a message of a schedule is sent once, and lost with its worker",
        "workflows/session/agent_scheduled_message.py",
        "            retry_policy=RetryPolicy(maximum_interval=limits.BENCH),",
        "            retry_policy=RetryPolicy(maximum_attempts=1),",
        (SLOTS,),
        kind="schedule",
        focus=("scheduled messages",),
    ),
    Planted(
        "a batch of a schedule has no budget",
        "workflows/batch/agent_scheduled_batch.py",
        "        budget=schedule.account.within(request.budget) if schedule.account else"
        " request.budget,",
        "        budget=None,",
        ("limits of the caller hold", "bill within limit"),
        kind="batch",
        focus=("scheduled batches",),
    ),
    Planted(
        "a batch of a schedule looks for the parts of other tasks",
        "workflows/batch/agent_scheduled_batch.py",
        "        digest=stored.digest,",
        "        digest=stored.digest[::-1],",
        ("nothing raises", "nothing is stuck", "tasks end once", FOLD),
        kind="batch",
        focus=("scheduled batches",),
    ),
    Planted(
        "a cancel that comes with the signal that ends a run is lost",
        "workflows/update_answers.py",
        "        in_next_task = moves or (is_signalled and workflow.patched(CANCELS_FIRST))",
        "        in_next_task = False",
        ("nothing is stuck",),
        focus=("builds",),
    ),
    Planted(
        "an effect that an earlier call has brought about is taken back twice",
        "perdure/turn/effects.py",
        '    if status == "done" and _is_of_earlier(state, own, effect.same_as):',
        "    if False:",
        ("effects are taken back once",),
        focus=("payments", "losses"),
    ),
    Planted(
        "what delegates of one answer are given is not reserved",
        "perdure/turn/leases.py",
        '            ledger = ledger.hold(f"child-{waiting}", lease)\n',
        "",
        ("bill within limit", "nothing raises", "no task fails"),
        seeds=150,
        focus=("teams", "bills", "budgets"),
    ),
    Planted(
        "a wait for a job looks at the clock",
        "workflows/turn/call_waits.py",
        "agent.rules >= 8",
        "agent.rules >= 9",
        (REPLAYS,),
        focus=("jobs",),
    ),
    Planted(
        "an idle session looks at the length of its history",
        "workflows/session/agent_session.py",
        "                    or self._is_known_full\n",
        "                    or self._is_full\n",
        (REPLAYS,),
        seeds=50,
        kind="session",
        focus=("reminders",),
    ),
    Planted(
        "a timer that has fired before its moment is waited for again",
        "workflows/turn/clock.py",
        "            if not is_early:\n                return\n",
        "            return\n",
        ("no task fails",),
        kind="session",
        focus=("clocks",),
    ),
)
"""Found by the checks of these features, most of which a part of the simulations has."""
