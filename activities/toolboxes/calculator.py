"""Arithmetic without `eval`: the expression is parsed, and only known kinds of nodes are evaluated.

Numbers are decimal, so that 0.1 + 0.2 is 0.3. Every step has at most 100 digits and an exponent of
at most 9,999, which bounds the memory and time of any expression. A result that had to be rounded
is marked and has 20 digits.
"""

from __future__ import annotations

import ast
import decimal
import operator
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal

from perdure.agents.tools import Toolbox, tool
from perdure.base import Value
from perdure.text import one_line

_CHARACTERS, _DEPTH = 1_000, 50
_DIGITS, _SHOWN_DIGITS, _EXPONENT = 100, 20, 9_999
_PI = (
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482"
    "53421170679821480865132823066"
)
_UNDEFINED = (
    f"this is not defined, such as 0 / 0, 5 % 0 or sqrt(-1), or has more than {_DIGITS} digits"
    " before the point"
)
_TRAPS = [decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow]
_SPELLINGS = str.maketrans(
    {"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "\n": " ", "\r": " ", "\t": " "}
)

_Number = Callable[..., Decimal]


class Result(Value):
    """A number in decimal notation. `exact` is false if it was rounded."""

    value: str
    exact: bool


def calculator() -> Toolbox:
    """Return a toolbox named "calculator" with the tool `calculate`."""
    return Toolbox("calculator", [calculate])


@tool(read_only=True)
def calculate(expression: str) -> Result:
    """Calculate exactly. Use it for every calculation instead of doing it in your head.

    Args:
        expression: Such as (1200 * 0.19) ** 2. There are + - * / // % **, parentheses, pi, e, and
            abs, round(x, digits), floor, ceil, sqrt, exp, ln, log10, min, max.
    """
    with decimal.localcontext(
        Context(prec=_DIGITS, Emax=_EXPONENT, Emin=-_EXPONENT, traps=_TRAPS)
    ) as context:
        try:
            value = _Evaluator(_readable(expression)).result()
        except decimal.DivisionByZero:
            raise ValueError("division by zero") from None
        except decimal.Overflow:
            raise ValueError(f"a number is too large: the exponent may be {_EXPONENT}") from None
        except decimal.InvalidOperation:
            raise ValueError(_UNDEFINED) from None
        if not value.is_finite():
            raise ValueError(_UNDEFINED)
        return Result(value=_shown(value, exact := not context.flags[decimal.Inexact]), exact=exact)


def _readable(expression: str) -> str:
    text = expression.translate(_SPELLINGS).strip()
    if len(text) > _CHARACTERS:
        raise ValueError(
            f"the expression has {len(text)} characters, and the limit is {_CHARACTERS}; calculate"
            " parts of it"
        )
    if not text.isascii() or set("\0#") & set(text):
        raise ValueError("an expression has numbers, operators and names in plain ASCII")
    return text


class _Evaluator:
    """Evaluates one expression.

    Its text is kept to read numbers as they were written, not as Python's floats.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def result(self) -> Decimal:
        try:
            tree = ast.parse(self._text, mode="eval")
        except (SyntaxError, RecursionError, MemoryError):
            raise ValueError(f"{one_line(self._text, 100)!r} is no arithmetic expression") from None
        return self._value(tree.body, 0)

    def _value(self, node: ast.expr, depth: int) -> Decimal:
        """Return the value of a tree.

        A long sum nests to the left, so its left side is evaluated in a loop instead of
        recursively.
        """
        if depth > _DEPTH:
            raise ValueError(
                f"the expression is nested more than {_DEPTH} deep; calculate parts of it"
            )
        pending = []
        while isinstance(node, ast.BinOp):
            pending.append((_operator(node.op), node.right))
            node = node.left
        value = self._single(node, depth + 1)
        for apply, right in reversed(pending):
            value = apply(value, self._value(right, depth + 1))
        return value

    def _single(self, node: ast.expr, depth: int) -> Decimal:
        match node:
            case ast.Constant():
                return +self._number(node)
            case ast.UnaryOp(op=ast.USub()):
                return -self._value(node.operand, depth)
            case ast.UnaryOp(op=ast.UAdd()):
                return self._value(node.operand, depth)
            case ast.Name() if node.id in _CONSTANTS:
                return _CONSTANTS[node.id]()
            case ast.Call():
                return self._called(node, depth)
            case ast.Tuple():
                raise ValueError("numbers are written without commas: 1000000, not 1,000,000")
        raise ValueError(
            f"{self._written(node)} cannot be calculated here; there are"
            f" {', '.join([*_CONSTANTS, *_FUNCTIONS])}"
        )

    def _number(self, node: ast.Constant) -> Decimal:
        if type(node.value) is int:
            return Decimal(node.value)
        if type(node.value) is float:
            return Decimal(self._text[node.col_offset : node.end_col_offset])
        raise ValueError(f"{self._written(node)} is no number")

    def _called(self, node: ast.Call, depth: int) -> Decimal:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in _FUNCTIONS or node.keywords:
            raise ValueError(
                f"{self._written(node.func)} cannot be called like this; there are"
                f" {', '.join(_FUNCTIONS)}"
            )
        low, greatest, function = _FUNCTIONS[name]
        if not low <= len(node.args) <= greatest:
            raise ValueError(
                f"{name} takes {low}{'' if low == greatest else f' to {greatest}'} numbers, not"
                f" {len(node.args)}"
            )
        return function(*(self._value(argument, depth) for argument in node.args))

    def _written(self, node: ast.expr) -> str:
        return repr(one_line(self._text[node.col_offset : node.end_col_offset], 60))


def _operator(node: ast.operator) -> _Number:
    if type(node) not in _OPERATORS:
        raise ValueError(f"there is no operator {type(node).__name__} here; a power is written **")
    return _OPERATORS[type(node)]


def _remainder(a: Decimal, b: Decimal) -> Decimal:
    """Return the remainder with the sign of `b`, as in Python."""
    remainder = a % b
    return remainder + b if remainder and (remainder < 0) != (b < 0) else remainder


def _quotient(a: Decimal, b: Decimal) -> Decimal:
    return ((a - _remainder(a, b)) / b).to_integral_value()


def _rounded(value: Decimal, digits: Decimal = Decimal(0)) -> Decimal:
    """Round half up."""
    if digits != digits.to_integral_value() or abs(digits) > _DIGITS:
        raise ValueError(f"round takes a whole number of digits, at most {_DIGITS}")
    with decimal.localcontext() as inner:  # explicit rounding does not make the result inexact
        return value.quantize(
            Decimal(1).scaleb(-int(digits)), rounding=ROUND_HALF_UP, context=inner
        )


def _shown(value: Decimal, exact: bool) -> str:
    digits = _DIGITS if exact else _SHOWN_DIGITS
    value = Context(prec=digits, Emax=_EXPONENT, Emin=-_EXPONENT).plus(value)
    if value and not -_SHOWN_DIGITS <= value.adjusted() < digits:
        return str(value.normalize())
    if not value:
        return "0"
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


_OPERATORS: dict[type[ast.operator], _Number] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: _quotient,
    ast.Mod: _remainder,
    ast.Pow: operator.pow,
}
_CONSTANTS: dict[str, Callable[[], Decimal]] = {
    "pi": lambda: +Decimal(_PI),
    "e": lambda: Decimal(1).exp(),
}
_FUNCTIONS: dict[str, tuple[int, int, _Number]] = {
    "abs": (1, 1, abs),
    "round": (1, 2, _rounded),
    "floor": (1, 1, lambda value: value.to_integral_value(ROUND_FLOOR)),
    "ceil": (1, 1, lambda value: value.to_integral_value(ROUND_CEILING)),
    "sqrt": (1, 1, Decimal.sqrt),
    "exp": (1, 1, Decimal.exp),
    "ln": (1, 1, Decimal.ln),
    "log10": (1, 1, Decimal.log10),
    "min": (1, 100, lambda *values: min(values)),
    "max": (1, 100, lambda *values: max(values)),
}
