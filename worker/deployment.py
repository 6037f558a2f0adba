"""The version of a deployment that a worker belongs to, for Temporal's worker versioning.

A version is the name of a deployment and the build id of its code. What a versioned worker begins
is pinned to its version, and goes on with another one only in a new run. Workflows that have no
next run follow the deployment instead: they consist of Perdure's code alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import (
    WorkerConfig,
    WorkerDeploymentConfig,
    WorkflowInstance,
    WorkflowInstanceDetails,
)

from perdure import errors, limits
from perdure.temporal.names import (
    BATCH_PART,
    ERASURE,
    SCHEDULED_BATCH,
    SCHEDULED_MESSAGE,
    SETTLEMENT,
    WEBHOOK,
)
from perdure.worker.wrapped_workflow import WrappedRunner

DEPLOYMENT = "PERDURE_DEPLOYMENT"
BUILD_ID = "PERDURE_BUILD_ID"

UNVERSIONED_BUILD = version("perdure")
"""It is in the history of every step six times, and the SDK's default would digest all modules."""

FOLLOWING = frozenset(
    {BATCH_PART, ERASURE, SCHEDULED_BATCH, SCHEDULED_MESSAGE, SETTLEMENT, WEBHOOK}
)
"""The types of workflows that follow their deployment, because they have no next run."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_BUILD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+:@/-]*")


@dataclass(frozen=True)
class WorkerVersion:
    """The version of a worker, as its environment has it.

    Attributes:
        name: `PERDURE_DEPLOYMENT`: overrides the deployment in the code; empty for none.
        build_id: `PERDURE_BUILD_ID`: the build id.
    """

    name: str | None = None
    build_id: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> WorkerVersion:
        """Read the environment."""
        return cls(environment.get(DEPLOYMENT), environment.get(BUILD_ID) or None)

    def version(self, in_code: str | None) -> WorkerDeploymentVersion | None:
        """Return the version of a worker, whose code names a deployment or None.

        None if it is not versioned.

        Raises:
            ConfigurationError: Only one of deployment and build id is there, or one is not valid.
        """
        name = in_code if self.name is None else self.name
        if self.name == "":  # said on purpose, so the build id does not count
            return None
        if name is None and self.build_id is None:
            return None
        if name is None:
            raise errors.ConfigurationError(
                f"{BUILD_ID} is set, but the worker belongs to no deployment; set {DEPLOYMENT}, or"
                " AgentWorker(deployment=…)"
            )
        check_name(name)
        if self.build_id is None:
            raise errors.ConfigurationError(
                f"the worker belongs to the deployment {name!r}, but has no build id; set"
                f" {BUILD_ID} to the commit or the image of its code, or set {DEPLOYMENT} to an"
                " empty text for a worker without a version"
            )
        check_build_id(self.build_id)
        return WorkerDeploymentVersion(name, self.build_id)

    def options(self, in_code: str | None) -> dict[str, Any]:
        """Return the options of Temporal's worker for its version.

        Raises:
            ConfigurationError: As in `version`.
        """
        own = self.version(in_code)
        if own is None:
            return {"build_id": UNVERSIONED_BUILD}
        config = WorkerDeploymentConfig(
            version=own,
            use_worker_versioning=True,
            default_versioning_behavior=VersioningBehavior.PINNED,
        )
        return {"deployment_config": config}


def check_name(name: object) -> None:
    """Refuse what cannot be the name of a deployment.

    Raises:
        ConfigurationError: It is none.
    """
    _check("a deployment", name, _NAME, "letters, digits, '_' and '-'")


def check_build_id(build_id: object) -> None:
    """Refuse what cannot be a build id.

    Raises:
        ConfigurationError: It is none.
    """
    _check("a build id", build_id, _BUILD, "letters, digits and ._+:@/-")


def _check(noun: str, value: object, pattern: re.Pattern[str], words: str) -> None:
    longest = limits.DEPLOYMENT_CHARACTERS
    is_valid = isinstance(value, str) and pattern.fullmatch(value) and len(value) <= longest
    if not is_valid:
        raise errors.ConfigurationError(
            f"{noun} is named by {words}, at most {longest}, the first a letter or a digit,"
            f" not by {value!r}"
        )


class Following(WrappedRunner):
    """A workflow runner that has the workflows without a next run follow their deployment."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Return the workflow instance of one run."""
        if det.info.workflow_type in FOLLOWING:
            follows = VersioningBehavior.AUTO_UPGRADE
            det = replace(det, defn=replace(det.defn, versioning_behavior=follows))
        return self._inner.create_instance(det)


def is_versioned(config: WorkerConfig) -> bool:
    """Return whether a worker is versioned."""
    deployment = config.get("deployment_config")
    return deployment is not None and deployment.use_worker_versioning
