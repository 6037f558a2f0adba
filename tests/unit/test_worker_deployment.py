"""The version of a worker, from its code and the environment."""

from typing import Any

import pytest
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import WorkerDeploymentConfig

from perdure import Agent, errors
from perdure.testing import ScriptedModel, local_runtime, says
from perdure.worker import AgentWorker
from perdure.worker.deployment import BUILD_ID, DEPLOYMENT, UNVERSIONED_BUILD, WorkerVersion

TALKER = Agent(name="talker", model="offline:talker")
V1 = WorkerDeploymentVersion("agents", "v1")


@pytest.mark.accepts("V14")
@pytest.mark.parametrize(
    ("in_code", "environment", "expected"),
    [
        (None, {}, None),
        (None, {BUILD_ID: ""}, None),
        (None, {DEPLOYMENT: "", BUILD_ID: "v1"}, None),
        ("agents", {DEPLOYMENT: "", BUILD_ID: "v1"}, None),
        ("agents", {BUILD_ID: "v1"}, V1),
        (None, {DEPLOYMENT: "agents", BUILD_ID: "v1"}, V1),
        ("other", {DEPLOYMENT: "agents", BUILD_ID: "v1"}, V1),
        (
            "agents",
            {BUILD_ID: "sha256:0f+x/y@z_1.2-3"},
            WorkerDeploymentVersion("agents", "sha256:0f+x/y@z_1.2-3"),
        ),
    ],
)
def test_version_is_that_of_code_and_environment(
    in_code: str | None, environment: dict[str, str], expected: WorkerDeploymentVersion | None
) -> None:
    """The environment overrides the code, and an empty deployment means none."""
    assert WorkerVersion.from_environment(environment).version(in_code) == expected


@pytest.mark.accepts("V15")
@pytest.mark.parametrize(
    ("in_code", "environment", "words"),
    [
        ("agents", {}, "has no build id; set PERDURE_BUILD_ID"),
        (None, {DEPLOYMENT: "agents"}, "has no build id"),
        (None, {BUILD_ID: "v1"}, "belongs to no deployment; set PERDURE_DEPLOYMENT"),
        (None, {DEPLOYMENT: "a.b", BUILD_ID: "v1"}, "a deployment is named by"),
        (None, {DEPLOYMENT: "-a", BUILD_ID: "v1"}, "a deployment is named by"),
        (None, {DEPLOYMENT: "a" * 129, BUILD_ID: "v1"}, "at most 128"),
        ("agents", {BUILD_ID: "v 1"}, "a build id is named by"),
        ("agents", {BUILD_ID: "v'1"}, 'not by "v\'1"'),
        ("agents", {BUILD_ID: "v1\n"}, "a build id is named by"),
    ],
)
def test_half_a_version_and_names_that_are_not_valid_are_refused(
    in_code: str | None, environment: dict[str, str], words: str
) -> None:
    """The error says what to set."""
    with pytest.raises(errors.ConfigurationError) as raised:
        WorkerVersion.from_environment(environment).version(in_code)

    assert words in raised.value.message


@pytest.mark.accepts("V15")
@pytest.mark.parametrize("name", ["", "a.b", 5, "a b"])
def test_deployment_in_the_code_is_checked_at_once(name: Any) -> None:
    """Not only when a worker starts."""
    with pytest.raises(errors.ConfigurationError):
        AgentWorker(TALKER, deployment=name)


@pytest.mark.accepts("V14", "V16")
def test_worker_is_pinned_by_default_and_an_unversioned_one_is_as_before() -> None:
    """The options of Temporal's worker."""
    config = WorkerDeploymentConfig(
        version=V1,
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )

    assert WorkerVersion("agents", "v1").options(None) == {"deployment_config": config}
    assert WorkerVersion().options(None) == {"build_id": UNVERSIONED_BUILD}


@pytest.mark.accepts("V28")
async def test_workers_of_tests_have_no_build(perdure_server: str) -> None:
    """Although their code names a deployment, and nothing has a build id."""
    app = AgentWorker(TALKER, deployment="agents")
    model = ScriptedModel(says("hello"))
    async with local_runtime(app, model=model, address=perdure_server) as client:
        report = await client.run("talker", "hi")

    assert report.output == "hello"
