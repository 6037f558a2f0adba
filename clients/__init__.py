"""What callers use: start turns, follow them, read how they went. Nothing here needs the code of an agent, or Temporal's own classes."""

from perdure.clients.agent_client import AgentClient
from perdure.clients.entries import TurnEntry
from perdure.clients.feed import Event
from perdure.clients.speech import TextBegins, TextVoid
from perdure.clients.turn import Turn

__all__ = ["AgentClient", "Event", "TextBegins", "TextVoid", "Turn", "TurnEntry"]
