"""The outside of Perdure in a simulation: models that answer, fail and bill, and tools that act.

It is the witness, too: it notes each bill and each effect when it happens, whether Perdure hears of
it or not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from temporalio.common import RawValue

from perdure import errors, limits
from perdure.activities.provider import ModelRequest
from perdure.agents.definitions import AgentDefinition
from perdure.delivery.push import PushMessage
from perdure.delivery.webhook import Notification, WaitMessage, WebhookMessage
from perdure.errors import PerdureError
from perdure.testing.simulation.calls import forms
from perdure.testing.simulation.calls.deliveries import SentDelivery
from perdure.testing.simulation.calls.jobs import JobService
from perdure.testing.simulation.calls.logins import DIARY_TOOLS, LOGINS, PersonalServer
from perdure.testing.simulation.calls.payments import Payments
from perdure.testing.simulation.calls.proposed import some_call
from perdure.testing.simulation.calls.servers import AskingServer
from perdure.testing.simulation.choices import BESIDE, DEADLINES, GUARDS, Choices
from perdure.testing.simulation.server.runs import Activity
from perdure.turn.effect_values import Verification
from perdure.turn.keys import ModelKey, parse_key
from perdure.turn.wire import ToolOutput, ToolRun
from perdure.values.answers import ModelAnswer
from perdure.values.messages import AssistantMessage, Text, Thinking, ToolCall
from perdure.values.prices import Price
from perdure.values.reports import StopReason, Usage

PRICE = Price.model_validate({"input": 1000, "output": 1000})
"""What every model of a simulation costs: a tenth of a cent per token."""

HOST = "hooks.example.com"
"""The only host that simulated workers send webhooks to."""

URL, REFUSED_URL = f"https://{HOST}/done", "https://elsewhere.example.com/done"
"""A URL that they send webhooks to, and another."""

CANARY = "canary"
"""The beginning of the words that guardrails refuse."""

_ALONE = ("ends", *("calls",) * 9, "odd")
_WITH_OTHERS = ("ends", *("calls",) * 7, "others", "others", "odd")
_IN_TEAM = ("ends", *("calls",) * 2, *("others",) * 9, "odd")
"""What a model does, with the weights of a pick."""

ASIDE = "aside"
"""The beginning of the words that guarded delegates say beside their calls."""

_STATUSES = (200, 204, 200, 500, 429, 500, 503, 404, 410, 302)
"""The statuses with which receivers of webhooks answer."""
_FAILURES: tuple[Callable[[], PerdureError], ...] = (
    lambda: errors.LLMRateLimitError("busy", context={"status": 429}),
    lambda: errors.LLMRateLimitError("busy", context={"status": 429, "retry_after_s": 7}),
    lambda: errors.LLMUnavailableError("down"),
    lambda: errors.LLMTimeoutError("slow"),
    lambda: errors.LLMAuthError("no"),
    lambda: errors.LLMInvalidRequestError("odd"),
)


@dataclass(frozen=True)
class SimulatedBill:
    """What the model calls of a tree of turns have cost, with all attempts: the bill."""

    tokens: int = 0
    usd: Decimal = Decimal(0)


@dataclass(frozen=True)
class ToolEffect:
    """What an attempt of a tool call has done."""

    activity: Activity
    call_id: str
    may_repeat: bool
    tool: str = ""
    only_reads: bool = False


@dataclass(frozen=True)
class ReceivedMessage:
    """A message that the receiver of a webhook was sent, with the status of its answer.

    Attributes:
        delivery: The id of the workflow that delivers it.
        id: The id of the message.
    """

    delivery: str
    id: str
    message: WebhookMessage | WaitMessage | PushMessage
    status: int


@dataclass(frozen=True)
class SentMessages:
    """What a model was sent: the messages as text, with the turn and its first run."""

    turn_id: str
    turn: str
    text: str


class SimulatedWorld:
    """Models and tools whose every answer is a choice.

    Attributes:
        spent: What the providers have billed, by the account of the turn at the root: its first
            run, or the first run of the session.
        effects: All effects of tools, in order.
        payments: The service of the tools whose effects have keys.
        jobs: The service that runs the jobs of tools whose result comes later.
        servers: The MCP server that asks people during calls.
        diary: The MCP server that acts for one person.
        client_tokens: The tokens of the calls that waited for the client of their turn.
        deliveries: What other systems deliver to hooks, by the ids of the deliveries.
        received: What receivers of webhooks were sent, in order.
        requests: What models were sent, if the messages are of interest.
        unpinned: The first model call that was sent other instructions or another model than those
            of the turn's definition; empty if there is none.
        canaries: The first run of the turn whose model has given an answer that is refused, by a
            word in that answer.
        asides: The first run of the guarded delegate whose model has said a word beside its calls,
            by that word. Its guardrail has not seen it.
    """

    def __init__(
        self, choices: Choices, *, notes_messages: bool = False, bills_most: bool = False
    ) -> None:
        self.spent: dict[str, SimulatedBill] = {}
        self.effects: list[ToolEffect] = []
        self.received: list[ReceivedMessage] = []
        self.requests: list[SentMessages] = []
        self.canaries: dict[str, str] = {}
        self.unpinned = ""
        self.asides: dict[str, str] = {}
        self._notes_messages = notes_messages
        self.payments = Payments(choices)
        self.jobs = JobService(choices)
        self.servers = AskingServer(choices)
        self.diary = PersonalServer(choices)
        self.client_tokens: set[str] = set()
        self.deliveries: dict[str, SentDelivery] = {}
        self._choices = choices
        self._bills_most = bills_most

    def answer(self, activity: Activity, request: ModelRequest) -> ModelAnswer:
        """Return the answer of a model, and bill it.

        The bill is at most what the turn has reserved: the bounds of a real provider hold.

        Raises:
            LLMError: The provider fails.
        """
        agent, choices = activity.run.read.agent, self._choices
        assert agent is not None
        first_run = activity.run.begun.first_run_id
        if choices.has(LOGINS) and agent.protocol == "native":
            self.diary.note(activity, request)
        if self._notes_messages:
            text = str(request.messages)
            self.requests.append(SentMessages(activity.run.id, first_run, text))
        models = {target.model.partition(":")[2] for target in agent.targets}
        if agent.instructions not in request.system or request.model not in models:
            self.unpinned = self.unpinned or f"{activity.key} of {activity.run.id}"
        is_often = choices.aims_at(DEADLINES)  # pauses before retries end with the time
        is_last = is_often and _is_last(activity)
        fails = choices.happens(1 if is_last else 2 if is_often else 14)
        some = _FAILURES[:1] if is_last else _FAILURES[:4] if is_often else _FAILURES
        failure = choices.pick(some)() if fails else None
        if failure is not None and not isinstance(failure, errors.LLMTimeoutError):
            raise failure
        usage = self._usage(activity, request)
        usd, tokens = PRICE.of(usage), usage.input_tokens + usage.output_tokens
        before = self.spent.get(activity.run.account, SimulatedBill())
        self.spent[activity.run.account] = SimulatedBill(before.tokens + tokens, before.usd + usd)
        if failure is not None:  # the provider has worked, and nobody knows
            raise failure
        parts = self._said(agent, request, first_run)
        asks = any(isinstance(part, ToolCall) for part in parts)
        if asks and agent.answer_checks and activity.run.is_delegate:
            parts = (*self._aside(activity, first_run), *parts)
        if asks and agent.protocol == "native" and self._choices.has("live"):
            parts = (Text(text=f"about {activity.key}"), *parts)
        stop = StopReason.TOOL_CALLS if asks else StopReason.END
        if choices.happens(30):
            stop = choices.pick(list(StopReason))
        if stop is StopReason.MAX_TOKENS:  # its words are the answer, which a guardrail sees
            self.asides = {one: turn for one, turn in self.asides.items() if one not in str(parts)}
        return ModelAnswer(
            message=AssistantMessage(parts=parts),
            usage=usage,
            cost=choices.pick((usd, None)),
            model=request.model,
            stop=stop,
        )

    def result(self, activity: Activity, run: ToolRun, effect_key: str = "") -> ToolOutput:
        """Return the result of a tool, after its effect, which may have a key.

        Raises:
            PerdureError: The activity fails.
        """
        agent = activity.run.read.agent
        name = run.tool or activity.type
        tool = agent.tool(name) if agent else None
        if effect_key:
            paid = self.payments.make(activity, run, effect_key)
            if paid.is_error or not run.token:
                return paid
            started = self.jobs.start(activity, run, has_effect=True)
            if started.is_error or self.jobs.started[-1].fails:
                self.payments.ledger.pop()  # the tool or the job says so, and tells the truth
            return started
        if (refused := self.diary.result(activity, run)) is not None:
            return refused
        inquiry = None if name in DIARY_TOOLS else self.servers.inquiry(activity, run)
        if inquiry is not None:
            return ToolOutput(content="", inquiry=inquiry)
        may_repeat, only_reads = bool(tool and tool.is_idempotent), bool(tool and tool.is_read_only)
        self.effects.append(ToolEffect(activity, run.call_id, may_repeat, name, only_reads))
        if run.token:
            return self.jobs.start(activity, run)
        if self._choices.happens(20):
            raise PerdureError("the tool failed oddly")
        return ToolOutput(content=f"done: {activity.key}", is_error=self._choices.happens(6))

    def resolved(self, definition: RawValue) -> RawValue:
        """Return the definition of an agent with what its servers list now."""
        return self.diary.resolved(definition) if self._choices.has(LOGINS) else definition

    def look_up(self, effect_key: str) -> Verification:
        """Return whether the effect with a key is there.

        Raises:
            ApplicationError: The service is away.
        """
        return self.payments.look_up(effect_key)

    def poll(self, run: ToolRun) -> ToolOutput:
        """Return the result of a job.

        Raises:
            ApplicationError: There is none yet, or the service is away.
        """
        inquiry = self.servers.inquiry_of_poll(self.jobs.started, run)
        return self.jobs.poll(run) if inquiry is None else ToolOutput(content="", inquiry=inquiry)

    def stop(self, run: ToolRun) -> None:
        """Cancel a job.

        Raises:
            ApplicationError: The service is away.
        """
        self.jobs.stop()

    def receive(self, activity: Activity, sent: Notification) -> int:
        """Return the status with which a receiver answers a message, and note the message."""
        assert isinstance(sent.message, WebhookMessage | WaitMessage | PushMessage)
        status = self._choices.pick(_STATUSES)
        self.received.append(ReceivedMessage(activity.run.id, sent.id, sent.message, status))
        return status

    def _usage(self, activity: Activity, request: ModelRequest) -> Usage:
        held = activity.run.read.accounts.ledger.held.get(activity.key)
        most_output = request.options.max_output_tokens or limits.OUTPUT_TOKENS
        most = held.tokens if held is not None and held.tokens else most_output + 1000
        most_input = max(most - most_output, 0)
        if self._bills_most:
            return Usage(input_tokens=most_input, output_tokens=most_output)
        return Usage(
            input_tokens=min(self._choices.pick((20, 300, 900, most_input)), most_input),
            output_tokens=min(self._choices.pick((5, 0, 50, 400, most_output)), most_output),
        )

    def _said(
        self, agent: AgentDefinition, request: ModelRequest, first_run: str
    ) -> tuple[Text | Thinking | ToolCall, ...]:
        if self._choices.calls_often and self._choices.below(3, beside="calls often"):
            how = "calls"
        elif self._choices.aims_at(GUARDS):  # messages come while a model gives its answer
            how = self._choices.pick(("ends", "calls"))
        elif agent.delegates or agent.handoffs:
            how = self._choices.pick(_IN_TEAM if self._choices.all_features else _WITH_OTHERS)
        else:
            how = self._choices.pick(_ALONE)
        match how:
            case "ends":
                return (Text(text=forms.of_answer(agent, self._refused(agent, first_run))),)
            case "odd":
                return self._choices.pick(((), (Text(text=""),), (Thinking(text="hm"),)))
            case "others":
                return forms.of_calls(agent, [self._to_others(agent)])
            case _:
                count = self._choices.pick((1, 1, 2, 3))
                if self._choices.pays_often:
                    count = self._choices.pick((3, 2, 4), beside="pays often")
                return forms.of_calls(
                    agent, [some_call(self._choices, agent) for _ in range(count)]
                )

    def _refused(self, agent: AgentDefinition, first_run: str) -> str:
        """Return a word that the guardrail of an agent refuses; mostly none."""
        if not agent.answer_checks or not self._choices.happens(3):
            return ""
        canary = f"{CANARY}{len(self.canaries)}x"
        self.canaries[canary] = first_run
        return canary

    def _aside(self, activity: Activity, first_run: str) -> tuple[Text, ...]:
        """Return words that a guarded delegate says beside its calls; half of them none.

        With the last answer of a turn, which may call nothing, its guardrail sees them.
        """
        if self._choices.below(2, beside=BESIDE) == 0:
            return ()
        if _is_last(activity):
            return (Text(text=ASIDE),)
        aside = f"{ASIDE}{len(self.asides)}x"
        self.asides[aside] = first_run
        return (Text(text=aside),)

    def _to_others(self, agent: AgentDefinition) -> ToolCall:
        if agent.handoffs and self._choices.happens(2):
            other = self._choices.pick(agent.handoffs).name
            arguments = json.dumps({"agent": other, "message": "go on"})
            return ToolCall(id="", name="hand_over", arguments=arguments)
        others = [delegate.name for delegate in agent.delegates] or ["nobody"]
        one = {"agent": self._choices.pick(others), "task": "a part"}
        if self._choices.happens(2):
            two = {"agent": self._choices.pick(others), "task": "another part"}
            return ToolCall(id="", name="spawn_agents", arguments=json.dumps({"tasks": [one, two]}))
        return ToolCall(id="", name="delegate_to_agent", arguments=json.dumps(one))


def _is_last(activity: Activity) -> bool:
    """Return whether a model is asked for the last answer of its turn."""
    key = parse_key(activity.key)
    return isinstance(key, ModelKey) and key.is_last
