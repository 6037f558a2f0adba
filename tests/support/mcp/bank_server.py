"""An MCP server of a bank, written with the package `mcp`: `bank_server.py LEDGER`.

A payment of 13 is made, and not answered; one of 7 is not made, and not answered either.
"""

import sys
import time
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer

server: MCPServer[Any] = MCPServer("bank")
LEDGER = Path(sys.argv[1])


@server.tool()
def pay(invoice: str, amount: int) -> str:
    """Pays an invoice."""
    if amount != 7:
        LEDGER.write_text(LEDGER.read_text(encoding="utf-8") + f"{invoice}\n", encoding="utf-8")
    if amount in (7, 13):
        time.sleep(60)
    return f"paid {invoice}"


@server.tool()
def get_payment(number: str) -> str:
    """Finds the payment of an invoice."""
    if number not in LEDGER.read_text(encoding="utf-8").split():
        return "no such payment"
    return f"invoice {number} is paid"


if __name__ == "__main__":
    server.run("stdio")
