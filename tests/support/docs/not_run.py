"""Commands that the tests do not run, and the reasons. The files and options they name must still
exist.
"""

from __future__ import annotations

from .commands import Command

NOT_RUN = {
    "docker": "there is no container engine",
    "kubectl": "there is no cluster",
    "helm": "there is no cluster; test_helm_chart.py renders the chart",
    "sed": "its output is for a cluster; test_deploy.py looks at it",
    "perdure deploy": "needs workers of several builds; test_releases.py runs its own",
    "echo": "writes a password into a folder of this tree",
    "mkdir": "a story has a folder already",
    "python3 -m venv": "a story has an environment already",
    "pkill": "would end what others run; the story kills its own",
    "pip": "would change the environment; its extras are looked up",
    "perdure finish": "needs the token of a call that waits; test_finish_command.py runs it",
    "make": "sets up an environment; its targets are looked up",
    "perdure ask": "starts a server and a worker; test_slow_commands.py runs it",
}
"""Reasons, by how a command begins."""


def is_run(command: Command) -> bool:
    """Whether the test of its page runs the command."""
    return not any(command.line.startswith(f"{beginning} ") for beginning in NOT_RUN)
