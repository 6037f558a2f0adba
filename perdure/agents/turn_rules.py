"""The choices of an agent about how its turns run.

`Agent`, its checks and `AgentDefinition` share them.
"""

from __future__ import annotations

from typing import Literal

OnExhausted = Literal["fail", "finish", "pause"]
OnLoop = Literal["fail", "warn", "ignore"]
OnFailure = Literal["keep", "undo"]
"""What becomes of the effects of a turn that ends without an answer."""
OnChildError = Literal["cancel", "collect"]
Approval = Literal["marked", "changes", "all"]
"""The calls that wait for a person: of marked tools, also of tools that change things, or all."""
Protocol = Literal["native", "react_text", "json"]
Unmarked = Literal["answer", "correct"]
