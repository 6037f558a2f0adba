"""The metrics of the standalone conventions for GenAI, version 0.1.0, beside the present ones.

They are emitted by those who opt in, as other instrumentations do it: with
`OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental`. Dashboards of either version work then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial

from opentelemetry.metrics import Histogram, Meter
from opentelemetry.util.types import AttributeValue

from perdure.values.reports import Usage

OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
_LATEST = "gen_ai_latest_experimental"
_MODALITY = {"gen_ai.token.modality": "unknown"}
"""Providers do not say which of the tokens are text."""
_CALLS = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000]

Labels = Mapping[str, AttributeValue]


def is_opted_in() -> bool:
    """Whether the environment asks for the latest conventions."""
    return _LATEST in [value.strip() for value in os.environ.get(OPT_IN, "").split(",")]


def histogram_of(
    meter: Meter, name: str, unit: str, text: str, bounds: Sequence[float]
) -> Histogram:
    """Return a histogram with these bounds, unless a view has others."""
    return meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=bounds)


class LatestInstruments:
    """The metrics of the latest conventions that the present ones lack. Durations are in seconds.

    Args:
        meter: Creates them.
        call_s: The bounds of the durations of calls.
        turn_s: The bounds of the durations of turns.
        tokens: The bounds of numbers of tokens.
    """

    def __init__(
        self,
        meter: Meter,
        *,
        call_s: Sequence[float],
        turn_s: Sequence[float],
        tokens: Sequence[float],
    ) -> None:
        histogram = partial(histogram_of, meter)
        self._inference = histogram(
            "gen_ai.client.inference.duration", "s", "Duration of a model call.", call_s
        )
        self._per_call = {
            kind: histogram(
                f"gen_ai.client.inference.operation.{kind}",
                "{token}",
                "Tokens of one model call.",
                tokens,
            )
            for kind in ("input_tokens", "output_tokens")
        }
        self._used = {
            kind: meter.create_counter(
                f"gen_ai.client.inference.usage.{kind}", "{token}", "Tokens used."
            )
            for kind in (
                "input_tokens",
                "output_tokens",
                "cache_read.input_tokens",
                "cache_write.input_tokens",
            )
        }
        self._turn = histogram(
            "gen_ai.invoke_agent.duration", "s", "Duration of a turn, waits included.", turn_s
        )
        self._model_calls = histogram(
            "gen_ai.invoke_agent.inference_calls", "{call}", "Model calls of a turn.", _CALLS
        )
        self._tool_calls = histogram(
            "gen_ai.invoke_agent.tool_calls", "{call}", "Tool calls of a turn.", _CALLS
        )

    def count_inference(self, duration_s: float, labels: Labels) -> None:
        """Count one attempt of a model call."""
        self._inference.record(duration_s, labels)

    def count_tokens(self, usage: Usage, labels: Labels) -> None:
        """Count the tokens of one model call; none for one that failed."""
        used = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cache_read.input_tokens": usage.cache_read_tokens,
            "cache_write.input_tokens": usage.cache_write_tokens,
        }
        for kind, count in used.items():
            self._used[kind].add(count, {**labels, **_MODALITY})
        for kind, per_call in self._per_call.items():
            per_call.record(used[kind], labels)

    def count_turn(
        self, duration_s: float, model_calls: int, tool_calls: int, labels: Labels
    ) -> None:
        """Count a turn, without what its delegates did."""
        self._turn.record(duration_s, labels)
        self._model_calls.record(model_calls, labels)
        self._tool_calls.record(tool_calls, labels)
