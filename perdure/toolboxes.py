"""Toolboxes that come with Perdure, safe by construction.

A folder, the web, the time, arithmetic, commands, waits, and questions to people.

Each function makes a `Toolbox` for `Agent(toolboxes=[…])`. What each does and refuses is in
`docs/trusted-tools.md`.
"""

from perdure.activities.toolboxes.calculator import calculator
from perdure.activities.toolboxes.clock import clock
from perdure.activities.toolboxes.fetch import fetch
from perdure.activities.toolboxes.files import files
from perdure.activities.toolboxes.folder import folder_toolbox
from perdure.activities.toolboxes.shell import shell
from perdure.activities.toolboxes.waiting import waiting
from perdure.agents.questions import asking, question_tool

__all__ = [
    "asking",
    "calculator",
    "clock",
    "fetch",
    "files",
    "folder_toolbox",
    "question_tool",
    "shell",
    "waiting",
]
