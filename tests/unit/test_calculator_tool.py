"""The calculator tool."""

from __future__ import annotations

import time

import pytest

from perdure.activities.toolboxes.calculator import Result
from perdure.agents.tool_context import encode
from perdure.agents.tools import as_tools
from perdure.toolboxes import calculator


def calculate(expression: str) -> Result:
    """Call the tool as a turn does, with arguments as JSON."""
    (item,) = as_tools(calculator().tools)
    result = item.function(**item.arguments.parse(encode({"expression": expression})))
    assert isinstance(result, Result)
    return result


def test_tool_reads_only() -> None:
    """A crash may repeat it."""
    (item,) = as_tools(calculator().tools)

    assert (item.name, item.read_only, bool(item.description)) == ("calculate", True, True)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0.1 + 0.2", "0.3"),
        ("(1200 * 0.19) ** 2", "51984"),
        ("100 * 1.15", "115"),
        ("1.1 ** 2", "1.21"),
        ("2 ** 200", "1606938044258990275541962092341162602522202993782792835301376"),
        ("2 ** -1", "0.5"),
        ("-2 ** 2", "-4"),
        ("2 ** 3 ** 2", "512"),
        ("10 - 4 - 3", "3"),
        ("7 / 4 / 2", "0.875"),
        ("-7 // 2", "-4"),
        ("-7 % 2", "1"),
        ("7 // -2", "-4"),
        ("7 % -2", "-1"),
        ("7.5 % 2", "1.5"),
        ("3 × 4 ÷ 2 − 1", "5"),
        ("1_000 +\n1", "1001"),
        ("0x10", "16"),
        ("sqrt(16)", "4"),
        ("round(2.345, 2)", "2.35"),
        ("round(1250, -2)", "1300"),
        ("floor(-1.5) + ceil(-1.5)", "-3"),
        ("abs(-3) + min(4, 2, 3) + max(1, 5)", "10"),
        ("log10(1000)", "3"),
        ("0 * -1", "0"),
        ("100", "100"),
        ("0.00000001", "0.00000001"),
        ("10 ** 9999", "1E+9999"),
        ("+".join(["1"] * 500), "500"),
    ],
)
def test_exact_result_is_told_as_it_is(expression: str, value: str) -> None:
    """Numbers are decimal and in ordinary notation; other expressions follow Python's rules."""
    assert calculate(expression) == Result(value=value, exact=True)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 / 3", "0.33333333333333333333"),
        ("sqrt(2) ** 2", "2"),
        ("pi", "3.1415926535897932385"),
        ("e", "2.7182818284590452354"),
        ("exp(9999)", "3.2398473673553488104E+4342"),
        ("9" * 500, "1E+500"),
    ],
)
def test_rounded_result_says_so(expression: str, value: str) -> None:
    """20 digits of the 100 that are calculated."""
    assert calculate(expression) == Result(value=value, exact=False)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "is no arithmetic expression"),
        ("1 +", "is no arithmetic expression"),
        ("1\0", "plain ASCII"),
        ("1 # two", "plain ASCII"),
        ("²", "plain ASCII"),
        ("1,000", "without commas"),
        ("2 ^ 3", "a power is written **"),
        ("1 << 9999", "no operator LShift"),
        ("1 < 2", "cannot be calculated here"),
        ("x", "'x' cannot be calculated here; there are pi, e, abs"),
        ("'a' * 9", "\"'a'\" is no number"),
        ("True", "is no number"),
        ("1j", "is no number"),
        ("[1]", "cannot be calculated here"),
        ("lambda: 1", "cannot be calculated here"),
        ("(1).real", "cannot be calculated here"),
        ("__import__('os').system('true')", "cannot be called like this"),
        ("(lambda: 1)()", "cannot be called like this"),
        ("sqrt(x=1)", "cannot be called like this"),
        ("max(*abs)", "cannot be calculated here"),
        ("sqrt()", "sqrt takes 1 numbers, not 0"),
        ("round(1, 0.5)", "a whole number of digits"),
        ("1 / 0", "division by zero"),
        ("5 % 0", "not defined"),
        ("0 / 0", "not defined"),
        ("0 ** 0", "not defined"),
        ("ln(0)", "not defined"),
        ("sqrt(-1)", "not defined"),
        ("(-8) ** (1 / 3)", "not defined"),
        ("9 ** 9 ** 9", "too large"),
        ("1e999999", "too large"),
        ("10 ** 10000", "too large"),
        ("9999.9999 ** 9999.99", "too large"),
        ("exp(99999)", "too large"),
        ("1" * 1_001, "the limit is 1000"),
        ("(" * 400 + "1" + ")" * 400, "is no arithmetic expression"),
        ("-" * 900 + "1", "nested more than 50 deep"),
        ("abs(" * 60 + "1" + ")" * 60, "nested more than 50 deep"),
        ("2 ** " * 180 + "2", "nested more than 50 deep"),
    ],
)
@pytest.mark.timeout(60)
def test_what_is_no_arithmetic_or_too_much_of_it_is_refused_promptly(
    expression: str, reason: str
) -> None:
    """With a suggestion."""
    began = time.thread_time()
    with pytest.raises(ValueError) as caught:
        calculate(expression)

    assert reason in str(caught.value)
    assert time.thread_time() - began < 5
