"""What a person does with DBOS workflows from outside, by `DBOSClient`, as `dbos workflow resume`
does too.
"""

from __future__ import annotations

from dbos import DBOSClient


def resume(url: str, workflow_id: str) -> None:
    """Let any process go on with it."""
    client = DBOSClient(system_database_url=url)
    client.resume_workflow(workflow_id)
    client.destroy()
