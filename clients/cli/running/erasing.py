"""Asks whether to erase a data subject."""

from __future__ import annotations

from perdure import errors
from perdure.clients.cli.running.agreement import agrees
from perdure.text import word


async def agree(subject: str) -> None:
    """Ask whether to erase a data subject.

    Raises:
        InvalidRequestError: The answer is not yes, or there is no terminal to ask on.
    """
    what = f"everything of {word(subject)} is ended, and nobody can read it any more"
    problem = f"{what}, so nothing was erased: add --yes to erase it"
    if not await agrees(f"{what}; erase it?", problem):
        raise errors.InvalidRequestError("nothing was erased")
