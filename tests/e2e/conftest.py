"""Fixtures of the crash tests and of the command line."""

from ..support.e2e.command_line import at_work, closed_port, here, new_id, perdure
from ..support.e2e.stories import has_supervisor, tell

__all__ = ["at_work", "closed_port", "has_supervisor", "here", "new_id", "perdure", "tell"]
