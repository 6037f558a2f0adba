"""Text with terminal escape sequences, and what may reach a terminal."""

from __future__ import annotations

import re

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\u202e\u2066\u200b\U000e0041\ufe01\u3164\u034f\u2028"


OURS = re.compile(r"\x1b\[[0-9;]*m|\r?\x1b\[\d+A\x1b\[J|\r\n")
