"""How a replayer of Temporal's SDK is set up for the workflows of Perdure."""

from __future__ import annotations

from temporalio.converter import DataConverter
from temporalio.worker import ReplayerConfig

from perdure.errors import PerdureError
from perdure.worker.decrypting import Decrypting
from perdure.workflows import WORKFLOWS
from perdure.workflows.details_query import DetailsQuery
from perdure.workflows.single_input import OneInput


def configured(config: ReplayerConfig) -> ReplayerConfig:
    """Add the workflows of turns, sessions and batches to a replayer."""
    config["workflows"] = [*config.get("workflows", []), *WORKFLOWS]
    converter = config.get("data_converter", DataConverter.default)
    config["unsandboxed_workflow_runner"] = Decrypting(
        config.get("unsandboxed_workflow_runner"), converter.payload_codec
    )
    config["interceptors"] = [*config.get("interceptors", []), OneInput(), DetailsQuery()]
    config["workflow_failure_exception_types"] = [
        *config.get("workflow_failure_exception_types", []),
        PerdureError,
    ]
    return config
