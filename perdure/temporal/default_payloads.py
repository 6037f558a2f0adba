"""Temporal's default payload converter, for less time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter, DefaultPayloadConverter, PayloadConverter


class DefaultPayloads(PayloadConverter):
    """Converts as Temporal's default payload converter does.

    That one looks for the serialization context of each payload with every conversion, some fifty
    times for a step of a turn, and does nothing with it. A codec gets its context all the same.
    """

    def __init__(self) -> None:
        self._default = DefaultPayloadConverter()

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        """Convert values to payloads."""
        return self._default.to_payloads(values)

    def from_payloads(
        self, payloads: Sequence[Payload], type_hints: list[type] | None = None
    ) -> list[Any]:
        """Convert payloads to values."""
        return self._default.from_payloads(payloads, type_hints)


DEFAULT = DataConverter(payload_converter_class=DefaultPayloads)
