"""Agent cards: what a client is told of an agent before it sends a message."""

from __future__ import annotations

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils.constants import PROTOCOL_VERSION_1_0, TransportProtocol

from perdure.clients.gateway.a2a.agents import A2AAgent

_MODES = ("text/plain", "application/json")
_FILES = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
"""What most models read; other types are taken too."""
_BEARER = "bearer"
DELEGATES = "urn:perdure:a2a:delegate-text:1"
"""The extension with which a stream has the text of the turns below a task."""
_OF_DELEGATES = (
    "Streams have the text of the delegates of a task while it is generated, as status updates"
    " whose metadata have it under this URI: v, kind, turn, agent, and step, attempt or text."
)


def card(agent: A2AAgent, url: str) -> AgentCard:
    """Return the card of an agent whose interface has this address."""
    agent_card = AgentCard(
        name=agent.name,
        description=agent.description,
        version=agent.version,
        supported_interfaces=[
            AgentInterface(
                url=agent.url or url,
                protocol_binding=TransportProtocol.JSONRPC.value,
                protocol_version=PROTOCOL_VERSION_1_0,
            )
        ],
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=True,
            extensions=[AgentExtension(uri=DELEGATES, description=_OF_DELEGATES)],
        ),
        default_input_modes=(*_MODES, *_FILES),
        default_output_modes=_MODES,
        skills=[
            AgentSkill(
                id=agent.name,
                name=agent.name,
                description=agent.description,
                tags=agent.tags or (agent.name,),
                examples=agent.examples,
            )
        ],
    )
    scheme = SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme=_BEARER))
    agent_card.security_schemes[_BEARER].CopyFrom(scheme)
    agent_card.security_requirements.append(SecurityRequirement(schemes={_BEARER: StringList()}))
    return agent_card
