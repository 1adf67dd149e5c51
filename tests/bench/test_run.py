# SPDX-License-Identifier: BSD-3-Clause
import json
import pathlib
import subprocess
import sys

RUN = pathlib.Path(__file__).resolve().parents[2] / "bench" / "run.py"
FIELDS = {"bench", "route", "case", "metric", "unit", "value", "spread", "ratio_to", "ratio"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(RUN), *arguments],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_roundtrip_compares_all_routes_and_copies_nothing_in_shared_memory(
    tmp_path: pathlib.Path,
) -> None:
    file = tmp_path / "rows.json"
    finished = run("roundtrip", "--quick", "--only", "identity 1 MB", "--json", str(file))
    assert finished.returncode == 0, finished.stdout
    rows = json.loads(file.read_text())["rows"]
    assert all(set(row) == FIELDS for row in rows)
    assert {row["route"] for row in rows} == {
        "isopool",
        "in-process",
        "ProcessPoolExecutor",
        "torch.multiprocessing",
    }
    copied = {row["case"]: row["value"] for row in rows if row["metric"] == "bytes_copied"}
    assert copied == {"identity 1 MB shared": 0, "identity 1 MB outside": 1_000_000}
    assert "identity 1 MB shared" in finished.stdout


def test_what_it_does_not_know_is_refused_in_one_line(tmp_path: pathlib.Path) -> None:
    finished = run("rountrip")
    assert finished.returncode == 2
    assert finished.stdout.splitlines()[-1].startswith("scripts/bench: error: no benchmark rountrip")
    finished = run("memory", "--json", str(tmp_path / "missing" / "rows.json"))
    assert finished.returncode == 2
    assert "there is no such folder" in finished.stdout.splitlines()[-1]
