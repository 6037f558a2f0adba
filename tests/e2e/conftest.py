"""The fixture of the crash stories."""

from .stories import tell

__all__ = ["tell"]
