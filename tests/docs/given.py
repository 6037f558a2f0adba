"""What blocks take for granted, with its type: the story of the page gives the value, and the type
checker reads it here.
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
    """A type of the caller's."""

    total: Decimal
    due: date


class Kind(StrEnum):
    """Another."""

    INVOICE = "invoice"
    REMINDER = "reminder"


class Bank:
    """Something that pays, and knows its keys."""

    class Payment(BaseModel):
        """What it says of a payment."""

        reference: str

    def __init__(self) -> None:
        self.paid: dict[str, str] = {}

    async def pay(self, invoice: str, idempotency_key: str) -> Payment:
        """Pay once for a key."""
        self.paid[idempotency_key] = invoice
        return self.Payment(reference="R-1")


class Deps:
    """What the lifespan of a page's worker yields."""

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
