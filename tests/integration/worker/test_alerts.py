"""The alerts and the dashboard in deploy/ are about metrics that a running worker exports.

`make deploy-check` installs what these tests need: Prometheus' own tool, and OpenTelemetry's
exporter, which writes the names as Prometheus has them.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider

from perdure import Agent, Budget, errors, tool
from perdure.testing import ScriptedModel, call, calls, fails, local_runtime, says
from perdure.turn.facts import WaitBegan
from perdure.worker import AgentWorker
from perdure.worker.telemetry import Telemetry

from ...conftest import ONCE_MORE
from ...support.spending import ended, until
from ...support.telemetry import PRICE

exporter: Any = pytest.importorskip(
    "opentelemetry.exporter.prometheus", reason="it is in the extra deploy"
)
prometheus: Any = pytest.importorskip("prometheus_client")
yaml: Any = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy/prometheus/rules.yaml"
DASHBOARD = ROOT / "deploy/grafana/perdure.json"
_FUNCTIONS = {"label_values", "sum", "by", "histogram_quantile", "unless", "offset"}


def rules() -> list[dict[str, Any]]:
    """All alerts."""
    document = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def queries() -> Iterator[str]:
    """The expressions of all alerts and panels, and of the variable of the dashboard."""
    yield from (rule["expr"] for rule in rules())
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    yield from (
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    )
    [query] = [one["query"] for one in dashboard["templating"]["list"] if one["name"] == "agent"]
    yield query["query"]


def named(query: str) -> set[tuple[str, str]]:
    """The metrics of a query, each with each label by which it is selected."""
    return {
        (metric, label)
        for metric, selected in re.findall(r"\b((?:gen_ai|perdure)_\w+)(?:\{(.*?)\})?\[", query)
        for label in ["", *re.findall(r"(\w+)(?==|!=)", selected)]
    } | {(metric, "") for metric in re.findall(r"label_values\((\w+)", query)}


def labels_of_groups(query: str) -> set[str]:
    """The labels by which a query groups, or that a variable lists."""
    grouped = [part for parts in re.findall(r"by \((.*?)\)", query) for part in parts.split(",")]
    listed = re.findall(r"label_values\(\w+, (\w+)\)", query)
    return {label.strip() for label in [*grouped, *listed]} - {"le"}


async def exported(server: str) -> dict[str, set[str]]:
    """The labels of each metric of a worker whose turns end in all ways, as Prometheus has them."""

    @tool
    def read(number: int) -> str:
        """Read."""
        if number < 0:
            raise ValueError("there is no such number")
        return "read"

    down = fails(errors.LLMUnavailableError("overloaded"))
    model = ScriptedModel(
        *(down, calls(call("read", number=-1)), calls(call("read", number=1)), says("Done.")),
        *(fails(errors.LLMAuthError("no key")), down, down),
    )
    agent = Agent(
        name="reader",
        model="mine:m",
        tools=[read],
        model_retry=ONCE_MORE.model_copy(update={"maximum_elapsed": timedelta(days=1)}),
    )
    registry = prometheus.CollectorRegistry()
    reader = exporter.PrometheusMetricReader(registry=registry)
    meters = MeterProvider([reader], shutdown_on_exit=False)
    app = AgentWorker(
        [agent],
        providers={"mine": model},
        prices={"mine:*": PRICE},
        telemetry=Telemetry(meter_provider=meters),
    )
    async with local_runtime(app, address=server) as client:
        for _ in range(2):
            await ended(await client.start("reader", "Read", budget=Budget(usd="100")))
        waiting = await client.start("reader", "Read")
        await until(waiting, WaitBegan)
        await waiting.cancel()
        await ended(waiting)
        found: dict[str, set[str]] = {}
        for family in registry.collect():
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.accepts("O32")
async def test_alerts_and_panels_are_about_metrics_that_exist(perdure_server: str) -> None:
    """Each metric, each label that selects, and each label that groups."""
    exists = await exported(perdure_server)
    labels = set().union(*exists.values())

    for query in queries():
        for metric, label in named(query):
            assert metric in exists, query
            assert not label or label in exists[metric], (metric, label)
        assert named(query), query
        assert labels_of_groups(query) <= labels, query


@pytest.mark.accepts("O33")
def test_rules_pass_the_tests_of_prometheus() -> None:
    """Each alert has a case in which it fires, and the page says what to do about it."""
    beside = str(Path(sys.executable).parent)
    promtool = shutil.which("promtool") or shutil.which("promtool", path=beside)
    if promtool is None:
        pytest.skip("promtool is not installed; `make deploy-tools` does that on Debian")
    tests = RULES.with_name("rules_test.yaml")
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(tests)]):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    cases = yaml.safe_load(tests.read_text(encoding="utf-8"))["tests"]
    fired = {
        rule["alertname"]
        for case in cases
        for rule in case["alert_rule_test"]
        if rule["exp_alerts"]
    }
    assert fired == {rule["alert"] for rule in rules()}
    page = (ROOT / "docs/operating.md").read_text(encoding="utf-8")
    for rule in rules():
        runbook = rule["annotations"]["runbook"]
        assert runbook == f"docs/operating.md#{rule['alert'].lower()}"
        assert f"### {rule['alert']}\n" in page
