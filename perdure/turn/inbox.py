"""The messages of the user to a running turn that its model has not read yet. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure import errors, limits
from perdure.base import replace
from perdure.values.content import MEDIA_ELSEWHERE, check_message, parts_size
from perdure.values.messages import UserMessage, weight

if TYPE_CHECKING:
    from perdure.turn.facts import Said


@dataclass(frozen=True)
class Inbox:
    """The messages that wait for the next model call.

    Attributes:
        unread: The messages, in the order in which they were sent.
        interrupts: Whether any of them stops the model call that is running.
        has_granted: Whether the turn has made a step beyond its limit of iterations to read a
            message.
        taken: The ids of the messages that came in, read or not: the last `limits.KNOWN_MESSAGES`.
    """

    unread: tuple[UserMessage, ...] = ()
    interrupts: bool = False
    has_granted: bool = False
    taken: tuple[str, ...] = ()

    @classmethod
    def begun_with(cls, said: Sequence[UserMessage]) -> Inbox:
        """Return the inbox of a turn that begins with some messages."""
        return cls(unread=tuple(said), taken=tuple(one.id for one in said if one.id))

    @property
    def grants(self) -> bool:
        """Whether a message may be read beyond the limit of iterations: once in a turn."""
        return bool(self.unread) and not self.has_granted

    def plus(self, new_message: Said) -> Inbox:
        """Return the inbox with another message, unless it has a message with that id."""
        if any(message.id == new_message.id for message in self.unread):
            return self
        return replace(
            self,
            unread=(*self.unread, _message(new_message)),
            interrupts=self.interrupts or new_message.now,
            taken=(*self.taken, new_message.id)[-limits.KNOWN_MESSAGES :],
        )

    def emptied(self, *, grants: bool) -> Inbox:
        """Return the inbox after the model call that reads the messages was scheduled."""
        return Inbox(has_granted=self.has_granted or grants, taken=self.taken)

    def check(self, new_message: Said, most_bytes: int = limits.UNREAD_MEDIA_BYTES) -> None:
        """Refuse a message that is not valid or does not fit.

        `most_bytes` is the limit of the messages with images or files together, as JSON.

        Raises:
            InvalidRequestError: Its id, its content or its sender is not valid.
            TooLargeError: Too many messages are unread, or they are too large together.
        """
        values = {"id": new_message.id, "text": new_message.text, "by": new_message.by}
        check_message(values, new_message.parts)
        if len(self.unread) >= limits.UNREAD_MESSAGES:
            raise errors.TooLargeError(
                f"{len(self.unread)} messages to the turn are unread, which is the most; send this"
                " one again when the model has read them",
                context={"messages": len(self.unread), "limit": limits.UNREAD_MESSAGES},
            )
        messages = (*self.unread, _message(new_message))
        bytes_ = sum(map(weight, messages))
        if bytes_ > limits.UNREAD_BYTES:
            raise errors.TooLargeError(
                f"the unread messages to the turn would be {bytes_} bytes, more than"
                f" {limits.UNREAD_BYTES}; send less, or give the agent a tool that reads the rest",
                context={"bytes": bytes_, "limit": limits.UNREAD_BYTES},
            )
        if not new_message.parts:
            return
        bytes_ = sum(parts_size(message.parts) for message in messages if message.media)
        if bytes_ > most_bytes:
            raise errors.TooLargeError(
                f"the unread messages to the turn with images or files would be {bytes_} bytes,"
                f" more than {most_bytes}; {MEDIA_ELSEWHERE}",
                context={"bytes": bytes_, "limit": most_bytes},
            )


def _message(said: Said) -> UserMessage:
    return UserMessage.of(said.text, id=said.id, parts=said.parts)
