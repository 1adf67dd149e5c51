"""The alert rules and the dashboard use metrics that a supervisor has, and each alert fires for its fault.

    python tests/packaging/monitoring.py ISOPOOLD ISOPOOL PLAIN_WORKER

Exits with 77 and prints the reason if promtool is not installed.
"""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
RULES = ROOT / "packaging" / "prometheus" / "isopool.rules.yml"
DASHBOARD = ROOT / "packaging" / "grafana" / "isopool-dashboard.json"
OPERATING = ROOT / "docs" / "operating.md"
ALERTS_TEST = pathlib.Path(__file__).parent / "alerts_test.yml"
NOT_RUN = 77
PATIENCE = 30.0
# Series that a supervisor without a model does not have; tests/cli has one with a model.
OF_MODELS = {name: {"model", "digest"} for name in ("isopool_model_bytes", "isopool_model_clients")}
OF_MODELS["isopool_model_calls_total"] = {"class", "model", "result"}
OF_MODELS["isopool_model_call_duration_seconds_bucket"] = {"class", "model"}
# Labels that Prometheus adds to each series.
OF_PROMETHEUS = {"instance", "job", "le"}

METRIC = re.compile(r"\bisopool_[a-z_]+\b")
SERIES = re.compile(r"^(isopool_[a-z_]+)(?:\{(.*)\})? \S+$")
# In an expression: by (a, b), on (a, b), {a="b"}, {a!~"b"}.
GROUPED_BY = re.compile(r"\b(?:by|on) \(([^)]*)\)")
MATCHED = re.compile(r'[{,]([a-z_]+)(?:=~?|!=|!~)"')


def wait_until_ready(notifications: socket.socket) -> None:
    while "READY=1" not in notifications.recv(4096).decode().split("\n"):
        pass


def metrics_of_a_supervisor(
    isopoold: pathlib.Path, isopool: pathlib.Path, worker: pathlib.Path, folder: pathlib.Path
) -> str:
    """What `isopool metrics` prints for a supervisor with plain workers that serves."""
    address = folder / "isopoold.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifications:
        notifications.bind(str(folder / "ready.sock"))
        notifications.settimeout(PATIENCE)
        environment = {**os.environ, "NOTIFY_SOCKET": str(folder / "ready.sock")}
        supervisor = subprocess.Popen(
            [isopoold, "--listen", address, "--worker", worker, "--workers", "2"],
            env=environment,
        )
        try:
            wait_until_ready(notifications)
            return subprocess.run(
                [isopool, "metrics", "--socket", address],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=PATIENCE,
            ).stdout
        finally:
            supervisor.kill()
            supervisor.wait()


def labels_by_metric(metrics: str) -> dict[str, set[str]]:
    """The labels of each metric; for a histogram also under the names of its series."""
    labels: dict[str, set[str]] = {}
    for line in metrics.splitlines():
        if line.startswith("# TYPE "):
            labels.setdefault(line.split()[2], set())
            continue
        found = SERIES.match(line)
        if found is None:
            continue
        names = set(re.findall(r'([a-z_]+)="', found[2] or ""))
        labels.setdefault(found[1], set()).update(names)
    return labels


def check_expression(expression: str, labels: dict[str, set[str]]) -> None:
    used = METRIC.findall(expression)
    assert used, f"no metric in {expression}"
    for metric in used:
        assert metric in labels, f"{metric}, in {expression}, is not a metric of a supervisor"
    known = set.union(OF_PROMETHEUS, *(labels[metric] for metric in used))
    named = {
        name.strip() for group in GROUPED_BY.findall(expression) for name in group.split(",")
    } | set(MATCHED.findall(expression))
    assert named <= known, f"{named - known}, in {expression}, are not labels of {used}"


def check_dashboard(labels: dict[str, set[str]]) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert len(panels) > 20
    for panel in panels:
        for target in panel["targets"]:
            check_expression(target["expr"], labels)
            for name in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert name in target["expr"] or name in set.union(
                    *(labels[metric] for metric in METRIC.findall(target["expr"]))
                ), f"the legend of {panel['title']} names {name}"


def check_rules(labels: dict[str, set[str]]) -> None:
    text = RULES.read_text()
    for expression in re.findall(r"expr: (?:>-\n)?((?:.+\n)(?: {10}\S.*\n)*)", text):
        check_expression(expression, labels)
    alerts = set(re.findall(r"alert: (\w+)", text))
    tested = set(re.findall(r'alertname(?:=\\?"|: )(\w+)', ALERTS_TEST.read_text()))
    assert alerts == tested, f"alerts without a test: {alerts - tested}"


def check_page(labels: dict[str, set[str]]) -> None:
    page = OPERATING.read_text()
    section = page[page.index("## Metrics") : page.index("## Signals")]
    named = set(METRIC.findall(section))
    families = {re.sub(r"_(bucket|sum|count)$", "", metric) for metric in labels}
    assert families == named, f"the page and the metrics differ in {families ^ named}"
    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    explained = set(re.findall(r"`(Isopool\w+)`", section))
    assert alerts == explained, f"the page and the alerts differ in {alerts ^ explained}"


def promtool_accepts(rules: str, folder: pathlib.Path) -> bool:
    (folder / "rules.yml").write_text(rules)
    test = folder / "test.yml"
    test.write_text(ALERTS_TEST.read_text().replace("RULES", str(folder / "rules.yml")))
    for command in (["check", "rules", folder / "rules.yml"], ["test", "rules", test]):
        said = subprocess.run(
            ["promtool", *command], capture_output=True, text=True, check=False
        )
        if said.returncode != 0:
            print(said.stdout, said.stderr)
            return False
    return True


def main() -> int:
    isopoold, isopool, worker = (pathlib.Path(argument) for argument in sys.argv[1:4])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        labels = labels_by_metric(metrics_of_a_supervisor(isopoold, isopool, worker, folder))
        labels.update(OF_MODELS)
        check_rules(labels)
        check_dashboard(labels)
        check_page(labels)
        if shutil.which("promtool") is None:
            print("no promtool here; on Debian: apt-get install prometheus")
            return NOT_RUN
        rules = RULES.read_text()
        assert promtool_accepts(rules, folder), "the rules are wrong"
        wrong = rules.replace("isopool_up == 0", "isopool_up == 2")
        assert wrong != rules
        assert not promtool_accepts(wrong, folder), "a wrong rule was let through"
    return 0


if __name__ == "__main__":
    sys.exit(main())
