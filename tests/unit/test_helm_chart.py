"""The chart in deploy/helm makes what the manifests in deploy/kubernetes are, for each build."""

from pathlib import Path
from typing import Any

import pytest

yaml: Any = pytest.importorskip("yaml", reason="PyYAML is in the extras dev and deploy")
helm: Any = pytest.importorskip("helm_python", reason="in the extra deploy")

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm"
TWO = {"builds": [{"id": "0.1.0"}, {"id": "sha256:AB/cd", "image": "registry/other@sha256:abcd"}]}


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The documents that the chart makes."""
    with helm.Chart.load(CHART) as chart:
        texts = chart.render(values, name="perdure-worker")
    return [
        document
        for text in texts.values()
        for document in yaml.safe_load_all(text)
        if document is not None
    ]


def of_kind(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Those of a kind."""
    return [document for document in documents if document["kind"] == kind]


def manifest(name: str) -> Any:
    """A manifest in deploy/kubernetes."""
    return yaml.safe_load((ROOT / f"deploy/kubernetes/{name}.yaml").read_text(encoding="utf-8"))


@pytest.mark.accepts("V24")
def test_each_build_has_a_deployment_of_its_own() -> None:
    """With its build id, its image, and pods that no other selects."""
    documents = rendered({**TWO, "keda": {"enabled": True}})
    deployments = of_kind(documents, "Deployment")
    containers = [each["spec"]["template"]["spec"]["containers"][0] for each in deployments]
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in deployments]
    triggers = [each["spec"]["triggers"][0] for each in of_kind(documents, "ScaledObject")]
    targets = [each["spec"]["scaleTargetRef"] for each in of_kind(documents, "ScaledObject")]

    assert [each["env"] for each in containers] == [
        [{"name": "PERDURE_BUILD_ID", "value": build_id}] for build_id in ("0.1.0", "sha256:AB/cd")
    ]
    assert [each["image"] for each in containers] == [
        "registry.example.com/support-worker:0.1.0",
        "registry/other@sha256:abcd",
    ]
    assert [each["spec"]["selector"]["matchLabels"] for each in deployments] == labels
    assert labels[0] != labels[1]
    assert [each["metadata"]["workerDeploymentBuildId"] for each in triggers] == [
        "0.1.0",
        "sha256:AB/cd",
    ]
    assert targets == [{"name": each["metadata"]["name"]} for each in deployments]
    assert [
        each["spec"]["selector"]["matchLabels"]
        for each in of_kind(documents, "PodDisruptionBudget")
    ] == labels


@pytest.mark.accepts("V24")
def test_builds_whose_names_are_equal_are_refused() -> None:
    """Kubernetes would take one for the other."""
    with pytest.raises(Exception, match="another build has the name of"):
        rendered({"builds": [{"id": "A"}, {"id": "a"}]})


@pytest.mark.accepts("V24")
def test_pods_of_the_chart_are_those_of_the_manifests() -> None:
    """All but labels and the names of settings and build."""
    (of_chart,) = of_kind(rendered({"builds": [{"id": "0.1.0"}]}), "Deployment")
    pods = [each["spec"]["template"]["spec"] for each in (of_chart, manifest("deployment"))]
    for pod in pods:
        for spread in pod["topologySpreadConstraints"]:
            spread.pop("labelSelector")
    settings = of_kind(rendered({}), "ConfigMap")[0]["data"]

    assert pods[0] == pods[1]
    assert settings == manifest("configmap")["data"]
    assert "replicas" in of_chart["spec"]


def test_chart_has_no_problems_and_follows_the_schemas_of_kubernetes() -> None:
    """By Helm's linter, and strictly by the schemas of two versions."""
    kubernetes_validate: Any = pytest.importorskip(
        "kubernetes_validate", reason="in the extra deploy"
    )
    problems = helm.chart.lint(CHART)

    assert "ERROR" not in str(problems)
    for document in rendered(TWO):
        for version in (kubernetes_validate.latest_version(), "1.32"):
            kubernetes_validate.validate(document, version, strict=True)
