"""Other systems in a simulation, which send signed deliveries to the hooks of a gateway.

Each is sent several times, also after it was answered, and some are forged. The gateway's own code
verifies them, and finds out what they start. It may be lost before it answers.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from perdure import errors
from perdure.agents.agent import Agent
from perdure.clients.client import AgentClient
from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.hooks.definitions import Hook, HookTable
from perdure.clients.gateway.hooks.starting import HookStart
from perdure.clients.gateway.hooks.templates import Delivery
from perdure.clients.gateway.inputs import document_of
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.turns.starting import Starter
from perdure.session.wire import Say
from perdure.temporal.names import FINISH_CALL, SAY, SESSION
from perdure.temporal.payloads import pack
from perdure.temporal.start_request import turn_request
from perdure.testing.simulation.calls.deliveries import SentDelivery
from perdure.testing.simulation.calls.jobs import StartedJob
from perdure.testing.simulation.clients.starting_client import ClientLostError, StartingClient
from perdure.testing.simulation.operations.branches import Loop, NoMarks
from perdure.testing.simulation.people import People
from perdure.testing.simulation.server.sdk import TASK_QUEUE
from perdure.testing.simulation.server.server import SimulatedServer
from perdure.testing.simulation.world import SimulatedWorld
from perdure.turn import call_tokens
from perdure.turn.job_values import FinishCall
from perdure.values.budgets import Budget

_SEQUENCE = "hooks"
_PAUSES_S = (1, 0, 5, 30)
_AGAIN_S = (0, 0, 0.5, 20, 100)
_TIMES = (1, 2, 2, 3)
_KEY, _OTHER_KEY = b"the secret of the hooks", b"a secret that somebody has made up"


def hooks_of(agent: str, budget: Budget | None) -> dict[str, Hook]:
    """Return the hooks of the gateway, by what they start."""
    common: dict[str, Any] = {"verify": "github", "secrets": ("SECRET",), "template": "{/text}"}
    tables = {
        "turn": HookTable(path="/hooks/turns", agent=agent, budget=budget, **common),
        "message": HookTable(
            path="/hooks/messages", agent=agent, **{**common, "session": "session"}
        ),
        "result": HookTable(path="/hooks/results", **{**common, "call": "{/token}"}),
    }
    return {
        name: Hook(table, (_KEY,), Caller(f"hook {table.path}", None))
        for name, table in tables.items()
    }


class HookDeliveries:
    """Sends a few deliveries, and the results of some jobs in the same way."""

    def __init__(
        self,
        server: SimulatedServer,
        loop: Loop,
        world: SimulatedWorld,
        people: People,
        agents: Sequence[Agent[Any]],
        task_timeout: timedelta,
    ) -> None:
        self._server = server
        self._loop = loop
        self._world = world
        self._people = people
        self._task_timeout = task_timeout
        root = server.run_of(people.workflow_id)
        assert root is not None
        self._starts = "message" if root.begun.type == SESSION else "turn"
        self._hooks = hooks_of(agents[0].name, Budget(usd=60, tokens=60_000))
        self._left = server.choices.pick((1, 2, 3), beside=_SEQUENCE)
        world.jobs.on_start.append(self._answer)
        self._later()

    def _pick(self, options: Sequence[Any]) -> Any:
        return self._server.choices.pick(options, beside=_SEQUENCE)

    def _later(self) -> None:
        if self._left:
            self._left -= 1
            self._server.clock.later(self._pick(_PAUSES_S), self._send)

    def _send(self) -> None:
        """Send a delivery to the hook that starts turns, or messages."""
        number = len(self._world.deliveries) + 1
        text, short = f"delivery {number};", f"d{number}"
        start = f"hooks/turns/{short}" if self._starts == "turn" else f"messages:{short}"
        is_signed = not self._server.choices.happens(6, beside=_SEQUENCE)
        self._world.deliveries[short] = SentDelivery(
            "turn" if self._starts == "turn" else "message", start, text, is_signed
        )
        self._people.texts[start] = text
        self._repeat(self._starts, short, {"text": text}, is_signed=is_signed)
        self._later()

    def _answer(self, job: StartedJob) -> None:
        """Send the result of a job to the hook of calls; of most jobs others send it.

        It is a success, so a job that fails sends none.
        """
        if self._server.choices.happens(2, beside=_SEQUENCE) and not job.fails:
            short = f"d{len(self._world.deliveries) + 1}"
            text = f"delivered result {short};"
            self._world.deliveries[short] = SentDelivery("result", job.token, text, is_signed=True)
            body = {"text": text, "token": job.token}
            self._server.clock.later(
                self._pick(_PAUSES_S), partial(self._repeat, "result", short, body, is_signed=True)
            )

    def _repeat(self, hook: str, short: str, body: dict[str, str], *, is_signed: bool) -> None:
        """Send a delivery some times, as its sender does that does not hear of an answer."""
        later_s = 0.0
        for _ in range(self._pick(_TIMES)):
            deliver = partial(self._deliver, self._hooks[hook], short, body, is_signed=is_signed)
            self._server.clock.later(later_s, deliver)
            later_s += self._pick(_AGAIN_S)

    def _deliver(self, hook: Hook, short: str, body: dict[str, str], *, is_signed: bool) -> None:
        """Deliver it once, as far as the gateway is not lost meanwhile."""
        self._server.counts["hooks"] += 1
        data = json.dumps(body).encode()
        digest = hmac.digest(_KEY if is_signed else _OTHER_KEY, data, hashlib.sha256).hex()
        headers = {"x-github-delivery": short, "x-hub-signature-256": f"sha256={digest}"}
        count = len(self._server.runs)
        with contextlib.suppress(RefusedError, errors.PerdureError, ClientLostError):
            self._loop.run(self._started(hook, headers, data))
            known = self._world.deliveries[short]
            self._world.deliveries[short] = replace(known, is_answered=True)
        for run in self._server.runs[count:]:
            people = People(self._server, run.id)
            people.sent = self._people.sent

    async def _started(self, hook: Hook, headers: dict[str, str], data: bytes) -> None:
        """Verify a delivery, and start what it is to start.

        Raises:
            RefusedError: It is not signed.
            PerdureError: It is refused.
            ClientLostError: The gateway is lost.
        """
        hook.scheme.claim(headers).check_body(hook.keys, data)
        document = document_of(data)
        delivery = Delivery(hook.delivery_id(headers, document), headers, document)
        start = HookStart.of(hook, delivery)
        survives = self._pick((None, None, None, 0))
        client = _GatewayClient(self._server, self._task_timeout, survives)
        await start.make(cast("AgentClient", client))


class _GatewayClient:
    """The client of the gateway, as far as hooks use it. Updates are not waited for."""

    def __init__(
        self, server: SimulatedServer, task_timeout: timedelta, survives: int | None
    ) -> None:
        self._client = cast("Any", StartingClient(server, task_timeout, survives))
        self._server = server

    async def start(
        self,
        agent: str,
        task: str,
        *,
        id: str,
        fairness: str | None,
        priority: int | None,
        by: str,
        **options: Any,
    ) -> None:
        """Start a turn, or find it."""
        starter = Starter(self._client, TASK_QUEUE, NoMarks(self._client))
        await starter.start(turn_request(agent, task, **options), id, by=by)

    def session(self, session_id: str, agent: str, **options: Any) -> Any:
        """Return the handle of a session, with the method that hooks use."""

        async def say(text: str, *, id: str, if_busy: Any, by: str) -> None:
            self._update(session_id, id, SAY, Say(text=text, if_busy=if_busy, by=by))

        return SimpleNamespace(say=say)

    async def finish_call(self, token: str, result: str, *, is_error: bool, by: str) -> str:
        """Send the result of a call."""
        turn_id = call_tokens.parse(token).turn_id
        finish = FinishCall(token=token, content=result, is_error=is_error, by=by)
        text = f"{token}\n{is_error}\n{result}"
        update_id = hashlib.sha256(text.encode()).hexdigest()[:32]
        self._update(turn_id, update_id, FINISH_CALL, finish)
        return turn_id

    def _update(self, workflow_id: str, update_id: str, name: str, content: Any) -> None:
        run = self._server.run_of(workflow_id)
        if run is None:
            raise errors.TurnOverError(f"{workflow_id} is over")
        self._server.update(run, update_id, name, pack(content))
