"""The data subjects of what callers start, over every protocol."""

from __future__ import annotations

from collections.abc import Mapping

from perdure import errors, validation
from perdure.clients.client import AgentClient
from perdure.clients.gateway.auth import Caller
from perdure.temporal.access import TURN
from perdure.temporal.encryption import data_subjects
from perdure.values.turn_options import Subject

FIELD = "perdure_subject"
"""The name of a data subject in protocols that have no field for it."""


def own(caller: Caller, subject: object) -> str | None:
    """Return the complete name of the data subject of a request; None if it names none.

    Raises:
        InvalidRequestError: It is not a name.
    """
    if subject is None:
        return None
    validation.check(
        "the request", {"subject": subject}, {"subject": Subject}, errors.InvalidRequestError
    )
    return caller.own(str(subject))


def labels_in(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a request without its data subject."""
    return {name: value for name, value in metadata.items() if name != FIELD}


def shown(labels: Mapping[str, str], subject: str | None) -> dict[str, str]:
    """Return labels and a data subject as the metadata of an answer."""
    return dict(labels) if subject is None else {**labels, FIELD: subject}


async def check(client: AgentClient, workflow_id: str, subject: str | None) -> None:
    """Refuse a request that goes on with a turn or a session of another data subject.

    Raises:
        TurnConflictError: It is of another one, or of none, and the request names one.
        ConfigurationError: The client has no keys of data subjects.
        KeyStoreError: The store of the keys does not answer.
        ServerUnreachableError: Temporal does not answer.
    """
    if subject is None:
        return
    with TURN.asking(workflow_id):
        key = await data_subjects.key_of(client.temporal, workflow_id)
        if not await data_subjects.is_key_of(client.temporal, key, subject):
            raise errors.TurnConflictError(
                f"{workflow_id!r} is not of the data subject {subject!r}, so what is said here"
                " would outlive the erasure of the subject; start something else"
            )
