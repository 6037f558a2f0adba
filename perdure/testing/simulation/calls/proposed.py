"""The calls that models of a simulation propose, by the tools that their agent has."""

from __future__ import annotations

from perdure.agents.definitions import AgentDefinition
from perdure.testing.simulation.calls.client_tools import ABOUT_CLIENTS, some_client_call
from perdure.testing.simulation.calls.jobs import ABOUT_JOBS, some_job
from perdure.testing.simulation.calls.keyed_events import KEYED, some_keyed_wait
from perdure.testing.simulation.calls.local_tools import ABOUT_LOCAL, some_local_call
from perdure.testing.simulation.calls.logins import LOGINS, some_diary_call
from perdure.testing.simulation.calls.payments import some_payment
from perdure.testing.simulation.calls.questions import some_question
from perdure.testing.simulation.calls.servers import ABOUT_SERVERS, some_server_call
from perdure.testing.simulation.calls.waits import some_wait
from perdure.testing.simulation.choices import BESIDE, Choices
from perdure.values.messages import ToolCall

_ARGUMENTS = ("{}", '{"a": 1}', '{"a": 2}', '{"a": 3}', '{"a": 4}', "[", "null")


def some_call(choices: Choices, agent: AgentDefinition) -> ToolCall:
    """Return a call of one of the tools of an agent, or of none."""
    return _call_of_a_feature(choices, agent) or _plain_call(choices, agent)


def _call_of_a_feature(choices: Choices, agent: AgentDefinition) -> ToolCall | None:
    """Return a call of a tool of those that a part of the simulations has; often none."""
    if agent.tool("locate") is not None and choices.below(3, beside=ABOUT_CLIENTS):
        return some_client_call(choices)
    if agent.tool("desk__book") is not None and choices.below(3, beside=ABOUT_SERVERS):
        return some_server_call(choices)
    if choices.has(LOGINS) and choices.below(3, beside=LOGINS):
        return some_diary_call(choices, agent)
    if agent.tool("peek") is not None and choices.below(3, beside=ABOUT_LOCAL):
        return some_local_call(choices)
    if choices.has(KEYED) and agent.tool("wait_for") and choices.below(3, beside=KEYED):
        return some_keyed_wait(choices)
    if agent.tool("wait") is not None and choices.about_waits(3) == 2:
        return some_wait(choices)
    if choices.has_jobs and choices.below(4, beside=ABOUT_JOBS):
        return some_job(choices)
    return None


def _plain_call(choices: Choices, agent: AgentDefinition) -> ToolCall:
    """Return a call of one of the other tools of an agent, or of none."""
    name = choices.pick(("look", "look", "write", "write", "send", "gone"))
    if agent.tool("pay") is not None:
        names = (name, name, "pay", "pay", "order", "mail")
        name = names[choices.below(len(names), beside=BESIDE)]
    call_id = choices.pick(("", "", "", "c1", "call_1_1"))
    arguments = choices.pick(_ARGUMENTS)
    if choices.pays_often and agent.tool("pay") is not None:
        name, arguments = some_payment(choices)
    if agent.tool("ask") is not None and choices.happens(2, beside="asks"):
        name, arguments = "ask", some_question(choices)
    return ToolCall(id=call_id, name=name, arguments=arguments)
