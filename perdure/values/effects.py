"""The effects of tool calls outside of a turn, as turns and reports know them."""

from __future__ import annotations

from collections.abc import Iterable
from operator import not_
from typing import Literal

from pydantic import Field

from perdure import limits
from perdure.base import Value
from perdure.text import clip, size
from perdure.values.messages import ToolCall

EffectStatus = Literal["done", "unknown", "absent", "undone"]
"""Whether an effect is there, or may be, or is not, or was taken back."""


class EffectRecord(Value):
    """What is known of the effect of one call, of a tool that says what its effect is.

    Attributes:
        tool: The name of the tool.
        call_id: The id of the call.
        step: The number of its step.
        arguments: Its arguments as JSON, as it ran with them.
        status: Whether the effect is there, or may be, or is not, or was taken back.
        key: The key of the effect; empty if the call was lost before the key was known, and for a
            tool without keys.
        result: The beginning of its result; empty unless the effect is there.
        turn_id: The turn of the call; empty for the turn that has the record.
        undo: The agent whose tool takes the effect back; empty if none does.
    """

    tool: str
    call_id: str
    step: int
    arguments: str
    status: EffectStatus = "done"
    key: str = Field(default="", exclude_if=not_)
    result: str = Field(default="", exclude_if=not_)
    turn_id: str = Field(default="", exclude_if=not_)
    undo: str = Field(default="", exclude_if=not_)

    @classmethod
    def of(cls, call: ToolCall, step: int, **fields: str) -> EffectRecord:
        """Return the record of a call."""
        result = clip(fields.pop("result", ""), limits.EFFECT_RESULT_BYTES)
        return cls.model_validate(
            {
                "tool": call.name,
                "call_id": call.id,
                "step": step,
                "arguments": call.arguments,
                "result": result,
                **fields,
            }
        )

    def in_turn(self, turn_id: str) -> EffectRecord:
        """Return the record for another turn than the one of the call."""
        return self if self.turn_id else self.model_copy(update={"turn_id": turn_id})

    @property
    def is_open(self) -> bool:
        """Whether the effect is there, or may be."""
        return self.status in ("done", "unknown")

    @property
    def place(self) -> str:
        """The call that the record is about: its turn, if that is another, its step, and its id."""
        return f"{self.turn_id}:{self.step}:{self.call_id}"


def latest(records: Iterable[EffectRecord]) -> tuple[EffectRecord, ...]:
    """Return the last record about each call, and of these the last `limits.KNOWN_EFFECTS`."""
    by_call = {record.place: record for record in records}
    return tuple(by_call.values())[-limits.KNOWN_EFFECTS :]


def within(records: Iterable[EffectRecord], most_bytes: int) -> tuple[EffectRecord, ...]:
    """Return the last of these records, of at most `most_bytes` of JSON together."""
    kept: list[EffectRecord] = []
    for record in reversed([*records]):
        most_bytes -= size(record.model_dump_json())
        if most_bytes < 0:
            break
        kept.append(record)
    return tuple(reversed(kept))
