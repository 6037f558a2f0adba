"""The words by which an agent says how its turns run.

Its declaration, the definition of a turn and their checks share them.
"""

from __future__ import annotations

from typing import Literal

OnExhausted = Literal["fail", "finish", "pause"]
OnLoop = Literal["fail", "warn", "ignore"]
OnChildError = Literal["cancel", "collect"]
Approval = Literal["marked", "changes", "all"]
Protocol = Literal["native", "react_text", "json"]
Unmarked = Literal["answer", "correct"]
