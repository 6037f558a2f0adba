"""The names that blocks take for granted, with their types: the test of the page sets the values,
and the type checker reads this file.
"""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum

from pydantic import BaseModel

from perdure import AgentReport, OutcomeUnknown, Registry, Toolbox
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


@dataclass(frozen=True)
class Confirmation:
    """What a service answers."""

    reference: str = "4711"
    number: str = "12"


class Service:
    """A bank, a mail server and a hotel, whose next answers can be lost. It recognizes no key but
    that of a booking.
    """

    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []
        self.loses = 0

    def _answer(self, *what: str) -> Confirmation:
        self.done.append(what)
        if self.loses:
            self.loses -= 1
            raise OutcomeUnknown("no answer")
        return Confirmation()

    async def pay(self, customer: str, invoice: str, cents: int, key: str) -> Confirmation:
        """Pay an invoice."""
        return self._answer("paid", customer, invoice)

    async def find(self, customer: str, invoice: str) -> Confirmation | None:
        """Find a payment."""
        return Confirmation() if ("paid", customer, invoice) in self.done else None

    async def charge(self, customer: str, invoice: str, key: str) -> str:
        """Charge an invoice."""
        self._answer("charged", customer, invoice)
        return f"charged {invoice}"

    async def refund(self, invoice: str, of: str, key: str) -> str:
        """Pay an invoice back."""
        self._answer("refunded", invoice, of)
        return f"refunded {invoice}"

    async def send(self, to: str, subject: str, text: str) -> None:
        """Send a mail."""
        self._answer("sent", to)

    async def book(self, room: str, day: str, guests: int, key: str) -> Confirmation:
        """Book a room once for a key."""
        return Confirmation() if ("booked", key) in self.done else self._answer("booked", key)


class Services:
    """What the lifespan of the worker of the page about effects yields."""

    def __init__(self, service: Service) -> None:
        self.bank = self.mail = self.hotel = service
