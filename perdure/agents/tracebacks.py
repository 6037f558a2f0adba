"""The location of an exception in the user's code, and its traceback without Perdure's own frames.

A location contains the name of a file without its folder, because locations are part of errors that
are stored in history.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import PurePath
from types import FrameType

from perdure.text import described

_STDLIB = sysconfig.get_path("stdlib")
_INSTALLED = ("site-packages", "dist-packages")
_TRACEBACK_CHARACTERS = 16_000

Frames = Iterable[tuple[FrameType, int]]


def raised(error: BaseException) -> str:
    """Return the class and the message of an exception with its location.

    For example: `KeyError: 'key' (tools.py:41 in refund)`.
    """
    location = place_of(error)
    return f"{described(error)} ({location})" if location else described(error)


def raised_unquoted(error: BaseException) -> str:
    """Return the class of an exception with its location, without the message, which may quote.

    For example: `KeyError (tools.py:41 in refund)`.
    """
    place = place_of(error)
    return f"{type(error).__name__} ({place})" if place else type(error).__name__


def place_of(error: BaseException) -> str:
    """Return the innermost line of the user's code in a traceback; empty without such a line."""
    return _innermost(traceback.walk_tb(error.__traceback__))


def place_in(frame: FrameType) -> str:
    """Return the innermost line of the user's code in a running stack."""
    return _innermost(reversed(list(traceback.walk_stack(frame))))


def named(function: object) -> str:
    """Return the name of a function with its location, if known: `is_short (guards.py:12)`."""
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner) if callable(inner) else inner
    code = getattr(inner, "__code__", None) or getattr(
        inspect.getattr_static(type(inner), "__call__", None), "__code__", None
    )
    name = getattr(inner, "__qualname__", type(inner).__qualname__).rpartition("<locals>.")[2]
    return f"{name} ({PurePath(code.co_filename).name}:{code.co_firstlineno})" if code else name


def traceback_of(error: BaseException) -> str:
    """Return the traceback as Python writes it, from the first frame of the user's code.

    The frames of Perdure and the standard library before it are left out. A traceback that is too
    long is cut in the middle.
    """
    begin = error.__traceback__
    while begin is not None and (_is_ours(begin.tb_frame) or _is_stdlib(begin.tb_frame)):
        begin = begin.tb_next
    trace = traceback.TracebackException(
        type(error), error, begin or error.__traceback__, compact=True
    )
    return _clipped("".join(trace.format()))


def stack_of(frame: FrameType) -> str:
    """Return a running stack in the same way."""
    frames = itertools.dropwhile(
        lambda item: _is_ours(item[0]) or _is_stdlib(item[0]),
        reversed(list(traceback.walk_stack(frame))),
    )
    return _clipped(
        "Stack (most recent call last):\n"
        + "".join(traceback.StackSummary.extract(frames).format())
    )


def _innermost(frames: Frames) -> str:
    """Return the location of the user's innermost frame.

    Installed code of the user cannot be distinguished from a library's by its folder: then it is
    the frame that Perdure called.
    """
    candidates = [
        (frame, line) for frame, line in frames if not _is_ours(frame) and not _is_stdlib(frame)
    ]
    theirs = [
        item
        for item in candidates
        if not any(part in _INSTALLED for part in PurePath(item[0].f_code.co_filename).parts)
    ]
    chosen = theirs[-1:] or candidates[:1]
    return _place(*chosen[0]) if chosen else ""


def _place(frame: FrameType, line: int) -> str:
    code = frame.f_code
    within = "" if code.co_name == "<module>" else f" in {code.co_name}"
    return f"{PurePath(code.co_filename).name}:{line}{within}"


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "perdure"


def _is_stdlib(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return path.startswith("<frozen ") or (
        path.startswith(_STDLIB) and not any(part in _INSTALLED for part in PurePath(path).parts)
    )


def _clipped(text: str) -> str:
    if len(text) <= _TRACEBACK_CHARACTERS:
        return text
    half = _TRACEBACK_CHARACTERS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
