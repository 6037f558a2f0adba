"""Effects of tools of MCP servers, which the agent declares."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import MCPEffect, MCPServer, ToolOutcome, errors
from perdure.testing import ScriptedModel, call, calls, says

from ...conftest import Run
from ...support.banking import results

pytest.importorskip("mcp", reason="the extra perdure[mcp] is not installed")

SERVER = str(Path(__file__).parents[2] / "support" / "mcp" / "bank_server.py")
LOOKED_UP = MCPEffect(
    effect=["invoice"],
    verify="get_payment",
    arguments={"number": "invoice"},
    not_found="no such payment",
)


def bank(ledger: Path, effect: MCPEffect = LOOKED_UP, name: str = "pay") -> MCPServer:
    """The bank; its answers are waited for a while."""
    ledger.touch()
    return MCPServer.stdio(
        "bank",
        [sys.executable, SERVER, str(ledger)],
        allowed=["pay"],
        timeout=timedelta(seconds=3),
        effects={name: effect},
    )


def pays(amount: int, invoice: str = "i-1") -> Any:
    return calls(call("bank__pay", invoice=invoice, amount=amount))


@pytest.mark.slow
@pytest.mark.accepts("T53")
async def test_lost_call_of_a_server_is_looked_up_by_another_tool_of_it(
    run: Run, tmp_path: Path
) -> None:
    """Which the model is not offered; a second call is answered from the record."""
    model = ScriptedModel(pays(13), pays(30), says("done"))

    report = await run(model, toolboxes=[bank(tmp_path / "ledger")])

    first, second = results(report)
    assert first[0] is ToolOutcome.VERIFIED
    assert first[1].startswith("invoice i-1 is paid\n")
    assert second[1].startswith("Done before, in step 1, and not again.")
    assert (tmp_path / "ledger").read_text() == "i-1\n"
    assert [item.name for item in model.requests[0].tools] == ["bank__pay"]


@pytest.mark.slow
@pytest.mark.accepts("T53")
async def test_answer_of_a_server_may_say_that_there_is_nothing(run: Run, tmp_path: Path) -> None:
    """As the agent declares it. Without a fault, nothing is looked up."""
    ledger = tmp_path / "ledger"
    with pytest.raises(errors.ConfigurationError, match="has no tool named 'transfer'"):
        await run(ScriptedModel(pays(30)), toolboxes=[bank(ledger, name="transfer")])

    report = await run(ScriptedModel(pays(7), says("done")), toolboxes=[bank(ledger)])

    [(outcome, content)] = results(report)
    assert outcome is ToolOutcome.FAILED
    assert content.endswith("[It was looked up afterwards, and its effect was not there.]")


@pytest.mark.accepts("T53")
def test_declaration_is_checked_when_it_is_made() -> None:
    """Each value has a type."""
    with pytest.raises(errors.ConfigurationError, match="effect must be a list"):
        MCPEffect(effect="invoice")
    with pytest.raises(errors.ConfigurationError, match="settle must be"):
        MCPEffect(settle=3)  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigurationError, match="effects"):
        MCPServer.stdio("bank", ["bank"], effects={"pay": "invoice"})  # type: ignore[dict-item]
