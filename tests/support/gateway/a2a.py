"""Agents over A2A, their client, and its messages."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import (
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
)
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict, ParseDict

from perdure import Agent, tool
from perdure.clients.gateway import A2AAgent
from perdure.testing import ScriptedModel, call, calls, says


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay back."""
    return f"paid {euros} euros"


DESK = Agent(name="desk", model="main", tools=[refund], instructions="Be kind to the customer.")


PUBLISHED = (
    A2AAgent("desk", "Pays back.", version="2", tags=("money",), examples=("It is lost.",)),
    A2AAgent("clerk", "Knows prices.", url="https://agents.example.com/a2a/clerk"),
)


def asks(*answers: str) -> ScriptedModel:
    """A model that wants to pay back, and then answers."""
    return ScriptedModel(
        calls(call("refund", euros=40), text="I pay."), *(says(answer) for answer in answers)
    )


async def agent_of(
    http: httpx.AsyncClient, *, streams: bool = False, agent: str = "desk"
) -> Client:
    """The official client of an agent, made from its card."""
    resolver = A2ACardResolver(http, f"{http.base_url}/a2a/{agent}")
    card = await resolver.get_agent_card()
    if agent == "clerk":
        card.supported_interfaces[0].url = f"{http.base_url}/a2a/clerk"
    return ClientFactory(ClientConfig(streaming=streams, httpx_client=http)).create(card)


def message(text: str, id: str, **more: Any) -> Message:
    """A message of the user."""
    return Message(message_id=id, role=Role.ROLE_USER, parts=[Part(text=text)], **more)


def decision(task: Task, id: str, **more: Any) -> Message:
    """The approval of the call that a task asks about."""
    asked = MessageToDict(task.status.message.parts[1])["data"]
    data = {"approve": True, "callId": asked["callId"], "token": asked["token"], **more}
    part = ParseDict({"data": data}, Part())
    return Message(message_id=id, role=Role.ROLE_USER, task_id=task.id, parts=[part])


async def send(agent: Client, given: Message, *, at_once: bool = False) -> Task:
    """The task of a message: when it is over or asks, or at once."""
    settings = SendMessageConfiguration(return_immediately=at_once)
    request = SendMessageRequest(message=given, configuration=settings)
    [response] = [one async for one in agent.send_message(request)]
    return response.task


async def get(agent: Client, task: str, **more: Any) -> Task:
    return await agent.get_task(GetTaskRequest(id=task, **more))


async def refused(awaited: Any) -> A2AError:
    """The error of a request."""
    with pytest.raises(A2AError) as raised:
        await awaited
    return raised.value
