"""The files in deploy/ agree with the code and with each other, and pass the validators that `make
deploy-check` installs.

No container engine is needed; building the image and starting the cluster are not tested here.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.envconfig import ClientConfig

from perdure import limits

yaml: Any = pytest.importorskip("yaml", reason="PyYAML is in the extras dev and deploy")

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
KEDA_FIELDS = {
    *[
        "endpoint",
        "endpointFromEnv",
        "namespace",
        "taskQueue",
        "queueTypes",
        "targetQueueSize",
        "activationTargetQueueSize",
    ],
    *["minConnectTimeout", "unsafeSsl", "tlsServerName", "apiKeyFromEnv"],
    *["workerDeploymentName", "workerDeploymentBuildId"],
}
"""The settings of KEDA's Temporal scaler in its documentation, except deprecated ones."""


def load(path: Path) -> Any:
    """A file of one YAML document."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def manifest(kind: str) -> dict[str, Any]:
    """The only manifest of this kind."""
    (found,) = (
        document
        for path in sorted(KUBERNETES.glob("*.yaml"))
        if (document := load(path))["kind"] == kind
    )
    return dict(found)


COMPOSE: dict[str, Any] = load(DEPLOY / "compose.yaml")
SERVICES: dict[str, Any] = COMPOSE["services"]
POD: dict[str, Any] = manifest("Deployment")["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
SETTINGS: dict[str, str] = manifest("ConfigMap")["data"]
BUILD = {each["name"]: each["value"] for each in CONTAINER["env"]}


def images() -> Iterator[str]:
    """Every image in the files."""
    yield from re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    yield from (service["image"] for service in SERVICES.values())
    yield CONTAINER["image"]


def variables() -> set[str]:
    """Every environment variable of a worker."""
    of_image = set(re.findall(r"\b(PERDURE_\w+)=", DOCKERFILE))
    return {*SERVICES["worker"]["environment"], *SETTINGS, *BUILD, *of_image}


def seconds(duration: str) -> int:
    """A duration in compose's notation, in whole seconds."""
    assert duration.endswith("s")
    return int(duration.removesuffix("s"))


def test_every_image_names_its_version() -> None:
    """Later deployments run the same version."""
    loose = [image for image in images() if not re.search(r":v?\d+\.\d+(\.\d+)?[\w.-]*$", image)]

    assert loose == []


def test_both_stages_of_the_image_have_one_base() -> None:
    """Packages are installed for the interpreter that runs them."""
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)

    assert len(stages) == 2
    assert len(set(stages)) == 1


def test_image_holds_what_the_lock_file_names() -> None:
    """The packages are installed with their hashes, and nothing else is downloaded."""
    commands = re.findall(r"pip (?:--python \S+ )?(?:install|download|wheel) [^&\n]*", DOCKERFILE)
    online = [command for command in commands if "--no-index" not in command]

    assert len(commands) == 4
    assert len(online) == 1
    assert {"--require-hashes", "requirements.lock"} <= set(online[0].split())


def test_image_is_built_from_all_rooms() -> None:
    """A missing folder would be a broken link."""
    rooms = {path.name for path in (ROOT / "perdure").iterdir() if path.is_symlink()}
    copied = set(re.findall(r"^COPY (\w+) \./\1$", DOCKERFILE, re.MULTILINE))
    let_in = set(
        re.findall(
            r"^!(\w+)$",
            (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )

    assert copied == {"perdure", *rooms}
    assert copied <= let_in


def test_image_runs_as_nobody_special_and_stops_by_draining() -> None:
    """The worker is process 1, receives the signal itself, and is not root."""
    stage = DOCKERFILE.rpartition("FROM ")[2]

    assert re.findall(r"^USER (.*)$", stage, re.MULTILINE) == ["10001:10001"]
    assert re.findall(r"^STOPSIGNAL (.*)$", stage, re.MULTILINE) == ["SIGTERM"]
    assert [json.loads(line) for line in re.findall(r"^ENTRYPOINT (.*)$", stage, re.MULTILINE)] == [
        ["perdure", "worker"]
    ]


def test_health_check_of_the_image_is_a_program() -> None:
    """It compiles, checks readiness, and uses the worker's own port setting."""
    (line,) = re.findall(r"HEALTHCHECK.*\\\n\s+CMD (.*)$", DOCKERFILE, re.MULTILINE)
    python, option, program = json.loads(line)
    compile(program, "HEALTHCHECK", "exec")

    assert (python, option) == ("python", "-c")
    assert {"'/readyz'", "'PERDURE_HEALTH_PORT'"} <= set(re.findall(r"'[^']*'", program))


def test_workers_have_longer_to_end_than_their_calls() -> None:
    """SIGKILL before the end of the grace period would lose calls in flight."""
    composed = SERVICES["worker"]
    grace_of_calls = [
        float(composed["environment"]["PERDURE_GRACE_S"]),
        float(SETTINGS["PERDURE_GRACE_S"]),
    ]
    grace_of_processes = [
        seconds(composed["stop_grace_period"]),
        POD["terminationGracePeriodSeconds"],
    ]

    assert all(calls >= limits.MODEL_CALL.total_seconds() for calls in grace_of_calls)
    assert all(
        process >= calls + 15
        for calls, process in zip(grace_of_calls, grace_of_processes, strict=True)
    )


def test_every_variable_is_one_that_somebody_reads() -> None:
    """A misspelt setting would have no effect, without an error."""
    settings = set(
        re.findall(r"PERDURE_\w+", (ROOT / "worker/settings.py").read_text(encoding="utf-8"))
    )
    keys = {
        name
        for path in (ROOT / "activities/providers").glob("*.py")
        for name in re.findall(r"\w+_API_KEY\b", path.read_text(encoding="utf-8"))
    }
    temporal = {name: f"value of {name}" for name in variables() if name.startswith("TEMPORAL_")}
    connected = ClientConfig.load_client_connect_config(
        override_env_vars=temporal, disable_file=True
    )

    assert {name for name in variables() if not name.startswith("TEMPORAL_")} <= settings | keys
    assert set(connected.values()) >= set(temporal.values())


def test_probes_ask_the_port_that_the_worker_serves() -> None:
    """Liveness does not depend on Temporal: restarting the worker does not repair the server."""
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    probes = {
        name: CONTAINER[name]["httpGet"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }

    assert ports == {
        "health": int(SETTINGS["PERDURE_HEALTH_PORT"]),
        "live-text": int(SETTINGS["PERDURE_LIVE_TEXT"].removeprefix(":")),
    }
    assert {probe["port"] for probe in probes.values()} == {"health"}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }


def test_scaling_looks_at_the_queue_that_the_workers_poll() -> None:
    """Address, namespace and queue are repeated, because KEDA cannot read the worker's settings."""
    spec = manifest("ScaledObject")["spec"]
    (trigger,) = spec["triggers"]
    metadata = trigger["metadata"]

    assert trigger["type"] == "temporal"
    assert set(metadata) <= KEDA_FIELDS
    assert {type(value) for value in metadata.values()} == {str}
    assert (metadata["endpoint"], metadata["namespace"], metadata["taskQueue"]) == tuple(
        SETTINGS[name] for name in ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "PERDURE_TASK_QUEUE")
    )
    assert spec["scaleTargetRef"]["name"] == manifest("Deployment")["metadata"]["name"]
    assert (metadata["workerDeploymentName"], metadata["workerDeploymentBuildId"]) == (
        SETTINGS["PERDURE_DEPLOYMENT"],
        BUILD["PERDURE_BUILD_ID"],
    )
    assert spec["minReplicaCount"] >= 1
    assert set(metadata["queueTypes"].split(",")) == {"workflow", "activity"}


def test_manifests_select_the_pods_of_the_deployment() -> None:
    """A selector without a match protects nothing."""
    deployment = manifest("Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]

    assert deployment["selector"]["matchLabels"] == labels
    assert (
        manifest("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() < labels.items()
    )
    assert [
        spread["labelSelector"]["matchLabels"] for spread in POD["topologySpreadConstraints"]
    ] == [labels]


@pytest.mark.accepts("V23")
def test_another_build_has_a_deployment_beside_that_of_the_first() -> None:
    """The command of the README makes it: no selector matches pods of the other build."""
    (was,) = set(BUILD.values())
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"sed '([^']+)' deploy/kubernetes/deployment\.yaml", readme)
    script, pattern, now, _ = command.split("/")
    texts = {
        name: (KUBERNETES / name).read_text(encoding="utf-8")
        for name in ("deployment.yaml", "scaledobject.yaml")
    }
    first, second = (
        {name: yaml.safe_load(change(text)) for name, text in texts.items()}
        for change in (str, lambda text: re.sub(pattern, now, text))
    )
    (container,) = second["deployment.yaml"]["spec"]["template"]["spec"]["containers"]
    (trigger,) = second["scaledobject.yaml"]["spec"]["triggers"]
    selectors = [
        each["deployment.yaml"]["spec"]["selector"]["matchLabels"] for each in (first, second)
    ]
    names = [[each[name]["metadata"]["name"] for name in sorted(texts)] for each in (first, second)]

    assert (script, re.search(pattern, was) is not None) == ("s", True)
    assert container["env"] == [{"name": "PERDURE_BUILD_ID", "value": now}]
    assert container["image"].endswith(f":{now}")
    assert trigger["metadata"]["workerDeploymentBuildId"] == now
    assert second["scaledobject.yaml"]["spec"]["scaleTargetRef"]["name"] == names[1][0]
    assert selectors[0] != selectors[1]
    assert not set(names[0]) & set(names[1])


def test_pods_may_do_no_more_than_they_need() -> None:
    """No root, no writable paths except /tmp, no service account token."""
    security = CONTAINER["securityContext"]

    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["runAsUser"] == 10001
    assert POD["automountServiceAccountToken"] is False
    assert security == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [mount["mountPath"] for mount in CONTAINER["volumeMounts"]] == ["/tmp"]


def test_nothing_in_deploy_holds_a_secret() -> None:
    """Keys are references, and passwords come from a file outside of the repository."""
    secret = re.compile("KEY|PASSWORD|PWD|SECRET|TOKEN")
    composed = {
        str(value)
        for service in SERVICES.values()
        for name, value in service.get("environment", {}).items()
        if secret.search(name) and value is not None
    }

    assert composed == {"${POSTGRES_PASSWORD:?write it into deploy/.env}"}
    assert [name for name in SETTINGS if secret.search(name)] == []
    assert "Secret" not in {load(path)["kind"] for path in KUBERNETES.iterdir()}
    assert [line for line in DOCKERFILE.splitlines() if secret.search(line)] == []
    assert ".env" in (DEPLOY / ".gitignore").read_text(encoding="utf-8").split()


def test_only_loopback_ports_are_published() -> None:
    """Neither Temporal nor its web UI authenticates users."""
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]

    assert published == ["127.0.0.1:7233:7233", "127.0.0.1:8080:8080"]


def test_services_wait_for_what_they_need() -> None:
    """The order is database, schema, server, namespace, worker; each dependency has a health check
    or ends.
    """
    needs = {name: service.get("depends_on", {}) for name, service in SERVICES.items()}

    assert needs == {
        "postgresql": {},
        "temporal-schema": {"postgresql": {"condition": "service_healthy"}},
        "temporal": {"temporal-schema": {"condition": "service_completed_successfully"}},
        "temporal-namespace": {"temporal": {"condition": "service_healthy"}},
        "temporal-ui": {"temporal": {"condition": "service_healthy"}},
        "worker": {"temporal-namespace": {"condition": "service_completed_successfully"}},
    }
    assert {name for name, service in SERVICES.items() if "healthcheck" in service} == {
        "postgresql",
        "temporal",
        "temporal-ui",
    }
    assert {name for name, service in SERVICES.items() if "restart" not in service} == {
        "temporal-schema",
        "temporal-namespace",
    }


def test_compose_file_follows_the_compose_specification() -> None:
    """With a strict parser of the specification."""
    compose_spec: Any = pytest.importorskip("compose_spec", reason="in the extra deploy")

    spec = compose_spec.PyCompose.from_yaml(
        (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    ).to_spec()

    assert set(spec.services) == set(SERVICES)


@pytest.mark.parametrize("kind", ["ConfigMap", "Deployment", "PodDisruptionBudget"])
def test_manifests_follow_the_schemas_of_kubernetes(kind: str) -> None:
    """An unknown field is an error, in the newest and in an older version of Kubernetes."""
    kubernetes_validate: Any = pytest.importorskip(
        "kubernetes_validate", reason="in the extra deploy"
    )

    for version in (kubernetes_validate.latest_version(), "1.32"):
        kubernetes_validate.validate(manifest(kind), version, strict=True)


def test_dockerfile_passes_the_linter() -> None:
    """The linter reports only what the file itself ignores."""
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which(
        "hadolint"
    )
    if hadolint is None:
        pytest.skip("hadolint is in the extra deploy")
    done = subprocess.run(
        [hadolint, "--no-color", str(DEPLOY / "Dockerfile")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "")


def test_kustomization_holds_every_manifest() -> None:
    """With kubectl, if available: the applied manifests are the ones here."""
    listed = load(KUBERNETES / "kustomization.yaml")["resources"]

    assert sorted([*listed, "kustomization.yaml"]) == sorted(
        path.name for path in KUBERNETES.iterdir()
    )
    if kubectl := shutil.which("kubectl"):
        built = subprocess.run(
            [kubectl, "kustomize", str(KUBERNETES)], capture_output=True, text=True, check=True
        ).stdout
        kinds = {document["kind"] for document in yaml.safe_load_all(built)}

        assert kinds == {"ConfigMap", "Deployment", "PodDisruptionBudget", "ScaledObject"}
