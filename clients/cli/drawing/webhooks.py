"""The deliveries of a turn's webhooks, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.clients.cli.drawing.json_lines import tell
from perdure.clients.cli.drawing.screen import note, put
from perdure.clients.turns.deliveries import WebhookDelivery
from perdure.text import counted, one_line, word

_COLUMNS = 200


def show(turn_id: str, deliveries: Sequence[WebhookDelivery], *, as_json: bool) -> None:
    """Print a line for each delivery."""
    if as_json:
        for delivery in deliveries:
            tell(delivery)
        return
    for line in _lines(deliveries):
        put(line)
    if not deliveries:
        note(f"turn {word(turn_id)} has sent no webhook")


def _lines(deliveries: Sequence[WebhookDelivery]) -> Iterator[str]:
    for delivery in deliveries:
        end = one_line(delivery.error, _COLUMNS)
        if delivery.status is not None:
            end = f"{delivery.status}, {counted(delivery.attempts or 1, 'attempt')}"
        began = f"{delivery.began_at:%Y-%m-%d %H:%M:%S} UTC"
        yield f"{word(delivery.id)}  {began}  {delivery.state}{f': {end}' if end else ''}"
