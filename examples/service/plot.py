#!/usr/bin/env python3
"""Draws what `soak.py --record` has recorded, with the queries of the Grafana dashboard.

Prometheus evaluates the queries: promtool makes a database from the record, and a Prometheus
without a scrape configuration serves it for the time of this script. Needs prometheus, promtool and
matplotlib.
"""

import argparse
import json
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

from matplotlib import pyplot

DASHBOARD = Path(__file__).parents[2] / "packaging" / "grafana" / "isopool-dashboard.json"
PANELS = [
    "Calls per second",
    "Workers by state",
    "Deaths by cause",
    "Start of a worker",
    "Workers' own memory",
    "Shared memory",
    "Descriptors of the supervisor",
    "Queue",
]
STEP = 5  # seconds


def as_open_metrics(record: Path, begin: float) -> tuple[str, float]:
    """The record as OpenMetrics with times, and the seconds that it lasted."""
    series: dict[str, list[str]] = {}
    second = 0.0
    for line in record.read_text().splitlines():
        row = json.loads(line)
        second = row["second"]
        for name, value in row["metrics"].items():
            labels = name[name.index("{") + 1 : -1] + "," if "{" in name else ""
            labelled = f'{name.split("{")[0]}{{{labels}instance="soak",job="isopool"}}'
            series.setdefault(labelled, []).append(f"{labelled} {value} {begin + second:.3f}")
    # One series after the other: a family must not be interrupted.
    return "\n".join(line for name in sorted(series) for line in series[name]) + "\n# EOF\n", second


class Prometheus:
    """A server for one database, on a free port of the loopback address."""

    def __init__(self, database: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        self._base = f"http://{address}"
        empty = database / "prometheus.yml"
        empty.write_text("")
        command = ["prometheus", f"--config.file={empty}", f"--storage.tsdb.path={database}"]
        command += [f"--web.listen-address={address}", "--storage.tsdb.retention.time=10y"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def wait(self) -> None:
        limit = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{self._base}/-/ready", timeout=5)
                return
            except OSError:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.2)

    def over_time(self, query: str, begin: float, end: float) -> list[dict[str, object]]:
        parameters = urllib.parse.urlencode(
            {"query": query, "start": begin, "end": end, "step": STEP}
        )
        with urllib.request.urlopen(f"{self._base}/api/v1/query_range?{parameters}") as answer:
            found: list[dict[str, object]] = json.load(answer)["data"]["result"]
            return found


def draw(prometheus: Prometheus, begin: float, seconds: float, title: str, out: Path) -> None:
    dashboard = {panel["title"]: panel for panel in json.loads(DASHBOARD.read_text())["panels"]}
    figure, axes = pyplot.subplots(4, 2, figsize=(13, 14), sharex=True)
    for axis, name in zip(axes.flat, PANELS, strict=True):
        axis.set_title(name, fontsize="medium")
        for target in dashboard[name]["targets"]:
            query = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "30s")
            for found in prometheus.over_time(query, begin, begin + seconds):
                labels = dict(found["metric"])  # type: ignore[call-overload]
                label = target.get("legendFormat", "")
                for key, value in labels.items():
                    label = label.replace("{{" + key + "}}", value)
                points = [(at - begin, float(value)) for at, value in found["values"]]  # type: ignore
                gaps = with_gaps(points)
                axis.plot(*zip(*gaps, strict=True), lw=1, label=label)
        if name.startswith("Descriptors"):
            axis.set_yscale("log")  # the limit is far above the others
        else:
            axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize="x-small", loc="upper right")
    for axis in axes[-1]:
        axis.set_xlabel("seconds")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(out)


def with_gaps(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points, with a break where the supervisor gave no value."""
    whole = points[:1]
    for before, after in zip(points, points[1:], strict=False):
        if after[0] - before[0] > 1.5 * STEP:
            whole.append((before[0] + STEP, float("nan")))
        whole.append(after)
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path, help="made by soak.py --record")
    parser.add_argument("--title", default="The example service while its processes are killed")
    parser.add_argument("--out", type=Path, required=True, help="an image: .svg or .png")
    chosen = parser.parse_args()
    begin = float(int(time.time()) - 6 * 3600)
    text, seconds = as_open_metrics(chosen.record, begin)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "record.txt").write_text(text)
        database = Path(folder) / "database"
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics"]
        subprocess.run(
            [*command, f"{folder}/record.txt", database], check=True, capture_output=True
        )
        prometheus = Prometheus(database)
        try:
            prometheus.wait()
            draw(prometheus, begin, seconds, chosen.title, chosen.out)
        finally:
            prometheus.process.terminate()
            prometheus.process.wait()


if __name__ == "__main__":
    main()
