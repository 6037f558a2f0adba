"""The names that blocks take for granted, with their types: the test of the page sets the values,
and the type checker reads this file.
"""

from datetime import date
from decimal import Decimal
from enum import StrEnum

from pydantic import BaseModel

from perdure import AgentReport, Registry, Toolbox
from perdure.clients import AgentClient

client: AgentClient
report: AgentReport
registry: Registry
warehouse: Toolbox


class Invoice(BaseModel):
    """A caller's type."""

    total: Decimal
    due: date


class Kind(StrEnum):
    """Another type."""

    INVOICE = "invoice"
    REMINDER = "reminder"


class Bank:
    """A bank client that deduplicates by key."""

    class Payment(BaseModel):
        """The bank's answer to a payment."""

        reference: str

    def __init__(self) -> None:
        self.paid: dict[str, str] = {}

    async def pay(self, invoice: str, idempotency_key: str) -> Payment:
        """Pay once for a key. An invoice `none` gets no reference."""
        self.paid[idempotency_key] = invoice
        return self.Payment(reference="" if invoice == "none" else "R-1")


class Deps:
    """What the lifespan of a page's worker yields."""

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
