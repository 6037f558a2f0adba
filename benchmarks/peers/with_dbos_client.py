"""Operations on DBOS workflows from outside, with `DBOSClient`, like `dbos workflow resume`."""

from __future__ import annotations

from dbos import DBOSClient


def resume(url: str, workflow_id: str) -> None:
    """Allow any process to continue the workflow."""
    client = DBOSClient(system_database_url=url)
    client.resume_workflow(workflow_id)
    client.destroy()
