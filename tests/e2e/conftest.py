"""Fixtures of the crash tests and of the command line."""

from .command_line import at_work, closed_port, here, new_id, perdure
from .stories import has_supervisor, tell

__all__ = ["at_work", "closed_port", "has_supervisor", "here", "new_id", "perdure", "tell"]
