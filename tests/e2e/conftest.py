"""Fixtures of the crash tests and of the command line."""

from .command_line import at_work, closed_port, here, new_id, perdure
from .stories import tell

__all__ = ["at_work", "closed_port", "here", "new_id", "perdure", "tell"]
