"""Errors of the Temporal server: turns, sessions, batches and schedules agree about them."""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import GrpcStatus
from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure import errors
from perdure.clients import AgentClient
from perdure.clients.gateway.mcp.served import Served
from perdure.testing import ScriptedModel, says

from ...conftest import RecordingClient, Runtime
from ...support.conversing import session_of
from ...support.counting import CountingService
from ...support.spending import SOON_S, app
from ...support.stale_polls import StaleService
from ...support.verbs import EXISTING, MISSING, READS, WRITES, all_of, end_of, handles

FOLLOWED = "get_workflow_execution_history"


class RefusingService(CountingService):
    """Refuses requests of some names, or all without a name, with an error.

    Attributes:
        asked: The number of requests of these names.
        refused: The number of those that were refused.
    """

    def __init__(self, inner: Any, rpcs: tuple[str, ...], error: RPCStatusCode) -> None:
        super().__init__(inner)
        self._rpcs = rpcs
        self._error = error
        self.message = "refused by the test"
        self.details = b""
        self.most = float("inf")
        self.first = 0
        self.asked = 0
        self.refused = 0

    def refuse(self, *, first: int = 0, most: float = float("inf")) -> None:
        """Begin again: refuse at most so many requests, and let so many pass before that."""
        self.first, self.most, self.asked, self.refused = first, most, 0, 0

    async def _rpc_call(
        self,
        rpc: str,
        req: Any,
        resp_type: Any,
        *,
        service: str,
        retry: bool,
        metadata: Any,
        timeout: timedelta | None,
    ) -> Any:
        if rpc in self._rpcs or not self._rpcs:
            self.asked += 1
            if self.asked > self.first and self.refused < self.most:
                self.refused += 1
                raise RPCError(self.message, self._error, self.details)
        return await super()._rpc_call(
            rpc, req, resp_type, service=service, retry=retry, metadata=metadata, timeout=timeout
        )


def reads(client: AgentClient, ids: dict[str, str]) -> dict[str, Awaitable[Any]]:
    """The read of each resource that ends."""
    return {
        "turn": all_of(client.turn(ids["turn"]).events()),
        "session": all_of(client.session(ids["session"]).events()),
        "batch": all_of(client.batch(ids["batch"]).results()),
        "schedule": client.schedule(ids["schedule"]).status(),
    }


def three_answers() -> ScriptedModel:
    """A model for what is prepared."""
    return ScriptedModel(says("one"), says("two"), says("three"))


async def prepared(client: RecordingClient) -> dict[str, str]:
    """The ids of a turn, a session, a batch and a schedule; all but the last are over."""
    name = secrets.token_hex(4)
    session = session_of(client)
    sent = await session.say("hello")
    await sent.result()
    await session.close()
    async for _ in session.events():
        pass
    batch = await client.start_batch(f"batch-{name}", "spender", ["a task"])
    await batch.wait()
    schedule = await client.create_schedule(
        f"schedule-{name}", "spender", "a task", cron="0 3 * * *", timezone="UTC"
    )
    await client.turn(await schedule.run_now()).result()
    return {
        "turn": sent.turn_id,
        "session": session.id,
        "batch": batch.id,
        "schedule": schedule.id,
    }


FATAL = {
    RPCStatusCode.PERMISSION_DENIED: errors.ConfigurationError,
    RPCStatusCode.UNAUTHENTICATED: errors.ConfigurationError,
    RPCStatusCode.UNIMPLEMENTED: errors.ServerUnreachableError,
}
REFUSED = (FOLLOWED, "describe_schedule")


@pytest.mark.slow
@pytest.mark.accepts("E152")
async def test_error_of_the_server_has_one_class_everywhere(runtime: Runtime) -> None:
    """One that does not pass ends every read; one that passes ends none that follows."""
    model = three_answers()
    raised, refused, passed = [], [], []
    async with runtime(app(), model=model) as client:
        ids = await prepared(client)
        for code in FATAL:
            service = RefusingService(client.temporal.service_client, REFUSED, code)
            other = AgentClient.from_temporal(Client(service, namespace=client.temporal.namespace))
            async with asyncio.timeout(SOON_S):
                results = await asyncio.gather(*reads(other, ids).values(), return_exceptions=True)
            raised += [(code, type(one)) for one in results]
            refused.append(service.refused)
        service = RefusingService(
            client.temporal.service_client, (FOLLOWED,), RPCStatusCode.INTERNAL
        )
        other = AgentClient.from_temporal(Client(service, namespace=client.temporal.namespace))
        for name, reading in reads(other, ids).items():
            service.refuse(most=1)
            async with asyncio.timeout(SOON_S):
                await reading
            passed.append((name, service.refused))
        await client.schedule(ids["schedule"]).delete()

    assert raised == [(code, cls) for code, cls in FATAL.items() for _ in range(4)]
    assert all(count >= 4 for count in refused)
    assert passed == [("turn", 1), ("session", 1), ("batch", 1), ("schedule", 0)]


NO_NAMESPACE = "Namespace x is not found."
WITHOUT_NAMESPACE = GrpcStatus()
WITHOUT_NAMESPACE.details.add().Pack(NamespaceNotFoundFailure(namespace="x"))
REFUSALS = [
    (RPCStatusCode.NOT_FOUND, "workflow not found for ID: namespace-1", None),
    (RPCStatusCode.NOT_FOUND, NO_NAMESPACE, errors.ConfigurationError),
    (RPCStatusCode.PERMISSION_DENIED, "the key was revoked", errors.ConfigurationError),
    (RPCStatusCode.UNAUTHENTICATED, "there is no key", errors.ConfigurationError),
    (RPCStatusCode.INVALID_ARGUMENT, "not valid", errors.InvalidRequestError),
    (RPCStatusCode.UNIMPLEMENTED, "not in this release", errors.ServerUnreachableError),
]
PASSING = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.UNKNOWN,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.ABORTED,
)


LATER = 7
LATER_WRITES = {
    resource: {verb: call for verb, call in verbs.items() if verb not in ("delete", "run_now")}
    for resource, verbs in WRITES.items()
}
"""Those that leave the schedule, and start no turns of it."""
FOUND_BY: dict[tuple[str, str], int] = defaultdict(lambda: 1, {("batch", "results"): 2})
"""The number of requests with which a read finds what it follows."""
FOLLOWING = {
    ("turn", "events"),
    ("turn", "live"),
    ("turn", "wait"),
    ("turn", "result"),
    ("session", "events"),
    ("session", "wait"),
    ("batch", "results"),
    ("batch", "wait"),
    ("schedule", "results"),
}
"""The reads that go on after an error that passes, once they have found what they follow."""


def refusing(client: AgentClient, code: RPCStatusCode) -> tuple[AgentClient, RefusingService]:
    """A client of a server that refuses every request, and what refuses them."""
    service = RefusingService(client.temporal.service_client, (), code)
    temporal = Client(service, namespace=client.temporal.namespace)
    return AgentClient.from_temporal(temporal), service


@pytest.mark.slow
@pytest.mark.accepts("E152")
async def test_every_verb_of_every_resource_ends_with_the_class_of_the_error(
    runtime: Runtime,
) -> None:
    """Whatever the server answers: no row retries for ever."""
    expected, found, asked = dict[Any, str](), dict[Any, str | None](), 0
    async with runtime(
        app(), model=ScriptedModel(says("one"), says("two"), says("three"))
    ) as client:
        ids = await prepared(client)
        for code, message, cls in REFUSALS:
            other, service = refusing(client, code)
            service.message = message
            if message == NO_NAMESPACE:
                service.details = WITHOUT_NAMESPACE.SerializeToString()
            known = handles(other, ids)
            asked += service.asked
            for resource, handle in known.items():
                for verb, call in {**READS[resource], **WRITES[resource]}.items():
                    row = code.name, message, resource, verb
                    is_list = (resource, verb) == ("schedule", "turns")
                    refusal = cls or MISSING["turn" if is_list else resource]
                    if is_list and code is RPCStatusCode.INVALID_ARGUMENT:
                        refusal = errors.ConfigurationError  # the filter, which Perdure made
                    expected[row] = refusal.__name__
                    end = await end_of(call(handle))
                    found[row] = end.__name__ if end else None
        await client.schedule(ids["schedule"]).delete()

    assert asked == 0  # a handle asks nothing
    assert found == expected


@pytest.mark.slow
@pytest.mark.accepts("E152")
async def test_every_verb_ends_with_an_error_of_perdure_if_a_later_request_is_refused(
    runtime: Runtime,
) -> None:
    """From the second request on, from the third, and so on, until none is left to refuse."""
    untyped, classes = dict[Any, type[BaseException]](), dict[Any, type[BaseException] | None]()
    rows = set[tuple[str, str]]()
    model = ScriptedModel(says("zero"), says("one"), says("two"), says("three"))
    async with runtime(app(), model=model) as client:
        await client.run("spender", "the first task", id=EXISTING)
        ids = await prepared(client)
        for resource in READS:
            for verb, call in {**READS[resource], **LATER_WRITES[resource]}.items():
                for first in range(1, LATER):
                    # another client, which has read nothing yet
                    other, service = refusing(client, RPCStatusCode.PERMISSION_DENIED)
                    service.refuse(first=first)
                    end = await end_of(call(handles(other, ids)[resource]))
                    if not service.refused:
                        break
                    rows.add((resource, verb))
                    if end is not None and not issubclass(end, errors.PerdureError):
                        untyped[resource, verb, first] = end
                    if verb in READS[resource]:
                        classes[resource, verb, first] = end
        await client.schedule(ids["schedule"]).delete()

    assert untyped == {}
    # what is left out without the last requests was only to be shown, or waited for
    assert set(classes.values()) <= {errors.ConfigurationError, None}
    assert {("client", "start"), ("turn", "fork"), ("session", "events")} < rows


@pytest.mark.slow
@pytest.mark.accepts("E152")
async def test_error_that_passes_is_waited_out_by_those_that_follow(runtime: Runtime) -> None:
    """All other reads end with its class; a later request is refused, twice."""
    expected, ends = dict[Any, object](), dict[Any, object]()
    async with runtime(
        app(), model=ScriptedModel(says("one"), says("two"), says("three"))
    ) as client:
        ids = await prepared(client)
        for code in PASSING:
            for resource in READS:
                for verb, call in READS[resource].items():
                    other, service = refusing(client, code)
                    service.refuse(first=FOUND_BY[resource, verb], most=2)
                    end = await end_of(call(handles(other, ids)[resource]))
                    if not service.refused:  # it asks for nothing else
                        continue
                    is_following = (resource, verb) in FOLLOWING
                    expected[code.name, resource, verb] = (
                        None if is_following else errors.ServerUnreachableError
                    )
                    ends[code.name, resource, verb] = end
        await client.schedule(ids["schedule"]).delete()

    assert ends == expected
    assert {(resource, verb) for _, resource, verb in ends} > FOLLOWING


@pytest.mark.accepts("E152")
async def test_mcp_server_of_some_agents_names_an_outage(runtime: Runtime) -> None:
    """It reads the first event of a turn, and of the turn at the root, to learn the agent."""
    async with runtime(app(), model=ScriptedModel(says("one"))) as client:
        turn = await client.start("spender", "go")
        await turn.result()
        service = RefusingService(
            client.temporal.service_client, (FOLLOWED,), RPCStatusCode.UNAVAILABLE
        )
        other = AgentClient.from_temporal(Client(service, namespace=client.temporal.namespace))
        served = Served(other, frozenset({"spender"}))
        with pytest.raises(errors.ServerUnreachableError):
            await served.turn(turn.id)


@pytest.mark.slow
@pytest.mark.accepts("E152")
async def test_steer_says_that_the_turn_is_over_also_if_its_report_cannot_be_read(
    runtime: Runtime,
) -> None:
    """Whichever of its last requests is refused."""
    ends = []
    async with runtime(app(), model=ScriptedModel(says("one"))) as client:
        turn = await client.start("spender", "go")
        await turn.result()
        service = RefusingService(
            client.temporal.service_client,
            ("describe_workflow_execution",),
            RPCStatusCode.PERMISSION_DENIED,
        )
        other = AgentClient.from_temporal(Client(service, namespace=client.temporal.namespace))
        for first in range(LATER):
            service.refuse(first=first)
            ends.append(await end_of(other.turn(turn.id).steer("hello")))
            if not service.refused:
                break

    assert ends[-2:] == [errors.TurnOverError] * 2
    assert ends[0] == errors.ConfigurationError


@pytest.mark.accepts("E152")
async def test_missing_namespace_is_not_taken_for_a_missing_id_with_that_word(
    perdure_server: str,
) -> None:
    """The server says which of both it is."""
    client = AgentClient.from_temporal(await Client.connect(perdure_server))
    other = AgentClient.from_temporal(await Client.connect(perdure_server, namespace="nowhere"))

    with pytest.raises(errors.TurnNotFoundError, match="'my-namespace'"):
        await client.turn("my-namespace").status()
    with pytest.raises(errors.ConfigurationError, match="create-namespace"):
        await other.turn("my-namespace").status()


@pytest.mark.accepts("E153")
async def test_events_of_a_session_go_on_when_the_server_refuses_its_token(
    runtime: Runtime,
) -> None:
    """Every fact is delivered once, in order."""
    model = ScriptedModel(*[says(f"answer {number}") for number in range(4)])
    async with runtime(app(), model=model) as client:
        service = StaleService(client.temporal.service_client)
        follower = AgentClient.from_temporal(Client(service, namespace=client.temporal.namespace))
        session = session_of(client)
        sent = await session.say("hello")

        async def followed() -> list[str]:
            return [event.cursor async for event in follower.session(session.id).events()]

        following = asyncio.create_task(followed())
        for number in range(3):
            await sent.result()
            sent = await session.say(f"message {number}")
        await sent.result()
        await session.close()
        async with asyncio.timeout(SOON_S):
            cursors = await following
        expected = [event.cursor async for event in session.events()]

    assert service.refused > 1
    assert cursors == expected
