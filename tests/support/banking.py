"""A bank whose answers can be lost, and the tools that pay at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from perdure import ToolContext, ToolOutcome, tool
from perdure.agents.tools import Tool
from perdure.testing import call, calls
from perdure.values.reports import AgentReport

LOST = httpx.ReadTimeout("no answer in 5 s")


@dataclass
class Bank:
    """A service with a ledger. Its next answers can be lost, and it can be away for readers.

    Attributes:
        ledger: The payments: invoice, amount, and the key that the payer sent.
        loses: How many answers are lost, after the payment was made.
        drops: How many requests are lost, before it was made.
        is_away: How many reads fail.
        is_idempotent: Whether a second payment with a key is recognized.
        reads: How many reads there were.
        refunds: The refunds: what is refunded, and the key that was sent.
    """

    ledger: list[tuple[str, int, str]] = field(default_factory=list)
    loses: int = 0
    drops: int = 0
    is_away: int = 0
    is_idempotent: bool = False
    reads: int = 0
    attempts: list[int] = field(default_factory=list)
    refunds: list[tuple[str, str]] = field(default_factory=list)

    def pay(self, invoice: str, amount: int, ctx: ToolContext[Any]) -> str:
        self.attempts.append(ctx.attempt)
        if self.drops:
            self.drops -= 1
            raise LOST
        if not (self.is_idempotent and any(key == ctx.effect_key for *_, key in self.ledger)):
            self.ledger.append((invoice, amount, ctx.effect_key))
        if self.loses:
            self.loses -= 1
            raise LOST
        return f"paid {invoice}"

    def refund(self, paid: str, ctx: ToolContext[Any]) -> str:
        if not any(key == ctx.effect_key for *_, key in self.refunds):
            self.refunds.append((paid, ctx.effect_key))
        if self.loses:
            self.loses -= 1
            raise LOST
        return f"refunded {paid}"

    def find(self, invoice: str) -> str | None:
        self.reads += 1
        if self.is_away:
            self.is_away -= 1
            raise httpx.ConnectError("refused")
        paid = [each for each in self.ledger if each[0] == invoice]
        return f"found {paid[0][0]}, {paid[0][1]}" if paid else None


def payer(bank: Bank, **options: Any) -> Tool:
    """The tool that pays at a bank."""
    options = {"effect": lambda paid: (paid.invoice,), **options}

    @tool(**options)
    def pay(invoice: str, amount: int, ctx: ToolContext[Any]) -> str:
        return bank.pay(invoice, amount, ctx)

    return pay


def refunder(bank: Bank) -> Callable[..., str]:
    """What takes payments back."""

    def refund(invoice: str, result: str, ctx: ToolContext[Any]) -> str:
        assert result == f"paid {invoice}"
        return bank.refund(invoice, ctx)

    return refund


def reader(bank: Bank) -> Callable[[str], str | None]:
    def find_payment(invoice: str) -> str | None:
        return bank.find(invoice)

    return find_payment


def pays(invoice: str = "i-1", amount: int = 30) -> Any:
    return calls(call("pay", invoice=invoice, amount=amount))


def results(report: AgentReport) -> list[tuple[ToolOutcome, str]]:
    return [(result.outcome, result.content) for step in report.steps for result in step.results]
